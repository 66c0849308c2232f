"""Token shards: a tokenized corpus as memory-mapped files.

A folder per (text, tokenizer), named by their fingerprint:

    shards.json          format_version, fingerprints, dtype, and per split: tokens, bytes, files
    train-00000.npy …    the ids, one dimension, uint16 or uint32, as NumPy writes them

Every document begins with the end-of-text mark, so a model learns where texts start, and generating from
nothing means starting after that mark. The folder appears under its name only when it is complete.
"""

import hashlib
import json
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path

import numpy as np

from glassformer.core.errors import DataError
from glassformer.core.files import cache_dir, move, own_folder, remove, write_atomically, writing
from glassformer.core.lock import locked
from glassformer.data.digests import DigestSet
from glassformer.data.shard_writer import DIGESTS, JOURNAL, Progress, ShardWriter
from glassformer.data.sources import Corpus
from glassformer.tokenizers.tokenizer import Tokenizer

FORMAT_VERSION = 1
SHARD_TOKENS = 1 << 26
INDEX = "shards.json"
DRAFT_LIFETIME = 30 * 24 * 3600  # seconds after which a draft is given up


@dataclass(frozen=True)
class Tokens:
    """One split: its ids, as if they were one array, and the bytes of text they stand for."""

    arrays: list[np.ndarray]
    bytes: int

    @cached_property
    def _starts(self) -> list[int]:
        return list(accumulate((len(a) for a in self.arrays), initial=0))

    def __len__(self) -> int:
        return self._starts[-1]

    @property
    def bytes_per_token(self) -> float:
        return self.bytes / max(1, len(self))

    def read(self, start: int, stop: int) -> np.ndarray:
        """ids[start:stop], gathered across files."""
        parts: list[np.ndarray] = []
        for i in range(max(0, bisect_right(self._starts, start) - 1), len(self.arrays)):
            if self._starts[i] >= stop:
                break
            parts.append(self.arrays[i][max(0, start - self._starts[i]) : stop - self._starts[i]])
        return parts[0] if len(parts) == 1 else np.concatenate(parts or [np.zeros(0, np.int64)])

    def beginning(self, count: int) -> np.ndarray:
        """About so many ids at most, as they would be learned from."""
        return self.read(0, min(len(self), count))


@dataclass(frozen=True)
class Blend(Tokens):
    """The tokens of several sources, which are learned from in given shares (batches.Mixed)."""

    sources: list[Tokens]
    shares: list[float]  # they add up to 1

    @property
    def bytes_per_token(self) -> float:
        return sum(w * s.bytes_per_token for w, s in zip(self.shares, self.sources, strict=True))

    def beginning(self, count: int) -> np.ndarray:
        each = zip(self.shares, self.sources, strict=True)
        return np.concatenate([source.beginning(int(share * count)) for share, source in each])


def blend(sources: list[dict[str, Tokens]], weights: list[float]) -> dict[str, Tokens]:
    """The splits of several sources: the training splits by weight, what is held out joined."""
    joined: dict[str, Tokens] = {}
    for split in dict.fromkeys(split for source in sources for split in source):
        present = [source[split] for source in sources if split in source]
        arrays, size = [a for tokens in present for a in tokens.arrays], sum(t.bytes for t in present)
        joined[split] = Tokens(arrays, size)
        if split == "train":
            shares = [weight / sum(weights) for weight in weights]
            joined[split] = Blend(arrays, size, present, shares)
    return joined


def tokenizer_fingerprint(tokenizer: Tokenizer) -> str:
    return hashlib.sha256(json.dumps(tokenizer.to_json(), sort_keys=True).encode()).hexdigest()


def tokenize(
    corpus: Corpus,
    tokenizer: Tokenizer,
    progress: Progress = lambda _: None,
    after: Sequence[Path] | None = None,
) -> Path:
    """Write the shards of a corpus, or find them already there; returns their folder.

    A process that was killed is no loss: the next one goes on after the last complete file (shard_writer.py).
    `after`: drop documents that come again, or that were in one of these folders, made in the same way.
    """
    parts = [FORMAT_VERSION, corpus.fingerprint, tokenizer_fingerprint(tokenizer)]
    parts += [] if after is None else ["without duplicates", *(folder.name for folder in after)]
    key = hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()[:32]
    folder = cache_dir("shards") / key
    if (folder / INDEX).is_file():
        return folder
    draft = folder.with_name(f".draft-{key}")
    with writing(folder), locked(cache_dir("locks", key), wait=True):
        if not (folder / INDEX).is_file():  # else the process that was waited for has made it
            _remove_stale_drafts(folder.parent)
            own_folder(draft)
            try:
                _write(draft, corpus, tokenizer, progress, after)
                remove(folder)
                move(draft, folder)
            finally:
                if not (draft / JOURNAL).is_file():  # nothing to go on from
                    remove(draft)
            remove(folder / JOURNAL)
    return folder


def _write(
    folder: Path, corpus: Corpus, tokenizer: Tokenizer, progress: Progress, after: Sequence[Path] | None
) -> None:
    dtype = np.dtype(np.uint16 if len(tokenizer) <= 1 << 16 else np.uint32)
    known_digests = None if after is None else DigestSet()
    for other in after or ():
        assert known_digests is not None
        known_digests.load(other / DIGESTS)
    draft = ShardWriter(folder, corpus, dtype, SHARD_TOKENS, known_digests)
    draft.write(tokenizer, progress)
    journal = draft.journal
    index = {
        "format_version": FORMAT_VERSION,
        "source": corpus.name,
        "rule": corpus.rule,
        "text_fingerprint": corpus.fingerprint,
        "tokenizer_fingerprint": tokenizer_fingerprint(tokenizer),
        "dtype": dtype.name,
        "splits": {split: journal.splits[split] for split in corpus.splits if split in journal.splits},
        **({} if known_digests is None else {"dropped": journal.dropped}),
    }
    write_atomically(folder / INDEX, json.dumps(index, indent=1))


def _remove_stale_drafts(folder: Path) -> None:
    """Drafts that nobody has gone on with for a month."""
    for draft in folder.glob(".draft-*"):
        if time.time() - draft.stat().st_mtime > DRAFT_LIFETIME:
            remove(draft)


def dropped(folder: Path) -> int:
    """How many documents were left out of shards since they came before."""
    return json.loads((folder / INDEX).read_text(encoding="utf-8")).get("dropped", 0)


def open_shards(folder: Path) -> dict[str, Tokens]:
    """The splits of a shard folder, memory-mapped."""
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    return {
        split: Tokens(
            [np.load(folder / name, mmap_mode="r", allow_pickle=False) for name in entry["files"]],
            entry["bytes"],
        )
        for split, entry in index["splits"].items()
    }


def require(splits: dict[str, Tokens], split: str, least: int, what: str) -> Tokens:
    """A split that is there and long enough, or a message that says what is."""
    tokens = splits.get(split)
    if not splits:
        raise DataError(
            f"{what}: no document is left of it, all of them came before (data.dedup). Leave it out."
        )
    if tokens is None:
        raise DataError(f"{what} has no {split} split; it has {', '.join(splits)}.")
    shortest = min(map(len, tokens.sources)) if isinstance(tokens, Blend) else len(tokens)
    if shortest < least:
        one = " of one source" if isinstance(tokens, Blend) else ""
        raise DataError(
            f"{what}: its {split} split{one} holds {shortest} tokens, and at least {least} are needed. "
            "Give more text, or a smaller model.context."
        )
    return tokens
