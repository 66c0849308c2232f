"""Token shards: a tokenized corpus as memory-mapped files, sealed.

A folder per (text, tokenizer), named by their fingerprint:

    shards.json          format_version, fingerprints, dtype, per split: tokens, bytes, files; its own hash
    train-00000.npy …    the ids, one dimension, uint16 or uint32, as NumPy writes them
    blocks.bin           the digests of their blocks

Every document begins with the end-of-text mark, so a model learns where texts start, and generating from
nothing means starting after that mark. The folder appears under its name only when it is complete.

Lengths are checked when a folder is opened, each block before its first use, and all of them by a thread in
the background. What is not what was written is made again from the text.
"""

import hashlib
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from glassformer.core.blocks import BLOCK
from glassformer.core.errors import DataError
from glassformer.core.files import (
    cache_dir,
    digest,
    move,
    own_folder,
    read_json,
    remove,
    write_atomically,
    writing,
)
from glassformer.core.lock import locked
from glassformer.core.strict_json import dump_json
from glassformer.data.digests import DigestSet
from glassformer.data.shard_writer import (
    BLOCKS,
    DIGESTS,
    JOURNAL,
    Progress,
    ShardWriter,
    StaleDraftError,
    find_damage,
    map_blocks,
)
from glassformer.data.sources import Corpus, SourceChangedError
from glassformer.tokenizers.tokenizer import Tokenizer

FORMAT_VERSION = 2
SHARD_TOKENS = 1 << 26
INDEX = "shards.json"
DRAFT_LIFETIME = 30 * 24 * 3600  # seconds after which a draft is given up
PIECE_TOKENS = 1 << 20  # that are looked at together where all are
BACKGROUND_BLOCKS = 64  # that are checked at once in the background; then it rests for as long as they took

Say = Callable[[str], None]


class Ids(Protocol):
    """A file of ids, or an array of them."""

    def __len__(self) -> int: ...
    def __getitem__(self, key: slice, /) -> Any: ...


@dataclass(frozen=True)
class Tokens:
    """One split: its ids, as if they were one array, and the bytes of text they stand for."""

    arrays: Sequence[Ids]
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

    def pieces(self) -> Iterator[np.ndarray]:
        """All ids, a few at a time."""
        for start in range(0, len(self), PIECE_TOKENS):
            yield self.read(start, min(start + PIECE_TOKENS, len(self)))

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
    return hashlib.sha256(dump_json(tokenizer.to_json(), sort_keys=True).encode()).hexdigest()


@dataclass
class ShardFolder:
    """The files of a shard folder, as they are now, and what makes them again when they are damaged."""

    path: Path
    rebuild: Callable[[], object] | None = None

    def __post_init__(self) -> None:
        self._repairing = threading.Lock()
        self.damaged = ""  # what the background found
        self.map()

    def map(self) -> None:
        self.index = read_index(self.path)
        self.blocks = map_blocks(self.path, self.index["files"])

    def splits(self) -> dict[str, Tokens]:
        return {
            split: Tokens([ShardFile(self, name) for name in entry["files"]], entry["bytes"])
            for split, entry in self.index["splits"].items()
        }

    def require(self, name: str, start: int, end: int) -> None:
        """Have bytes of a file checked; what is damaged is made again first."""
        if self.damaged or self.blocks[name].find_damage(start, end) is not None:
            with self._repairing:
                self._repair(name, start, end)

    def _repair(self, name: str, start: int, end: int) -> None:
        self.damaged = ""
        if self.rebuild is not None:
            self.rebuild()
            self.map()
        if self.blocks[name].find_damage(start, end) is not None:
            raise DataError(
                f"{self.path / name} is not what was written, and there is no text to make it anew."
            )

    def check_in_background(self) -> None:
        """Check all that nobody has used yet, in a thread that ends with the process."""
        threading.Thread(target=self._check_all, args=(self.blocks,), daemon=True, name="shards").start()

    def _check_all(self, blocks: dict[str, Any]) -> None:
        for name, file in blocks.items():
            for start in range(0, len(file.data), BACKGROUND_BLOCKS * BLOCK):
                if blocks is not self.blocks:  # they were made again
                    return
                began = time.perf_counter()
                end = min(start + BACKGROUND_BLOCKS * BLOCK, len(file.data))
                if file.find_damage(start, end) is not None:
                    self.damaged = name
                    return
                time.sleep(time.perf_counter() - began)


class ShardFile:
    """The ids of one file, each block checked before its first use."""

    def __init__(self, folder: ShardFolder, name: str):
        self.folder, self.name = folder, name
        self.dtype = np.dtype(folder.index["dtype"])
        facts = folder.index["files"][name]
        self.tokens: int = facts["tokens"]
        self.header: int = facts["size"] - self.tokens * self.dtype.itemsize

    def __len__(self) -> int:
        return self.tokens

    def __getitem__(self, key: slice, /) -> np.ndarray:
        start, stop, _ = key.indices(self.tokens)
        first, last = (self.header + at * self.dtype.itemsize for at in (start, max(start, stop)))
        self.folder.require(self.name, first, last)
        return self.folder.blocks[self.name].data[first:last].view(self.dtype)


def tokenize(
    corpus: Corpus,
    tokenizer: Tokenizer,
    progress: Progress = lambda _: None,
    after: Sequence[Path] | None = None,
    say: Say = lambda _: None,
    thorough: bool = False,
) -> Path:
    """Write the shards of a corpus, or find them already there; returns their folder.

    A process that was killed is no loss: the next one goes on after the last complete file (shard_writer.py).
    `after`: drop documents that come again, or that were in one of these folders, made in the same way.
    Shards that are not what was written are made again, and `say` is told; at a first look at their lengths
    and seals, or, `thorough`, at every byte.
    """
    parts = [FORMAT_VERSION, corpus.fingerprint, tokenizer_fingerprint(tokenizer)]
    parts += [] if after is None else ["without duplicates", *(folder.name for folder in after)]
    key = hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()[:32]
    folder = cache_dir("shards") / key
    look = partial(_damage, folder, corpus, tokenizer, thorough)
    if not thorough and folder.is_dir() and look() is None:
        return folder
    draft = folder.with_name(f".draft-{key}")
    with writing(folder), locked(cache_dir("locks", key), wait=True):
        if folder.is_dir():
            if (reason := look()) is None:  # the process that was waited for has made it
                return folder
            say(f"the token shards of {corpus.name} were damaged ({reason}): made again from the text")
        _remove_stale_drafts(folder.parent)
        for _ in range(2):
            own_folder(draft)
            try:
                if _damage(draft, corpus, tokenizer, thorough=True) is not None:  # else it lacks its name
                    _write(draft, corpus, tokenizer, progress, after)
                break
            except StaleDraftError:
                say(f"a draft of the shards of {corpus.name} was made from other text: begun anew")
                remove(draft)
            except SourceChangedError:
                remove(draft)
                raise
            finally:
                if not (draft / JOURNAL).is_file() and not (draft / INDEX).is_file():  # nothing to go on from
                    remove(draft)
        remove(draft / JOURNAL)
        remove(folder)
        move(draft, folder)
    return folder


def _damage(folder: Path, corpus: Corpus, tokenizer: Tokenizer, thorough: bool) -> str | None:
    """Why a shard folder cannot be used for this corpus; None if it can."""
    try:
        index = read_index(folder)
        if index["text_fingerprint"] != corpus.fingerprint:
            return "they are of another text"
        if index["tokenizer_fingerprint"] != tokenizer_fingerprint(tokenizer):
            return "they are of another tokenizer"
        for name in (BLOCKS, DIGESTS):
            if name in index and digest(folder / name) != index[name]:
                return f"{name} is not what was written"
        if thorough:
            return find_damage(folder, index["files"])
        map_blocks(folder, index["files"])
    except FileNotFoundError as error:
        return f"{Path(str(error.filename)).name} is missing"
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return str(error)
    return None


def read_index(folder: Path) -> dict[str, Any]:
    """The index of a shard folder; a ValueError if it is not what was written."""
    index = read_json(folder / INDEX)
    if index.pop("seal", None) != _seal(index):
        raise ValueError(f"{INDEX} is not what was written")
    return index


def _seal(index: dict[str, Any]) -> str:
    return hashlib.sha256(dump_json(index, sort_keys=True).encode()).hexdigest()


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
        "files": journal.files,
        BLOCKS: digest(folder / BLOCKS),
        **({} if known_digests is None else {"dropped": journal.dropped, DIGESTS: digest(folder / DIGESTS)}),
    }
    write_atomically(folder / INDEX, dump_json({**index, "seal": _seal(index)}, indent=1))


def _remove_stale_drafts(folder: Path) -> None:
    """Drafts that nobody has gone on with for a month."""
    for draft in folder.glob(".draft-*"):
        if time.time() - draft.stat().st_mtime > DRAFT_LIFETIME:
            remove(draft)


def dropped(folder: Path) -> int:
    """How many documents were left out of shards since they came before."""
    return read_index(folder).get("dropped", 0)


def open_shards(folder: Path, rebuild: Callable[[], object] | None = None) -> dict[str, Tokens]:
    """The splits of a shard folder, memory-mapped. `rebuild` makes it again when a part of it is damaged; all
    of it is then looked at in the background.
    """
    shards = ShardFolder(folder, rebuild)
    if rebuild is not None:
        shards.check_in_background()
    return shards.splits()


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
