"""A corpus of records: documents sorted into splits as they are met, read in one pass, never held.

Which split a document falls into follows from a hash of its text (splits.py), so duplicates stay together.
How much is held back follows from the settings and from how much text there is, which is estimated by reading
the beginnings of some files.
"""

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from glassformer.core.errors import DataError
from glassformer.core.files import whole_path
from glassformer.data.catalog import HUB_PREFIX
from glassformer.data.hub import open_hub
from glassformer.data.newlines import Newlines
from glassformer.data.records import TextFile, Unit, kind_of
from glassformer.data.sources import SPLITS, Corpus, Part, Span
from glassformer.data.splits import Division, Rule, Undivided, by_text
from glassformer.data.taking import Taking
from glassformer.data.text_files import file_digest, files_under

PROBES = 16  # files whose beginnings are read
PROBE_BYTES = 1 << 22  # bytes of text that are read of each
REACH = 4  # a sample is taken from the first part of each file, so many times as long
SAMPLE_FILES = 256  # files that a sample is taken from, where there are many


@dataclasses.dataclass
class Collection(Corpus):
    """Records of many files. The lists in `splits` stay empty: documents are met while reading."""

    files: Sequence[Unit] = ()
    sizes: Sequence[float] = ()  # of the text of each file in bytes, about
    division: Division = dataclasses.field(default_factory=lambda: Division("", 0.0, 0.0))

    @property
    def is_remote(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.name.startswith(HUB_PREFIX)

    @property
    def units(self) -> int:
        return len(self.files)

    def parts(self, unit: int) -> Iterator[tuple[str, Part]]:
        for part in self.files[unit].documents():
            if "all" in self.splits:
                yield "all", part
            else:
                yield from self.division.sections(part)

    def text_digest(self, unit: int) -> tuple[str, str | None]:
        return self.files[unit].name, self.files[unit].text_digest

    def bytes(self, split: str) -> int:
        """About how many there are; what was read in the end is in the shards."""
        valid, test = self.division.valid, self.division.test
        shares = {"train": 1 - valid - test, "valid": valid, "test": test, "all": 1.0}
        return int(sum(self.sizes) * shares[split])

    def whole(self) -> Corpus:
        return dataclasses.replace(
            self, splits={"all": []}, rule="undivided", fingerprint=self.fingerprint + " whole"
        )

    def texts(self, split: str = "train", limit: int | None = None) -> Iterator[str]:
        """The text of a split; with a limit, about so much of it, from the beginnings of files all over."""
        keep = 1.0 if limit is None else min(1.0, limit / max(1, self.bytes(split)))
        every = max(1, self.units // SAMPLE_FILES) if keep < 1.0 / SAMPLE_FILES else 1
        reach = min(1.0, REACH * keep * every)  # the share of a file that is read
        due = 1.0
        for unit in range(0, self.units, every):
            left = reach * self.sizes[unit] if limit is not None and reach < 1.0 else float("inf")
            for part_split, part in self.parts(unit):
                left -= len(part)
                for text in part.read() if part_split == split else ():
                    if due >= 1.0:
                        due -= 1.0
                        yield text
                    due += min(1.0, keep * every / reach)
                if left < 0:
                    break


def is_collection(source: str) -> bool:
    """Whether a SOURCE that is no name of a data set holds records."""
    if source.startswith(HUB_PREFIX):
        return True
    return source != "-" and any(kind_of(path) for path in files_under(source)[0])


@dataclasses.dataclass
class Records:
    """The files of a collection, before it has splits."""

    name: str
    path: Path | None
    field: str
    newlines: Newlines
    files: Sequence[Unit]
    identities: list[str]
    sizes: list[float]
    complete: bool  # whether all documents were read to find out how much there is
    warnings: list[str]
    taking: Taking

    @property
    def undivided(self) -> Undivided:
        return Undivided(sum(self.sizes), self.documents if self.complete else None)

    def documents(self) -> Iterator[Part]:
        for file in self.files:
            yield from file.documents()

    def original_division(self, valid: float, test: float) -> Division:
        return by_text(self.documents() if self.complete else None, sum(self.sizes), valid, test)

    def divided(self, division: Division, rule: Rule) -> Collection:
        valid, test = division.valid, division.test
        facts = f"{self.field} {division.ends} {valid!r} {test!r}"
        if self.newlines != "keep":
            facts += f" {self.newlines}"
        if rule == "content":
            facts += f" {division.longest!r} {division.valid_below!r} {division.test_below!r} "
            facts += " ".join(sorted(content.hex() for content in division.cut | division.heavy))
        hasher = hashlib.sha256("\n".join([*self.identities, facts]).encode(errors="replace"))
        splits: dict[str, list[Span]] = {split: [] for split in SPLITS if split != "test" or test}
        return Collection(
            self.name,
            splits,
            division.words,
            hasher.hexdigest(),
            self.warnings,
            self.path,
            rule,
            notes=self.taking.notes(),
            skipped=self.taking.skipped,
            files=self.files,
            sizes=self.sizes,
            division=division,
        )


def open_records(source: str, field: str, newlines: Newlines) -> Records:
    """The records of a file, a folder, a pattern or a stream."""
    warnings: list[str] = []
    path, has_size, taking = None, True, Taking(several=False)
    files: Sequence[Unit]
    if source.startswith(HUB_PREFIX):
        files, identity, has_size = open_hub(source, field, newlines)
        identities = [identity]
    else:
        files, identities, taking = _open_files(source, field, newlines)
        path = whole_path(source)
        warnings += taking.warnings()
    sizes, complete = _estimate(files)
    total = sum(sizes)
    if not complete and not has_size:
        warnings.append(f"{source} does not say how much text it has; it is taken for {total / 1e9:.2g} GB")
    if not total:
        raise DataError(f"{source} holds no documents.")
    return Records(source, path, field, newlines, files, identities, sizes, complete, warnings, taking)


def _open_files(source: str, field: str, newlines: Newlines) -> tuple[list[Unit], list[str], Taking]:
    """The files that hold documents, what each is known by, and what was taken and left out."""
    files: list[Unit] = []
    identities: list[str] = []
    paths, names = files_under(source)
    taking = Taking(several=len(paths) > 1)
    for path, name in zip(paths, names, strict=True):
        kind = kind_of(path)
        if kind is not None:
            digest = file_digest(path)
            files.append(kind(path, name, field, digest, newlines))
            taking.add(path)
        else:
            facts = taking.read(path, name, newlines)
            if facts is None:
                continue
            digest = facts.digest
            files.append(TextFile(path, name, facts))
        identities.append(f"{name} {digest}")
    return files, identities, taking


def _estimate(files: Sequence[Unit]) -> tuple[list[float], bool]:
    """About how much text each file holds; and whether all documents were read for that."""
    text_sizes: dict[int, float] = {}
    complete = len(files) <= PROBES
    for index in range(0, len(files), max(1, -(-len(files) // PROBES))):
        size = count = 0
        documents = files[index].documents()
        for part in documents:
            size, count = size + len(part), count + 1
            if size >= PROBE_BYTES:
                text_sizes[index] = max(size, files[index].total(size, count))
                if next(documents, None) is not None:
                    complete = False
                    break
        text_sizes.setdefault(index, size)
    disk_total, text_total = sum(files[i].size for i in text_sizes), sum(text_sizes.values())
    totals: dict[str, tuple[float, float]] = {}
    for index, bytes_of_text in text_sizes.items():
        kind = Path(files[index].name).suffix
        disk_so_far, text_so_far = totals.get(kind, (0.0, 0.0))
        totals[kind] = (disk_so_far + files[index].size, text_so_far + bytes_of_text)
    sizes: list[float] = []
    for index, file in enumerate(files):
        disk_like, text_like = totals.get(Path(file.name).suffix, (disk_total, text_total))
        sizes.append(text_sizes.get(index, file.size * text_like / max(1, disk_like)))
    return sizes, complete
