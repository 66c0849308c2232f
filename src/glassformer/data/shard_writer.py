"""Writing token shards so that a process may be killed at any time: the next one goes on, to the same bytes.

    train-00000.npy …   complete shard files
    seen.bin            16 bytes of the hash of each document, where duplicates are dropped
    journal.json        what is complete: the files with their hashes, and the place in the text after them

The journal is replaced, at once, after what it speaks of is on the disk. Whatever is not in it is written
again. A corpus is read in units (files), these in parts (documents), these in pieces of text; a place is one
number for each.
"""

import json
import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glassformer.core.files import digest, open_log, remove, replacing, write_atomically
from glassformer.data.digests import DigestSet
from glassformer.data.sources import DIGEST, Corpus
from glassformer.tokenizers.tokenizer import Tokenizer

JOURNAL, DIGESTS = "journal.json", "seen.bin"
Progress = Callable[[int], None]


@dataclass
class Journal:
    """What is complete."""

    place: tuple[int, int, int] = (0, 0, 0)  # units, parts of the next, pieces of its next
    documents: int = 0
    dropped: int = 0
    fresh: int = 0  # digests in seen.bin
    splits: dict[str, dict[str, Any]] = field(default_factory=dict)  # tokens, bytes, files
    hashes: dict[str, str] = field(default_factory=dict)  # of each file


class Step(NamedTuple):
    """A piece of text that was handed to the tokenizer, and where things stand after it."""

    split: str
    characters: int
    bytes: int  # of the part that begins here
    place: tuple[int, int, int]
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
            journal = Journal(**json.loads((self.folder / JOURNAL).read_text(encoding="utf-8")))
            unit, part, piece = journal.place
            journal.place = (int(unit), int(part), int(piece))
            intact = all(digest(self.folder / name) == expected for name, expected in journal.hashes.items())
            if self.known_digests is not None and intact:
                intact = (self.folder / DIGESTS).stat().st_size >= journal.fresh * DIGEST
        except (OSError, ValueError, TypeError):
            intact = False
        if not intact:
            journal = Journal()
        elif self.known_digests is not None:
            with open_log(self.folder / DIGESTS, "ab") as file:
                file.truncate(journal.fresh * DIGEST)
            self.known_digests.load(self.folder / DIGESTS)
        complete = {JOURNAL, DIGESTS, *journal.hashes} if journal.hashes else set()
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
        """The texts from the journal's place on; read ahead of the ids, so each leaves a step."""
        journal = self.journal
        documents, dropped, fresh = journal.documents, journal.dropped, journal.fresh
        first_unit, first_part, first_piece = journal.place
        for unit in range(first_unit, self.corpus.units):
            parts = enumerate(self.corpus.parts(unit))
            for number, (split, part) in islice(parts, first_part, None):
                if first_piece == 0:
                    if self.known_digests is not None:
                        digest = part.digest()
                        if not self.known_digests.add(digest):
                            dropped += 1
                            continue
                        self.new_digests.append(digest)
                        fresh += 1
                    documents += 1
                size = len(part) if first_piece == 0 else 0
                texts = enumerate(chain([""], part.read()), start=1)
                for piece, text in islice(texts, first_piece, None):
                    place = (unit, number, piece)
                    steps.append(Step(split, len(text), size, place, documents, dropped, fresh))
                    size = 0
                    yield text
                first_piece = 0
            first_part = 0
        journal.dropped = dropped

    def _save(self, step: Step | None) -> None:
        """Have all that is held on the disk, then say so; `step` is the last of it, None the very last."""
        for split, arrays in self.pending.items():
            files: list[str] = self.journal.splits[split]["files"]
            name = f"{split}-{len(files):05d}.npy"
            with replacing(self.folder / name) as temporary, temporary.open("wb") as file:
                np.save(file, np.concatenate(arrays), allow_pickle=False)
            files.append(name)
            self.journal.hashes[name] = digest(self.folder / name) if step else ""
        self.pending, self.pending_tokens = {}, {}
        count = len(self.new_digests) if step is None else step.fresh - self.journal.fresh
        if self.known_digests is not None:
            with open_log(self.folder / DIGESTS, "ab") as file:
                file.write(b"".join(self.new_digests[:count]))
                file.flush()
                os.fsync(file.fileno())
        self.new_digests = self.new_digests[count:]
        if step is not None:
            journal = self.journal
            journal.place, journal.documents = step.place, step.documents
            journal.dropped, journal.fresh = step.dropped, step.fresh
            write_atomically(self.folder / JOURNAL, json.dumps(asdict(journal)))
