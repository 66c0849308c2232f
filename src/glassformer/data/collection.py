"""A corpus of records: documents sorted into splits by what they say, read in one pass, never held.

Which split a document falls into follows from a hash of its text, so duplicates stay together. How much is
held back follows from the settings and from how much text there is, which is estimated by reading the
beginnings of some files.
"""

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from glassformer.core.errors import DataError
from glassformer.core.files import user_path
from glassformer.data.hub import PREFIX, open_hub
from glassformer.data.packed import is_packed
from glassformer.data.records import Document, TextFile, Unit, kind_of
from glassformer.data.sources import HELD_OUT, MANY_DOCUMENTS, SPLITS, Corpus, Part, Span, divide, split_of
from glassformer.data.text_files import bom_length, file_digest, files_under, text_digest_and_size

PROBES = 16  # files whose beginnings are read
PROBE_BYTES = 1 << 22  # bytes of text that are read of each
REACH = 4  # a sample is taken from the first part of each file, so many times as long
SAMPLE_FILES = 256  # files that a sample is taken from, where there are many


@dataclasses.dataclass
class Collection(Corpus):
    """Records of many files. The lists in `splits` stay empty: documents are met while reading."""

    files: Sequence[Unit] = ()
    sizes: Sequence[float] = ()  # of the text of each file in bytes, about
    shares: tuple[float, float] = (0.0, 0.0)  # of validation and test
    cuts_documents: bool = False  # the end of each document is held out, instead of whole ones

    @property
    def units(self) -> int:
        return len(self.files)

    def parts(self, unit: int) -> Iterator[tuple[str, Part]]:
        for part in self.files[unit].documents():
            if "all" in self.splits:
                yield "all", part
            elif self.cuts_documents:
                yield from self._cut(part)
            else:
                yield split_of(part.digest().hex(), *self.shares), part

    def _cut(self, part: Part) -> Iterator[tuple[str, Part]]:
        span = Span("", part.data, 0, len(part)) if isinstance(part, Document) else part
        assert isinstance(span, Span)
        for split, spans in divide([span], *self.shares)[0].items():
            for piece in spans:
                text = b"".join(piece.blocks()).decode(errors="surrogatepass") if part is not span else ""
                yield split, Document(text) if text else piece

    def bytes(self, split: str) -> int:
        """About how many there are; what was read in the end is in the shards."""
        valid, test = self.shares
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
    if source.startswith(PREFIX):
        return True
    return source != "-" and any(kind_of(path) for path in files_under(source)[0])


def open_collection(source: str, valid: float, test: float, field: str) -> Collection:
    """The records of a file, a folder, a pattern or a stream."""
    warnings: list[str] = []
    path, has_size = None, True
    files: Sequence[Unit]
    if source.startswith(PREFIX):
        files, identity, has_size = open_hub(source, field)
        identities = [identity]
    else:
        files, identities, skipped = _open_files(source, field)
        path = user_path(source).resolve()
        if skipped:
            warnings.append(f"{len(skipped)} files are not UTF-8 text and were left out: {skipped[0]}, …")
    sizes, digests = _estimate(files)
    total = sum(sizes)
    if digests is None and not has_size:
        warnings.append(f"{source} does not say how much text it has; it is taken for {total / 1e9:.2g} GB")
    if not total:
        raise DataError(f"{source} holds no documents.")
    shares = min(valid, HELD_OUT / total), min(test, HELD_OUT / total)
    few_documents = digests is not None and (
        len(digests) < MANY_DOCUMENTS or all(split_of(d.hex(), *shares) != "valid" for d in digests)
    )
    how = "the end of each document" if few_documents else "whole documents by a hash of their text"
    rule = f"{how}, {100 * shares[0]:.3g} % valid, {100 * shares[1]:.3g} % test"
    hasher = hashlib.sha256(
        "\n".join([*identities, f"{field} {few_documents} {shares[0]!r} {shares[1]!r}"]).encode(
            errors="replace"
        )
    )
    splits: dict[str, list[Span]] = {split: [] for split in SPLITS if split != "test" or test}
    return Collection(
        source,
        splits,
        rule,
        hasher.hexdigest(),
        warnings,
        path,
        files,
        sizes,
        shares=shares,
        cuts_documents=few_documents,
    )


def _open_files(source: str, field: str) -> tuple[list[Unit], list[str], list[str]]:
    """The files that hold documents, what each is known by, and those that hold none."""
    files: list[Unit] = []
    identities: list[str] = []
    skipped: list[str] = []
    for path, name in zip(*files_under(source), strict=True):
        kind = kind_of(path)
        if kind is not None:
            digest = file_digest(path)
            files.append(kind(path, name, field))
        else:
            try:
                digest, size = text_digest_and_size(path, name)
            except DataError:
                if is_packed(path):
                    raise
                skipped.append(name)
                continue
            files.append(TextFile(path, name, bom_length(path), size))
        identities.append(f"{name} {digest}")
    return files, identities, skipped


def _estimate(files: Sequence[Unit]) -> tuple[list[float], list[bytes] | None]:
    """About how much text each file holds; and the documents' digests, when all of them were read."""
    digests: list[bytes] = []
    text_sizes: dict[int, float] = {}
    complete = len(files) <= PROBES
    for index in range(0, len(files), max(1, -(-len(files) // PROBES))):
        size = count = 0
        documents = files[index].documents()
        for part in documents:
            size, count = size + len(part), count + 1
            digests.append(part.digest())
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
    return sizes, digests if complete else None
