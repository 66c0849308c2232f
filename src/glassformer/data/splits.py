"""Which of train, validation and test a text falls into, where it comes without splits: the one way.

    content   by a hash of what a document says, so that copies stay together, in one source or in several.
              A document too long to be held out is cut into blocks where paragraphs begin, and each block
              goes by what it says: what is held out of one long text is scattered over all of it.
    name      as in runs made before there was a choice, and in what is made here: files by a hash of their
              name, records by a hash of their text; of few documents the end of each is held out.

A division is the rule with its numbers. Several sources that are mixed have one, so that a document that is
in two of them falls on one side.
"""

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from glassformer.data.sources import SPLITS, Part, Span
from glassformer.data.text_files import DIGEST

Rule = Literal["content", "name"]
MANY_DOCUMENTS = 20  # a document that is more than one part in so many is not held out whole
HELD_OUT = 2_000_000  # bytes of validation, and of test, that are enough to measure well
BLOCKS = 400  # of a long document, about
SHORTEST_BLOCK, LONGEST_BLOCK = 256, 1 << 15  # bytes
REACH = 2048  # bytes to either side of a block's usual end in which its end is looked for first
HEAVY = 2  # times the share wanted: a text that comes again and again so often stays in train


@dataclass(frozen=True)
class Division:
    """What decides where a text goes."""

    words: str
    valid: float  # shares that are wanted
    test: float
    key: Callable[[Part], str] | None = None  # what a document is hashed by; None: its content
    ends: bool = False  # the end of each document is held out
    longest: float = float("inf")  # bytes: a longer document is cut into blocks
    cut: frozenset[bytes] = frozenset()  # contents of documents that are cut although they are shorter
    valid_below: float = 0.0  # draws below it are validation
    test_below: float = 0.0  # and below this one, test
    heavy: frozenset[bytes] = frozenset()  # contents that stay in train whatever their draw
    blocks: dict[Part, list[tuple[bytes, int]]] = field(default_factory=dict, repr=False)  # where known

    def sections(self, document: Part) -> Iterator[tuple[str, Part]]:
        """A document whole, or its sections in order, each with its split."""
        if self.ends:
            yield from _ends(document, self.valid, self.test)
        elif self.key is not None:
            yield split_of(self.key(document), self.valid, self.test), document
        elif not self.cuts(document):
            yield self.side(document.content()), document
        else:
            start = end = 0
            split = ""
            for content, size in self.blocks.get(document) or blocks_of(document):
                side = self.side(content)
                if end > start and side != split:
                    yield split, document.section(start, end)
                    start = end
                split, end = side, end + size
            if end > start:
                yield split, document.section(start, end)

    def cuts(self, document: Part) -> bool:
        return len(document) > self.longest or (bool(self.cut) and document.content() in self.cut)

    def side(self, content: bytes) -> str:
        drawn = draw(content)
        if drawn >= self.test_below or content in self.heavy:
            return "train"
        return "valid" if drawn < self.valid_below else "test"


@dataclass(frozen=True)
class Undivided:
    """A source before it has splits."""

    size: float  # bytes of its text, about
    documents: Callable[[], Iterable[Part]] | None  # all of them; None: too many to look at first


def divide(documents: list[Span], valid: float, test: float, rule: Rule) -> tuple[dict[str, list[Span]], str]:
    """The splits of documents, and how they were made in words."""
    if rule == "content":
        source = Undivided(sum(map(len, documents)), lambda: documents)
        (division,) = by_content([source], valid, test)
    else:
        division = by_name(documents, valid, test)
    return sort(documents, division), division.words


def sort(documents: Iterable[Span], division: Division) -> dict[str, list[Span]]:
    splits: dict[str, list[Span]] = {split: [] for split in SPLITS}
    for document in documents:
        for split, section in division.sections(document):
            assert isinstance(section, Span)
            splits[split].append(section)
    return splits


def by_content(sources: Sequence[Undivided], valid: float, test: float) -> list[Division]:
    """A division for each of several sources that are learned from together, all with one threshold.

    Where all documents can be looked at first, the thresholds are drawn so that the shares come out as near
    as whole documents allow, and neither validation nor test is empty; else they are the shares themselves.
    """
    total = sum(source.size for source in sources)
    valid, test = capped(valid, test, total)
    least = min(share for share in (valid, test) if share > 0) * total
    common = Division(f"by a hash of what they say, {_percent(valid, test)}", valid, test)
    divisions = [replace(common, longest=min(least, source.size / MANY_DOCUMENTS)) for source in sources]
    known = [source.documents for source in sources if source.documents is not None]
    cut: set[bytes] = set()
    if len(sources) > 1:
        for source, division in zip(sources, divisions, strict=True):
            for document in source.documents() if source.documents else ():
                if len(document) > division.longest:
                    cut.add(document.content())
    divisions = [replace(division, cut=frozenset(cut)) for division in divisions]
    if len(known) < len(sources):
        divisions = [replace(d, valid_below=valid, test_below=valid + test) for d in divisions]
        return [replace(d, words=f"documents {d.words}") for d in divisions]
    sizes: dict[bytes, int] = {}
    blocks: dict[Part, list[tuple[bytes, int]]] = {}
    wholes = cuts = pieces = 0
    for documents, division in zip(known, divisions, strict=True):
        for document in documents():
            if division.cuts(document):
                found = list(blocks_of(document))
                cuts, pieces = cuts + 1, pieces + len(found)
                if isinstance(document, Span):  # what is in memory would stay there
                    blocks[document] = found
                for content, size in found:
                    sizes[content] = sizes.get(content, 0) + size
            else:
                wholes += 1
                sizes[document.content()] = sizes.get(document.content(), 0) + len(document)
    what = "scattered blocks" if not wholes else "documents"
    if cuts and wholes:
        what = "documents, and blocks of long ones,"
    thresholds = _thresholds(sizes, valid, test)
    if thresholds is None:
        why = "as it repeats itself" if pieces + wholes > len(sizes) else "as there is little of it"
        words = f"the end of each document, {why}, {_percent(valid, test)}"
        return [Division(words, valid, test, ends=True) for _ in divisions]
    below, heavy = thresholds
    return [
        replace(
            d,
            words=f"{what} {d.words}",
            valid_below=below[0],
            test_below=below[1],
            heavy=heavy,
            blocks=blocks,
        )
        for d in divisions
    ]


def _thresholds(
    sizes: dict[bytes, int], valid: float, test: float
) -> tuple[tuple[float, float], frozenset[bytes]] | None:
    """The draws below which contents of these sizes are validation and test, and which stay in train.

    None: there are too few different contents to hold some of them out.
    """
    total = sum(sizes.values())
    heavy = frozenset(c for c, size in sizes.items() if size > HEAVY * max(valid, test) * total)
    light = sorted((draw(content), size) for content, size in sizes.items() if content not in heavy)
    below = [0.0, 0.0]
    at = 0
    for number, share in enumerate((valid, test)):
        held = 0
        while share and at < len(light) and (not held or held + light[at][1] / 2 <= share * total):
            held, at = held + light[at][1], at + 1
        if share and not held:
            return None
        below[number] = light[at][0] if at < len(light) else 1.0
    return ((below[0], below[1]), heavy) if at < len(light) or heavy else None


def by_name(documents: Sequence[Span], valid: float, test: float) -> Division:
    """Whole documents by a hash of their name where there are many, else the end of each."""
    valid, test = capped(valid, test, sum(map(len, documents)))
    if len(documents) >= MANY_DOCUMENTS and any(split_of(d.name, valid, test) == "valid" for d in documents):
        words = f"whole documents by a hash of their name, {_percent(valid, test)}"
        return Division(words, valid, test, key=lambda part: getattr(part, "name", ""))
    return Division(f"the end of each document, {_percent(valid, test)}", valid, test, ends=True)


def by_text(documents: Iterable[Part] | None, size: float, valid: float, test: float) -> Division:
    """Records by a hash of their text; where all are known, and are few, the end of each."""
    valid, test = capped(valid, test, size)
    digests = None if documents is None else [part.digest().hex() for part in documents]
    few = digests is not None and (
        len(digests) < MANY_DOCUMENTS or all(split_of(d, valid, test) != "valid" for d in digests)
    )
    if few:
        return Division(f"the end of each document, {_percent(valid, test)}", valid, test, ends=True)
    words = f"whole documents by a hash of their text, {_percent(valid, test)}"
    return Division(words, valid, test, key=lambda part: part.digest().hex())


def capped(valid: float, test: float, total: float) -> tuple[float, float]:
    """Of a large corpus no more than HELD_OUT bytes are kept back: a full evaluation stays affordable."""
    most = HELD_OUT / max(total, 1)
    return min(valid, most), min(test, most)


def split_of(name: str, valid: float, test: float) -> str:
    """Which split a name falls into: a number in [0, 1) from the name alone."""
    drawn = draw(hashlib.sha256(name.encode(errors="replace")).digest())
    return "valid" if drawn < valid else "test" if drawn < valid + test else "train"


def draw(digest: bytes) -> float:
    """A number in [0, 1) from a hash."""
    return int.from_bytes(digest[:8]) / 2**64


def blocks_of(document: Part) -> Iterator[tuple[bytes, int]]:
    """Hash and length of the blocks of a long document, in order.

    A block ends where a paragraph begins, else a line, else a character: at that one of several such places
    whose next bytes have the lowest checksum. So what follows decides, not how far the beginning is, and
    another copy, or one with other text before it, is soon cut at the same places.
    """
    size = max(SHORTEST_BLOCK, min(LONGEST_BLOCK, len(document) // BLOCKS))
    buffer, blocks = b"", document.blocks()
    at, ended = 0, False
    while not ended or at < len(buffer):
        while not ended and len(buffer) - at < 2 * size:
            more = next(blocks, None)
            ended = more is None
            buffer, at = buffer[at:] + (more or b""), 0
        if at == len(buffer):
            break
        end = _border(buffer, at, size)
        yield hashlib.sha256(buffer[at:end]).digest()[:DIGEST], end - at
        at = end


def _border(buffer: bytes, at: int, size: int) -> int:
    """Where the block that begins at `at` ends."""
    if len(buffer) - at < size + size // 2:
        return len(buffer)
    middle, near, far = at + size, min(REACH, size // 2), size // 2
    for mark, reach in ((b"\n\n", near), (b"\n\n", far), (b"\n", near), (b" ", near)):
        places: list[int] = []
        place = buffer.find(mark, middle - reach, middle + reach)
        while place >= 0:
            places.append(place + len(mark))
            place = buffer.find(mark, place + len(mark), middle + reach)
        if places:
            return min(places, key=lambda p: zlib.crc32(buffer[p : p + 64]))
    return next((p for p in range(middle, min(middle + 4, len(buffer))) if buffer[p] & 0xC0 != 0x80), middle)


def _ends(document: Part, valid: float, test: float) -> Iterator[tuple[str, Part]]:
    """The beginning for training, then validation and test, cut where a line starts."""
    size = len(document)
    cut_valid = _line_start(document, int(size * (1 - valid - test)))
    cut_test = _line_start(document, int(size * (1 - test))) if test else size
    edges = (0, cut_valid, max(cut_valid, cut_test), size)
    for split, start, end in zip(SPLITS, edges, edges[1:], strict=False):
        if end > start:
            yield split, document.section(start, end)


def _line_start(document: Part, at: int) -> int:
    """The first line start at or after `at`, if one is near; else the first character start."""
    size = len(document)
    near = max(64, size // 100)
    ahead = b"".join(document.section(at, min(at + near, size)).blocks())
    newline = ahead.find(b"\n")
    if 0 <= newline < len(ahead) - 1:
        return at + newline + 1
    return character_start(document, at)


def character_start(document: Part, at: int) -> int:
    """The first place at or after `at` where a UTF-8 character starts."""
    ahead = b"".join(document.section(at, min(at + 4, len(document))).blocks())
    return at + next((i for i, b in enumerate(ahead) if b & 0xC0 != 0x80), len(ahead))


def _percent(valid: float, test: float) -> str:
    return f"{100 * valid:.3g} % valid, {100 * test:.3g} % test"
