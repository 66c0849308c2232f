"""What the tokenizer takes at its limits: worst texts of doubling size, a gigabyte to shards, ten to merges.

python benchmarks/tokenizer_limits.py worst
python benchmarks/tokenizer_limits.py shards [GIGABYTES]      one unless told; writes that much twice
python benchmarks/tokenizer_limits.py learn [GIGABYTES]       ten unless told; nothing is written
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from glassformer.data.datasets import open_corpus
from glassformer.data.shards import tokenize
from glassformer.tokenizers.bpe_tokenizer import BPE
from glassformer.tokenizers.load import train_tokenizer
from glassformer.tools.bench.tokenizer import corpus
from glassformer.tools.bench.tokenizer_worker import memory, pieces

CHUNK = 1_000_000
WORST = {
    "one letter": b"a" * (CHUNK // 2),
    "one family of emoji": "👨‍👩‍👧‍👦".encode() * 20_000,
    "pairs that alternate": b"ab" * (CHUNK // 4),
    "no blanks": bytes(np.random.default_rng(0).integers(97, 123, CHUNK // 2, dtype=np.uint8)),
    "blanks alone": b" " * (CHUNK // 2),
    "lines alone": b"\n " * (CHUNK // 4),
}


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def text_of(folder: Path, size: int) -> list[str]:
    return list(pieces(str(corpus(None, size, folder)), size))


def worst(folder: Path) -> None:
    """Seconds for 0.5, 1, 2, 4 and 8 megabytes on one core, best of six, and what each doubling costs."""
    made = BPE.train(
        [*text_of(folder, 2 * CHUNK), "ab" * 999, " " * 999, "👨‍👩‍👧‍👦" * 99], 4000, engine="compiled"
    )
    made.engine = "compiled"
    for name, data in WORST.items():
        seconds = []
        for times in (1, 2, 4, 8, 16):
            runs, text = [], data * times
            for _ in range(6):
                began = time.perf_counter()
                made.array(text, threads=1)
                runs.append(time.perf_counter() - began)
            seconds.append(min(runs))
        costs = (b / a for a, b in pairwise(seconds))
        say(f"{name:22}{''.join(f'{s:9.4f}' for s in seconds)}   {' '.join(f'{c:.2f}' for c in costs)}")


def shards(folder: Path, gigabytes: float) -> None:
    """From a file to shards: opening it, learning 4,096 entries from a quarter, encoding all of it."""
    os.environ["GLASSFORMER_CACHE"] = str(folder)
    path = folder / "large.txt"
    chunks = text_of(folder, 100 * CHUNK)
    with path.open("w", encoding="utf-8", newline="") as file:
        for _ in range(int(10 * gigabytes)):
            file.writelines(chunks)
    del chunks
    began = time.perf_counter()
    opened = open_corpus(str(path))
    tokenizer = train_tokenizer("bpe", opened.texts("train", limit=256 * CHUNK), 4096)
    tokenize(opened, tokenizer)
    say(f"{gigabytes} GB: {time.perf_counter() - began:.1f} s, {memory('VmHWM') / 1e6:.0f} MB at most")


def learn(folder: Path, gigabytes: float) -> None:
    """32,768 entries from code with 7,000 random words in every megabyte: a tail that does not fit."""
    chunks = [text.encode() for text in text_of(folder, 100 * CHUNK)]
    random, said = np.random.default_rng(0), {"dropped": 0}

    def source() -> Iterator[bytes]:
        for k in range(int(1000 * gigabytes)):
            letters = random.integers(97, 123, 56_000, dtype=np.uint8)
            letters[::8] = ord(" ")
            yield chunks[k % len(chunks)] + letters.tobytes()

    def progress(what: str, n: int) -> None:
        said[what] = said.get(what, 0) + n

    began = time.perf_counter()
    BPE.train(source(), 32_768, engine="compiled", progress=progress)
    seconds = time.perf_counter() - began
    peak = f"{memory('VmHWM') / 1e6:.0f} MB at most"
    say(f"{said['bytes']:,} bytes: {seconds:.0f} s, {peak}, {said['dropped']:,} dropped")


def main() -> None:
    what, *size = sys.argv[1:] or ["worst"]
    with tempfile.TemporaryDirectory() as folder:
        if what == "worst":
            worst(Path(folder))
        elif what == "shards":
            shards(Path(folder), float(size[0]) if size else 1.0)
        else:
            learn(Path(folder), float(size[0]) if size else 10.0)


if __name__ == "__main__":
    main()
