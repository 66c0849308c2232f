"""One measurement of one tokenizer in a process of its own, so that time and peak memory are its alone.

python -m glassformer.tools.bench.tokenizer_worker '{"tool": …, "job": …, "text": …}'  prints one JSON object
"""

import codecs
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from glassformer.core.strict_json import dump_json

PIECE = 1 << 20  # bytes


def pieces(path: str, size: int) -> Iterator[str]:
    """The first `size` bytes of a file, a megabyte at a time."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with Path(path).open("rb") as file:
        while size > 0 and (data := file.read(min(PIECE, size))):
            size -= len(data)
            yield decoder.decode(data)


def learner(task: dict[str, Any]) -> Callable[[], Any]:
    """What learns, ready to go; all are given the text in the same pieces."""
    vocab, tool = task["vocab"], task["tool"]
    if tool == "rustbpe":
        import rustbpe

        made = rustbpe.Tokenizer()  # pyright: ignore[reportAttributeAccessIssue]
        return lambda: made.train_from_iterator(pieces(task["text"], task["size"]), vocab)
    if tool == "tokenizers":
        from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

        from glassformer.tokenizers.patterns import PATTERNS

        model = Tokenizer(models.BPE())
        split = pre_tokenizers.Split(Regex(PATTERNS["gpt4"]), "isolated")
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        model.pre_tokenizer = pre_tokenizers.Sequence([split, level])  # type: ignore[assignment]
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=alphabet, show_progress=False)
        return lambda: model.train_from_iterator(pieces(task["text"], task["size"]), trainer)
    from glassformer.tokenizers.bpe_tokenizer import BPE

    BPE.train(["a few words to load the compiled code"], 260, engine="compiled")

    def train() -> BPE:
        return BPE.train(pieces(task["text"], task["size"]), vocab, specials=(), engine="compiled")

    return train


def encoder(task: dict[str, Any]) -> Callable[[str], Any]:
    """What encodes, ready to go, all with the merges of the same file."""
    tool, threads = task["tool"], task["threads"]
    from glassformer.tokenizers.load import load_tokenizer

    ours: Any = load_tokenizer(task["tokenizer"])
    if tool == "tiktoken":
        import tiktoken

        ranks = {entry: i for i, entry in enumerate(ours.entries)}
        peer = tiktoken.Encoding("t", pat_str=ours.pattern, mergeable_ranks=ranks, special_tokens={})
        if threads == 1:
            return peer.encode_ordinary
        return lambda text: peer.encode_ordinary_batch(_parts(text, threads), num_threads=threads)
    if tool == "tokenizers":
        from tokenizers import Tokenizer

        hugging_face = Tokenizer.from_file(task["tokenizer"])
        if threads == 1:
            return lambda text: hugging_face.encode(text).ids
        return lambda text: [found.ids for found in hugging_face.encode_batch(_parts(text, threads))]
    ours.engine = "compiled"
    ours.array("load the compiled code")
    return ours.encode if tool == "glassformer, list" else ours.array


def _parts(text: str, threads: int) -> list[str]:
    size = len(text) // (8 * threads) + 1
    return [text[i : i + size] for i in range(0, len(text), size)]


def main() -> None:
    task = json.loads(sys.argv[1])
    if task["threads"] == 1 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    if task["job"] == "train":
        work = learner(task)
    else:
        encode, text = encoder(task), "".join(pieces(task["text"], task["size"]))
        work = partial(encode, text)
    before = start_of_memory()
    began = time.perf_counter()
    made = work()
    seconds = time.perf_counter() - began
    peak = memory("VmHWM")
    sys.stdout.write(dump_json({"seconds": seconds, "peak_bytes": peak, "added_bytes": peak - before}) + "\n")
    if "save" in task:
        made.save(task["save"])


def start_of_memory() -> int:
    """Memory held now; what was held before, while text was read, is not to count as a peak."""
    if Path("/proc/self/clear_refs").exists():
        Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def memory(name: str) -> int:
    """What Linux says of this process; elsewhere, its peak."""
    status = Path("/proc/self/status")
    if status.is_file():
        line = next(row for row in status.read_text().splitlines() if row.startswith(name))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    main()
