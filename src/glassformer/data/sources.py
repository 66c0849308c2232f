"""Where text comes from: a corpus is spans of documents, sorted into train, validation and test.

Nothing here holds a whole document: a corpus larger than memory is read in pieces, cut where the tokenizers
of the project would have cut anyway.
"""

import codecs
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

from glassformer.core.errors import DataError
from glassformer.core.files import user_path
from glassformer.data.packed import PIECE, is_packed, open_packed, skip
from glassformer.data.text_files import bom_length, files_under, spool_standard_input, text_digest_and_size
from glassformer.tokenizers.patterns import last_cut

SPLITS = ("train", "valid", "test")
MANY_DOCUMENTS = 20  # from here on whole documents are held out, below it a part of each
HELD_OUT = 2_000_000  # bytes of validation, and of test, that are enough to measure well
MAX_PIECE = 4 * PIECE  # characters held while looking for a place to cut
DIGEST = 16  # bytes of the hash by which a document is known again


@dataclass(frozen=True)
class Span:
    """Bytes `start` to `end` of a document, in a file or in memory."""

    name: str
    source: Path | bytes
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    def read(self) -> Iterator[str]:
        """The text in pieces, cut where a line starts or before a blank; where neither comes, anywhere."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        buffer = ""
        for block in self.blocks():
            buffer += decoder.decode(block)
            cut = last_cut(buffer, PIECE // 4)
            if cut is None and len(buffer) > MAX_PIECE:
                cut = len(buffer)
            if cut is not None:
                yield buffer[:cut]
                buffer = buffer[cut:]
        buffer += decoder.decode(b"", final=True)
        if buffer:
            yield buffer

    def blocks(self) -> Iterator[bytes]:
        if isinstance(self.source, bytes):
            yield self.source[self.start : self.end]
            return
        with open_packed(self.source) as file:
            skip(file, self.start)
            left = len(self)
            while left > 0 and (block := file.read(min(PIECE, left))):
                left -= len(block)
                yield block

    def digest(self) -> bytes:
        hasher = hashlib.sha256()
        for block in self.blocks():
            hasher.update(block)
        return hasher.digest()[:DIGEST]


class Part(Protocol):
    """A document, or a part of one: a Span, or a text in memory (records.py)."""

    def __len__(self) -> int: ...  # in bytes
    def read(self) -> Iterator[str]: ...
    def digest(self) -> bytes: ...


@dataclass
class Corpus:
    """Named text, its splits, and what is known about them."""

    name: str
    splits: dict[str, list[Span]]
    rule: str  # how the splits were made, in words
    fingerprint: str  # of the content and the splits
    warnings: list[str] = field(default_factory=list)
    path: Path | None = None  # where it lies, if it is the user's own

    def bytes(self, split: str) -> int:
        return sum(len(span) for span in self.splits.get(split, []))

    @property
    def units(self) -> int:
        """How many pieces the corpus lies in, each of which can be opened without those before it."""
        return len(self._spans)

    @cached_property
    def _spans(self) -> list[tuple[str, Part]]:
        return [(split, span) for split, spans in self.splits.items() for span in spans]

    def parts(self, unit: int) -> Iterator[tuple[str, Part]]:
        """The documents of one of them, or their parts, each with its split."""
        yield self._spans[unit]

    def whole(self) -> "Corpus":
        """The same documents undivided, as one split named `all`."""
        ends: dict[str, Span] = {}
        for split in SPLITS:
            for span in self.splits.get(split, []):
                previous = ends.get(span.name, span)
                ends[span.name] = Span(
                    span.name, span.source, min(previous.start, span.start), max(previous.end, span.end)
                )
        return Corpus(self.name, {"all": list(ends.values())}, "undivided", self.fingerprint + " whole")

    def texts(self, split: str = "train", limit: int | None = None) -> Iterator[str]:
        """The text of a split in pieces; with a limit, pieces spread evenly that add up to about so much."""
        keep = 1.0 if limit is None else min(1.0, limit / max(1, self.bytes(split)))
        due = 1.0 - keep  # the first piece is always among them
        for span in self.splits.get(split, []):
            for text in span.read():
                due += keep
                if due >= 1.0:
                    due -= 1.0
                    yield text


def make_corpus(
    name: str, splits: dict[str, list[Span]], rule: str, digests: list[str], warnings: list[str] | None = None
) -> Corpus:
    """A corpus whose fingerprint follows from the documents' digests and the spans taken of them."""
    hasher = hashlib.sha256()
    for digest in digests:
        hasher.update(digest.encode())
    for split in SPLITS:
        for span in splits.get(split, []):
            hasher.update(f"{split} {span.name} {span.start} {span.end}\n".encode(errors="surrogateescape"))
    return Corpus(name, splits, rule, hasher.hexdigest(), warnings or [])


def own_corpus(source: str, valid: float, test: float) -> Corpus:
    """The user's own file, folder or standard input."""
    warnings: list[str] = []
    if source == "-":
        paths = [spool_standard_input()]
        names = [paths[0].name]
    else:
        paths, names = files_under(source)
    documents: list[Span] = []
    digests: list[str] = []
    skipped: list[str] = []
    for name, path in zip(names, paths, strict=True):
        try:
            digest, size = text_digest_and_size(path, "standard input" if source == "-" else name)
            digests.append(digest)
        except DataError:
            if len(paths) == 1 or is_packed(path):
                raise
            skipped.append(name)
            continue
        documents.append(Span(name, path, bom_length(path), size))
    if skipped:
        sample = ", ".join(skipped[:3]) + (", …" if len(skipped) > 3 else "")
        warnings.append(f"{len(skipped)} files are not UTF-8 text and were left out: {sample}")
    if not documents:
        raise DataError(f"{source} holds no text: expected at least one UTF-8 file that is not empty.")
    splits, rule = divide(documents, valid, test)
    corpus = make_corpus(source, splits, rule, digests, warnings)
    corpus.path = (paths[0] if source == "-" else user_path(source)).resolve()
    return corpus


def divide(documents: list[Span], valid: float, test: float) -> tuple[dict[str, list[Span]], str]:
    """Splits for documents that come without: whole documents where there are many, else a part of each.

    Of a large corpus no more than HELD_OUT bytes are kept back, so that a full evaluation stays affordable.
    """
    total = sum(len(span) for span in documents)
    valid, test = (min(share, HELD_OUT / max(total, 1)) for share in (valid, test))
    shares = f"{100 * valid:.3g} % valid, {100 * test:.3g} % test"
    if len(documents) >= MANY_DOCUMENTS:
        splits: dict[str, list[Span]] = {s: [] for s in SPLITS}
        for span in documents:
            splits[split_of(span.name, valid, test)].append(span)
        if splits["valid"]:
            return splits, f"whole documents by a hash of their name, {shares}"
    splits = {s: [] for s in SPLITS}
    for span in documents:
        cut_valid = _line_start(span, span.start + int(len(span) * (1 - valid - test)))
        cut_test = _line_start(span, span.start + int(len(span) * (1 - test))) if test else span.end
        edges = (span.start, cut_valid, max(cut_valid, cut_test), span.end)
        for split, start, end in zip(SPLITS, edges, edges[1:], strict=False):
            if end > start:
                splits[split].append(Span(span.name, span.source, start, end))
    return splits, f"the end of each document, {shares}"


def split_of(name: str, valid: float, test: float) -> str:
    """Which split a document falls into: a number in [0, 1) from its name alone."""
    draw = int.from_bytes(hashlib.sha256(name.encode(errors="replace")).digest()[:8]) / 2**64
    return "valid" if draw < valid else "test" if draw < valid + test else "train"


def _line_start(span: Span, at: int) -> int:
    """The first line start at or after `at`, if one is near; else the first character start."""
    near = max(64, len(span) // 100)
    ahead = b"".join(Span(span.name, span.source, at, min(at + near, span.end)).blocks())
    newline = ahead.find(b"\n")
    if 0 <= newline < len(ahead) - 1:
        return at + newline + 1
    return character_start(span, at)


def character_start(span: Span, at: int) -> int:
    """The first place at or after `at` where a UTF-8 character starts."""
    ahead = b"".join(Span(span.name, span.source, at, min(at + 4, span.end)).blocks())
    return at + next((i for i, b in enumerate(ahead) if b & 0xC0 != 0x80), len(ahead))
