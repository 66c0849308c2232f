"""Token shards: a tokenized corpus as memory-mapped files.

A folder per (text, tokenizer), named by their fingerprint:

    shards.json          format_version, fingerprints, dtype, and per split: tokens, bytes, files
    train-00000.npy …    the ids, one dimension, uint16 or uint32, as NumPy writes them

Every document begins with the end-of-text mark, so a model learns where texts start, and generating from
nothing means starting after that mark. The folder appears under its name only when it is complete.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from glassformer.errors import DataError
from glassformer.files import cache_dir, writing
from glassformer.text.sources import Corpus, Span
from glassformer.text.tokenizer import Tokenizer

FORMAT_VERSION = 1
SHARD_TOKENS = 1 << 26
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Tokens:
    """One split: its ids, as if they were one array, and the bytes of text they stand for."""

    arrays: list[np.ndarray]
    bytes: int

    def __len__(self) -> int:
        return sum(len(a) for a in self.arrays)

    def read(self, start: int, stop: int) -> np.ndarray:
        """ids[start:stop], gathered across files."""
        parts: list[np.ndarray] = []
        for array in self.arrays:
            if start < len(array) and stop > 0:
                parts.append(array[max(start, 0) : stop])
            start, stop = start - len(array), stop - len(array)
        return parts[0] if len(parts) == 1 else np.concatenate(parts or [np.zeros(0, np.int64)])


def tokenizer_fingerprint(tokenizer: Tokenizer) -> str:
    return hashlib.sha256(json.dumps(tokenizer.to_json(), sort_keys=True).encode()).hexdigest()


def tokenize(corpus: Corpus, tokenizer: Tokenizer, progress: Progress = lambda _: None) -> Path:
    """Write the shards of a corpus, or find them already there; returns their folder."""
    seal = hashlib.sha256(
        f"{FORMAT_VERSION} {corpus.fingerprint} {tokenizer_fingerprint(tokenizer)}".encode()
    ).hexdigest()
    folder = cache_dir("shards") / seal[:32]
    if (folder / "shards.json").is_file():
        return folder
    with writing(folder):
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=folder.parent))
        try:
            dtype = np.dtype(np.uint16 if len(tokenizer) <= 1 << 16 else np.uint32)
            splits = {
                split: _write_split(draft, split, spans, tokenizer, dtype, progress)
                for split, spans in corpus.splits.items()
                if spans
            }
            index = {
                "format_version": FORMAT_VERSION,
                "source": corpus.name,
                "rule": corpus.rule,
                "text_fingerprint": corpus.fingerprint,
                "tokenizer_fingerprint": tokenizer_fingerprint(tokenizer),
                "dtype": dtype.name,
                "splits": splits,
            }
            (draft / "shards.json").write_text(json.dumps(index, indent=1), encoding="utf-8")
            try:
                draft.replace(folder)
            except OSError:
                if not (folder / "shards.json").is_file():  # else another process was faster
                    raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return folder


def open_shards(folder: Path) -> dict[str, Tokens]:
    """The splits of a shard folder, memory-mapped."""
    index = json.loads((folder / "shards.json").read_text(encoding="utf-8"))
    return {
        split: Tokens(
            [np.load(folder / name, mmap_mode="r", allow_pickle=False) for name in entry["files"]],
            entry["bytes"],
        )
        for split, entry in index["splits"].items()
    }


def _write_split(
    folder: Path, split: str, spans: list[Span], tokenizer: Tokenizer, dtype: np.dtype, progress: Progress
) -> dict[str, object]:
    """All documents of a split, in files of at most SHARD_TOKENS ids, holding one piece at a time."""
    files: list[str] = []
    tokens = 0
    waiting: list[np.ndarray] = []

    def flush() -> None:
        name = f"{split}-{len(files):05d}.npy"
        np.save(folder / name, np.concatenate(waiting), allow_pickle=False)
        with (folder / name).open("rb") as file:
            os.fsync(file.fileno())
        files.append(name)
        waiting.clear()

    held = 0
    for ids in _pieces(spans, tokenizer, progress):
        waiting.append(np.asarray(ids, dtype))
        tokens += len(ids)
        held += len(ids)
        if held >= SHARD_TOKENS:
            flush()
            held = 0
    if waiting:
        flush()
    return {"tokens": tokens, "bytes": sum(len(s) for s in spans), "files": files}


def _pieces(spans: list[Span], tokenizer: Tokenizer, progress: Progress) -> Iterator[np.ndarray]:
    """Documents in pieces, each document after a mark; an empty text stands for the mark."""
    mark = np.array([] if tokenizer.end_of_text is None else [tokenizer.end_of_text], np.int32)
    sizes: deque[int] = deque()

    def texts() -> Iterator[str]:
        for span in spans:
            for text in chain([""], span.read()):
                sizes.append(len(text))
                yield text

    for ids in tokenizer.arrays(texts()):
        size = sizes.popleft()
        yield ids if size else mark
        progress(size)


def require(splits: dict[str, Tokens], split: str, least: int, what: str) -> Tokens:
    """A split that is there and long enough, or a message that says what is."""
    tokens = splits.get(split)
    if tokens is None:
        raise DataError(f"{what} has no {split} split; it has {', '.join(splits)}.")
    if len(tokens) < least:
        raise DataError(
            f"{what}: its {split} split holds {len(tokens)} tokens, and at least {least} are needed. "
            "Give more text, or a smaller model.context."
        )
    return tokens
