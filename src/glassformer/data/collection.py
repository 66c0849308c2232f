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
from glassformer.data.examine import examine_size, file_digest, files_under, mark_length
from glassformer.data.hub import PREFIX, open_hub
from glassformer.data.packed import is_packed
from glassformer.data.records import Held, TextFile, Unit, kind_of
from glassformer.data.sources import HELD_OUT, MANY_DOCUMENTS, SPLITS, Corpus, Part, Span, divide, lot

LOOKED_AT = 16  # files whose beginnings are read
LOOK = 1 << 22  # bytes of text that are read of each
REACH = 4  # a sample is taken from the first part of each file, so many times as long
SAMPLED = 256  # files that a sample is taken from, where there are many


@dataclasses.dataclass
class Collection(Corpus):
    """Records of many files. The lists in `splits` stay empty: documents are met while reading."""

    files: Sequence[Unit] = ()
    sizes: Sequence[float] = ()  # of the text of each file in bytes, about
    shares: tuple[float, float] = (0.0, 0.0)  # of validation and test
    cut: bool = False  # the end of each document is held out, instead of whole ones

    @property
    def units(self) -> int:
        return len(self.files)

    def parts(self, unit: int) -> Iterator[tuple[str, Part]]:
        for part in self.files[unit].documents():
            if "all" in self.splits:
                yield "all", part
            elif self.cut:
                yield from self._cut(part)
            else:
                yield lot(part.digest().hex(), *self.shares), part

    def _cut(self, part: Part) -> Iterator[tuple[str, Part]]:
        span = Span("", part.data, 0, len(part)) if isinstance(part, Held) else part
        assert isinstance(span, Span)
        for split, spans in divide([span], *self.shares)[0].items():
            for piece in spans:
                held = b"".join(piece.blocks()).decode(errors="surrogatepass") if part is not span else ""
                yield split, Held(held) if held else piece

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
        every = max(1, self.units // SAMPLED) if keep < 1.0 / SAMPLED else 1
        reach = min(1.0, REACH * keep * every)  # the share of a file that is read
        due = 1.0
        for unit in range(0, self.units, every):
            left = reach * self.sizes[unit] if limit is not None and reach < 1.0 else float("inf")
            for found, part in self.parts(unit):
                left -= len(part)
                for text in part.read() if found == split else ():
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
    path, sized = None, True
    files: Sequence[Unit]
    if source.startswith(PREFIX):
        files, seal, sized = open_hub(source, field)
        seals = [seal]
    else:
        files, seals, left_out = _open_files(source, field)
        path = Path(source).expanduser().resolve()
        if left_out:
            warnings.append(f"{len(left_out)} files are not UTF-8 text and were left out: {left_out[0]}, …")
    sizes, digests = _estimate(files)
    total = sum(sizes)
    if digests is None and not sized:
        warnings.append(f"{source} does not say how much text it has; it is taken for {total / 1e9:.2g} GB")
    if not total:
        raise DataError(f"{source} holds no documents.")
    shares = min(valid, HELD_OUT / total), min(test, HELD_OUT / total)
    few = digests is not None and (
        len(digests) < MANY_DOCUMENTS or all(lot(d.hex(), *shares) != "valid" for d in digests)
    )
    how = "the end of each document" if few else "whole documents by a hash of their text"
    rule = f"{how}, {100 * shares[0]:.3g} % valid, {100 * shares[1]:.3g} % test"
    sealed = hashlib.sha256(
        "\n".join([*seals, f"{field} {few} {shares[0]!r} {shares[1]!r}"]).encode(errors="replace")
    )
    splits: dict[str, list[Span]] = {split: [] for split in SPLITS if split != "test" or test}
    return Collection(
        source, splits, rule, sealed.hexdigest(), warnings, path, files, sizes, shares=shares, cut=few
    )


def _open_files(source: str, field: str) -> tuple[list[Unit], list[str], list[str]]:
    """The files that hold documents, what each is known by, and those that hold none."""
    files: list[Unit] = []
    seals: list[str] = []
    left_out: list[str] = []
    for path, name in zip(*files_under(source), strict=True):
        kind = kind_of(path)
        if kind is not None:
            digest = file_digest(path)
            files.append(kind(path, name, field))
        else:
            try:
                digest, size = examine_size(path, name)
            except DataError:
                if is_packed(path):
                    raise
                left_out.append(name)
                continue
            files.append(TextFile(path, name, mark_length(path), size))
        seals.append(f"{name} {digest}")
    return files, seals, left_out


def _estimate(files: Sequence[Unit]) -> tuple[list[float], list[bytes] | None]:
    """About how much text each file holds; and the documents' digests, when all of them were read."""
    digests: list[bytes] = []
    known: dict[int, float] = {}
    whole = len(files) <= LOOKED_AT
    for index in range(0, len(files), max(1, -(-len(files) // LOOKED_AT))):
        read = count = 0
        documents = files[index].documents()
        for part in documents:
            read, count = read + len(part), count + 1
            digests.append(part.digest())
            if read >= LOOK:
                known[index] = max(read, files[index].total(read, count))
                if next(documents, None) is not None:
                    whole = False
                    break
        known.setdefault(index, read)
    on_disk, text = sum(files[i].size for i in known), sum(known.values())
    of_kind: dict[str, tuple[float, float]] = {}
    for index, bytes_of_text in known.items():
        kind = Path(files[index].name).suffix
        disk_so_far, text_so_far = of_kind.get(kind, (0.0, 0.0))
        of_kind[kind] = (disk_so_far + files[index].size, text_so_far + bytes_of_text)
    sizes: list[float] = []
    for index, file in enumerate(files):
        disk_like, text_like = of_kind.get(Path(file.name).suffix, (on_disk, text))
        sizes.append(known.get(index, file.size * text_like / max(1, disk_like)))
    return sizes, digests if whole else None
