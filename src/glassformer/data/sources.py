"""What text is here: a corpus is spans of documents, sorted into train, validation and test.

Nothing here holds a whole document: a corpus larger than memory is read in pieces, cut where the tokenizers
of the project would have cut anyway.
"""

import codecs
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol, Self

from glassformer.core.errors import DataError
from glassformer.data.packed import PIECE, StreamedText
from glassformer.data.text_files import DIGEST, normal_form
from glassformer.tokenizers.patterns import last_cut

SPLITS = ("train", "valid", "test")
MAX_PIECE = 4 * PIECE  # characters held while looking for a place to cut


@dataclass(frozen=True)
class Span:
    """Bytes `start` to `end` of a document, in a file or in memory."""

    name: str
    source: Path | StreamedText | bytes
    start: int
    end: int
    known_content: bytes = field(default=b"", compare=False)  # what `content` gives, where that is known

    def __len__(self) -> int:
        return self.end - self.start

    def read(self) -> Iterator[str]:
        """The text in pieces, cut where a line starts or before a blank; where neither comes, anywhere."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        buffer = ""
        try:
            for block in self.blocks():
                buffer += decoder.decode(block)
                cut = last_cut(buffer, PIECE // 4)
                if cut is None and len(buffer) > MAX_PIECE:
                    cut = len(buffer)
                if cut is not None:
                    yield buffer[:cut]
                    buffer = buffer[cut:]
            buffer += decoder.decode(b"", final=True)
        except UnicodeDecodeError:  # it was text when it was opened
            raise SourceChangedError(self.name) from None
        if buffer:
            yield buffer

    def blocks(self) -> Iterator[bytes]:
        if isinstance(self.source, bytes):
            yield self.source[self.start : self.end]
        elif isinstance(self.source, StreamedText):
            yield from self.source.blocks(self.start, self.end)
        else:
            with self.source.open("rb") as file:
                file.seek(self.start)
                left = len(self)
                while left > 0 and (block := file.read(min(PIECE, left))):
                    left -= len(block)
                    yield block

    def section(self, start: int, end: int) -> "Span":
        return Span(self.name, self.source, self.start + start, self.start + end)

    def digest(self) -> bytes:
        hasher = hashlib.sha256()
        for block in self.blocks():
            hasher.update(block)
        return hasher.digest()[:DIGEST]

    def content(self) -> bytes:
        if self.known_content:
            return self.known_content
        hasher = hashlib.sha256()
        for block in self.blocks():
            hasher.update(normal_form(block))
        return hasher.digest()[:DIGEST]


class SourceChangedError(DataError):
    """What is read is not what was opened."""

    def __init__(self, name: str):
        super().__init__(
            f"{name} has changed since it was opened: nothing of it was kept. Let what writes it end, then "
            "run the same command again."
        )


class Part(Protocol):
    """A document, or a part of one: a Span, or a text in memory (records.py)."""

    def __len__(self) -> int: ...  # in bytes
    def read(self) -> Iterator[str]: ...
    def blocks(self) -> Iterator[bytes]: ...

    def section(self, start: int, end: int) -> Self:
        """Bytes `start` to `end` of it."""
        ...

    def digest(self) -> bytes:
        """A hash of its bytes."""
        ...

    def content(self) -> bytes:
        """A hash of its text in the normal form in which copies are equal (text_files.normal_form)."""
        ...


@dataclass
class Corpus:
    """Named text, its splits, and what is known about them."""

    name: str
    splits: dict[str, list[Span]]
    rule: str  # how the splits were made, in words
    fingerprint: str  # of the content and the splits
    warnings: list[str] = field(default_factory=list)
    path: Path | None = None  # where it lies, if it is the user's own
    split: str = "auto"  # the rule as a setting (data.split), where there was one to choose
    text_digests: dict[str, str] = field(default_factory=dict)  # SHA-256 of each document, in their order
    notes: list[str] = field(default_factory=list)  # what was taken, for a person
    skipped: list[str] = field(default_factory=list)  # files that were left out, each with the reason

    is_remote = False  # whether each reading goes over the network

    def bytes(self, split: str) -> int:
        return sum(len(span) for span in self.splits.get(split, []))

    @property
    def units(self) -> int:
        """How many pieces the corpus lies in, each of which can be opened without those before it."""
        return len(self._documents)

    @cached_property
    def _documents(self) -> list[tuple[str, list[tuple[str, Span]]]]:
        """Name and spans of each document, in their order."""
        documents: dict[str, list[tuple[str, Span]]] = {name: [] for name in self.text_digests}
        for split, spans in self.splits.items():
            for span in spans:
                documents.setdefault(span.name, []).append((split, span))
        ordered = {name: sorted(spans, key=lambda s: s[1].start) for name, spans in documents.items()}
        return [(name, spans) for name, spans in ordered.items() if spans]

    def parts(self, unit: int) -> Iterator[tuple[str, Part]]:
        """The documents of one of them, or their parts, each with its split."""
        yield from self._documents[unit][1]

    def text_digest(self, unit: int) -> tuple[str, str | None]:
        """The name of one of them, and the SHA-256 of all its text, if that is known."""
        name = self._documents[unit][0]
        return name, self.text_digests.get(name)

    def whole(self) -> "Corpus":
        """The same documents undivided, as one split named `all`."""
        ends: dict[str, Span] = {}
        for split in SPLITS:
            for span in self.splits.get(split, []):
                previous = ends.get(span.name, span)
                ends[span.name] = Span(
                    span.name, span.source, min(previous.start, span.start), max(previous.end, span.end)
                )
        return Corpus(
            self.name,
            {"all": list(ends.values())},
            "undivided",
            self.fingerprint + " whole",
            text_digests=self.text_digests,
        )

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
    name: str,
    splits: dict[str, list[Span]],
    rule: str,
    digests: dict[str, str],
    warnings: list[str] | None = None,
    text_digests: dict[str, str] | None = None,
) -> Corpus:
    """A corpus whose fingerprint follows from the documents' digests and the spans taken of them.

    `digests` of each document by its name, in order; `text_digests` where those of the text are others.
    """
    hasher = hashlib.sha256()
    for digest in digests.values():
        hasher.update(digest.encode())
    for split in SPLITS:
        for span in splits.get(split, []):
            line = f"{split} {span.name} {span.start} {span.end}\n"
            hasher.update(line.encode(errors="surrogateescape"))
    return Corpus(
        name, splits, rule, hasher.hexdigest(), warnings or [], text_digests=text_digests or digests
    )
