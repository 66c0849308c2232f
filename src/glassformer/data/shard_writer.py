"""Writing token shards so that a process may be killed at any time: the next one goes on, to the same bytes.

    train-00000.npy …   complete shard files
    blocks.bin          the digests of their blocks (core/blocks.py), file after file
    seen.bin            16 bytes of the hash of each document, where duplicates are dropped
    journal.json        what is complete: the files, and the place in the text after them

The journal is replaced, at once, after what it speaks of is on the disk. Whatever is not in it is written
again. A corpus is read in units (files), these in parts (documents), these in pieces of text; a place is one
number for each.
"""

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glassformer.core.blocks import BLOCK, CheckedBlocks, block_count, block_digest
from glassformer.core.blocks import DIGEST as BLOCK_DIGEST
from glassformer.core.files import open_log, read_bytes, read_json, remove, replacing, write_atomically
from glassformer.core.strict_json import dump_json
from glassformer.data.digests import DigestSet
from glassformer.data.sources import Corpus, SourceChangedError
from glassformer.data.text_files import DIGEST
from glassformer.tokenizers.tokenizer import Tokenizer, to_bytes

JOURNAL, DIGESTS, BLOCKS = "journal.json", "seen.bin", "blocks.bin"
Progress = Callable[[int], None]


class StaleDraftError(Exception):
    """A draft was made from other text than there is now."""


@dataclass
class Journal:
    """What is complete."""

    place: tuple[int, int, int] = (0, 0, 0)  # units, parts of the next, pieces of its next
    text: str = ""  # SHA-256 of the text of that unit, up to that place
    documents: int = 0
    dropped: int = 0
    fresh: int = 0  # digests in seen.bin
    splits: dict[str, dict[str, Any]] = field(default_factory=dict)  # tokens, bytes, files
    files: dict[str, dict[str, int]] = field(default_factory=dict)  # tokens and size of each, as in BLOCKS


class Step(NamedTuple):
    """A piece of text that was handed to the tokenizer, and where things stand after it."""

    split: str
    characters: int
    bytes: int  # of the part that begins here
    place: tuple[int, int, int]
    text: Any  # hash of the unit's text, up to that place
    documents: int
    dropped: int
    fresh: int


class ShardWriter:
    """The shards of a corpus, as far as they are written."""

    def __init__(
        self,
        folder: Path,
        corpus: Corpus,
        dtype: np.dtype,
        shard_tokens: int,
        known_digests: DigestSet | None,
    ):
        """`known_digests`: drop documents that it knows, and those that come again."""
        self.folder, self.corpus, self.dtype, self.shard_tokens = folder, corpus, dtype, shard_tokens
        self.known_digests = known_digests
        self.new_digests: list[bytes] = []  # of new documents, not yet on the disk
        self.pending: dict[str, list[np.ndarray]] = {}
        self.pending_tokens: dict[str, int] = {}
        self.journal = self._recover()

    def write(self, tokenizer: Tokenizer, progress: Progress) -> None:
        """Tokenize all that is not there yet."""
        progress(sum(entry["bytes"] for entry in self.journal.splits.values()))
        for step, ids in self._pieces(tokenizer):
            entry = self.journal.splits.setdefault(step.split, {"tokens": 0, "bytes": 0, "files": []})
            entry["tokens"] += len(ids)
            entry["bytes"] += step.bytes
            self.pending.setdefault(step.split, []).append(np.asarray(ids, self.dtype))
            self.pending_tokens[step.split] = self.pending_tokens.get(step.split, 0) + len(ids)
            progress(step.characters)
            if self.pending_tokens[step.split] >= self.shard_tokens:
                self._save(step)
        self._save(None)

    def _recover(self) -> Journal:
        """What another process left here, if it is whole; all else is removed."""
        journal = Journal()
        try:
            journal = Journal(**read_json(self.folder / JOURNAL))
            unit, part, piece = journal.place
            journal.place = (int(unit), int(part), int(piece))
            intact = find_damage(self.folder, journal.files) is None
            if self.known_digests is not None and intact:
                intact = (self.folder / DIGESTS).stat().st_size >= journal.fresh * DIGEST
        except (OSError, ValueError, TypeError):
            intact = False
        if not intact:
            journal = Journal()
        else:
            blocks = sum(block_count(facts["size"]) for facts in journal.files.values())
            _truncate(self.folder / BLOCKS, blocks * BLOCK_DIGEST)
            if self.known_digests is not None:
                _truncate(self.folder / DIGESTS, journal.fresh * DIGEST)
                self.known_digests.load(self.folder / DIGESTS)
        complete = {JOURNAL, DIGESTS, BLOCKS, *journal.files} if journal.files else set()
        for path in self.folder.iterdir():
            if path.name not in complete:
                remove(path)
        return journal

    def _pieces(self, tokenizer: Tokenizer) -> Iterator[tuple[Step, np.ndarray]]:
        """Each piece of text and its ids, every document after a mark; an empty text stands for the mark."""
        eot_id = np.array([] if tokenizer.eot_id is None else [tokenizer.eot_id], np.int32)
        steps: deque[Step] = deque()
        for ids in tokenizer.arrays(self._texts(steps)):
            step = steps.popleft()
            yield step, ids if step.characters else eot_id

    def _texts(self, steps: deque[Step]) -> Iterator[str]:
        """The texts from the journal's place on; read ahead of the ids, so each leaves a step.

        All text of a unit is hashed as it is handed over, so that what became shards is what was opened; that
        before the journal's place is read again for it, and must be what the journal speaks of.
        """
        journal = self.journal
        documents, dropped, fresh = journal.documents, journal.dropped, journal.fresh
        first_unit, first_part, first_piece = journal.place
        is_place_found = first_piece == 0  # else there is text before it, to be compared
        for unit in range(first_unit, self.corpus.units):
            read = hashlib.sha256()
            for number, (split, part) in enumerate(self.corpus.parts(unit)):
                goes_on = (unit, number) == (first_unit, first_part) and first_piece > 0
                if unit == first_unit and number < first_part:
                    for text in part.read():
                        read.update(to_bytes(text))
                    continue
                if not goes_on:
                    if self.known_digests is not None:
                        digest = part.digest()
                        if not self.known_digests.add(digest):
                            for text in part.read():
                                read.update(to_bytes(text))
                            dropped += 1
                            continue
                        self.new_digests.append(digest)
                        fresh += 1
                    documents += 1
                size = 0 if goes_on else len(part)
                for piece, text in enumerate(chain([""], part.read()), start=1):
                    read.update(to_bytes(text))
                    if goes_on and piece <= first_piece:
                        is_place_found = piece == first_piece and read.hexdigest() == journal.text
                        continue
                    if not is_place_found:
                        break
                    place = (unit, number, piece)
                    steps.append(Step(split, len(text), size, place, read.copy(), documents, dropped, fresh))
                    size = 0
                    yield text
            if not is_place_found:
                raise StaleDraftError
            name, expected = self.corpus.text_digest(unit)
            if expected not in (None, read.hexdigest()):
                raise SourceChangedError(name)
        journal.dropped = dropped

    def _save(self, step: Step | None) -> None:
        """Have all that is held on the disk, then say so; `step` is the last of it, None the very last."""
        for split, arrays in self.pending.items():
            files: list[str] = self.journal.splits[split]["files"]
            name = f"{split}-{len(files):05d}.npy"
            ids = np.concatenate(arrays)
            with replacing(self.folder / name) as temporary, temporary.open("w+b") as file:
                np.save(file, ids, allow_pickle=False)
                size = file.tell()
                file.seek(0)
                header = file.read(size - ids.nbytes)
            _append(self.folder / BLOCKS, _digests(header, ids))
            files.append(name)
            self.journal.files[name] = {"tokens": len(ids), "size": len(header) + ids.nbytes}
        self.pending, self.pending_tokens = {}, {}
        count = len(self.new_digests) if step is None else step.fresh - self.journal.fresh
        if self.known_digests is not None:
            _append(self.folder / DIGESTS, b"".join(self.new_digests[:count]))
        self.new_digests = self.new_digests[count:]
        if step is not None:
            journal = self.journal
            journal.place, journal.text = step.place, step.text.hexdigest()
            journal.documents = step.documents
            journal.dropped, journal.fresh = step.dropped, step.fresh
            write_atomically(self.folder / JOURNAL, dump_json(asdict(journal)))


def _truncate(path: Path, size: int) -> None:
    with open_log(path, "ab") as file:
        file.truncate(size)


def _append(path: Path, data: bytes) -> None:
    with open_log(path, "ab") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _digests(header: bytes, ids: np.ndarray) -> bytes:
    """The digests of the blocks of a file, from what was to be written, not from what can be read of it."""
    data = ids.view(np.uint8).data
    first = BLOCK - len(header)
    rest = (data[at : at + BLOCK] for at in range(first, len(data), BLOCK))
    return b"".join(block_digest(block) for block in (header + bytes(data[:first]), *rest))


def map_blocks(folder: Path, files: dict[str, dict[str, int]]) -> dict[str, CheckedBlocks]:
    """The bytes of each file, mapped, with the digests of their blocks; a ValueError says what is wrong."""
    digests = read_bytes(folder / BLOCKS, most=1 << 32)
    mapped: dict[str, CheckedBlocks] = {}
    at = 0
    for name, facts in files.items():
        if Path(name).name != name or (folder / name).stat().st_size != facts["size"]:
            raise ValueError(f"{name} has not the length it was written with")
        end = at + block_count(facts["size"]) * BLOCK_DIGEST
        mapped[name] = CheckedBlocks(np.asarray(np.memmap(folder / name, np.uint8, "r")), digests[at:end])
        at = end
    if len(digests) < at:
        raise ValueError(f"{BLOCKS} has not the length it was written with")
    return mapped


def find_damage(folder: Path, files: dict[str, dict[str, int]]) -> str | None:
    """Why the files are not what was written, read from beginning to end; None if they are."""
    try:
        for name, blocks in map_blocks(folder, files).items():
            if blocks.find_damage(0, len(blocks.data)) is not None:
                return f"{name} is not what was written"
    except FileNotFoundError as error:
        return f"{Path(str(error.filename)).name} is missing"
    except (OSError, ValueError, TypeError, KeyError) as error:
        return str(error)
    return None
