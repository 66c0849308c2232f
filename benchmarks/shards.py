"""How fast text becomes token shards: plain text beside records, all of the same documents.

    python benchmarks/shards.py [--megabytes 200]

Prints MB of text per second, from opening the source to the last shard on the disk. The tokenizer is learned
before, from a part of the text. All cores are used; `taskset -c 0` leaves one.
"""

import argparse
import gzip
import importlib.util
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from glassformer.core.cores import cores
from glassformer.data.datasets import open_corpus
from glassformer.data.shards import tokenize
from glassformer.tokenizers.load import train_tokenizer

DOCUMENT = 3000  # bytes, about


def documents(megabytes: int) -> Iterator[str]:
    """Text of Python's manual in another order each time, so that little of it comes again as a whole."""
    lines = "".join(open_corpus("pydocs").texts()).splitlines(keepends=True)
    draw, size = random.Random(0), 0
    while size < megabytes * 1_000_000:
        text = ""
        while len(text) < DOCUMENT:
            at = draw.randrange(len(lines) - 8)
            text += "".join(lines[at : at + 8])
        size += len(text.encode())
        yield text


def write(folder: Path, megabytes: int) -> dict[str, str]:
    """The documents as text files of a hundred each, and in one file of each kind of record."""
    texts = list(documents(megabytes))
    (folder / "text").mkdir()
    for start in range(0, len(texts), 100):
        (folder / "text" / f"{start:08}.txt").write_text("\n".join(texts[start : start + 100]))
    rows = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
    (folder / "a.jsonl").write_bytes(rows)
    with gzip.open(folder / "a.jsonl.gz", "wb", compresslevel=6) as file:
        file.write(rows)
    sources = ["text", "a.jsonl", "a.jsonl.gz"]
    if importlib.util.find_spec("zstandard"):
        import zstandard  # pyright: ignore[reportMissingImports]

        (folder / "a.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(rows))
        sources.append("a.jsonl.zst")
    if importlib.util.find_spec("pyarrow"):
        import pyarrow  # pyright: ignore[reportMissingImports]
        import pyarrow.parquet as parquet  # pyright: ignore[reportMissingImports]

        parquet.write_table(pyarrow.table({"text": texts}), folder / "a.parquet", compression="zstd")
        sources.append("a.parquet")
    return {name: str(folder / name) for name in sources}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200)
    megabytes = parser.parse_args().megabytes
    with tempfile.TemporaryDirectory() as name:
        os.environ["GLASSFORMER_CACHE"] = f"{name}/cache"
        sources = write(Path(name), megabytes)
        tokenizer = train_tokenizer("bpe", open_corpus(sources["text"]).texts(limit=20_000_000), 16384)
        tokenizer.array("some text " * 10**6)  # compiled before it is timed
        sys.stdout.write(f"{megabytes} MB of text, {cores()} cores\n")
        for dedup in (False, True):
            for kind, source in sources.items():
                began = time.perf_counter()
                corpus = open_corpus(source)
                opened = time.perf_counter() - began
                tokenize(corpus, tokenizer, after=[] if dedup else None)
                seconds = time.perf_counter() - began
                more = "  without duplicates" if dedup else ""
                rate = megabytes / seconds
                sys.stdout.write(f"{kind:12} {rate:6.1f} MB/s  ({opened:.2f} s to open){more}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
