"""Word vectors out of a text file, as GloVe and word2vec write them: a word and its numbers on each line.

    400000 300                      word2vec and fastText begin with how many and how long; GloVe does not
    the 0.418 0.24968 -0.41242 …

The file may be far larger than memory: it is read once, a line at a time, and only the vectors of words that
are asked for are kept. A word is looked up as it is, else in lower case, for many files know no other.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from glassformer.core.errors import DataError
from glassformer.core.files import open_regular, user_path
from glassformer.data.columns import is_number
from glassformer.data.packed import open_packed

LONGEST = 1 << 20  # bytes of a line
EXPECTED = "expected a text file of word vectors (GloVe, word2vec): a word and its numbers on each line"


@dataclass(frozen=True)
class WordVectors:
    """The vectors that a file has for some words."""

    path: Path
    digest: str  # SHA-256 of the file
    dimension: int
    asked: int  # words that were looked up
    rows: dict[int, np.ndarray]  # of the words that were found, by their place: the numbers, float32
    in_lower_case: int  # of these, how many were found only so

    def facts(self) -> dict[str, Any]:
        """For data.json."""
        numbers = {"dimension": self.dimension, "words": self.asked, "found": len(self.rows)}
        return {"file": str(self.path), "fingerprint": self.digest, **numbers}

    def describe(self) -> str:
        """What was found, for a person."""
        lower = f", {self.in_lower_case:,} of them in lower case" if self.in_lower_case else ""
        return (
            f"{self.path.name} has {len(self.rows):,} of {self.asked:,} words "
            f"({len(self.rows) / self.asked:.1%}{lower}), {self.dimension} numbers for each"
        )


def read_vectors(name: str | Path, words: Sequence[str]) -> WordVectors:
    """The vectors that a file has for some words; of a word that is there twice, the first."""
    path = user_path(name)
    try:
        open_regular(path).close()
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"data.vectors: {path} cannot be read: {reason}; {EXPECTED}") from None
    hasher = hashlib.sha256()
    with open_packed(path, hasher) as file:
        dimension, found = _read(path, file, {*words, *(word.lower() for word in words)})
    rows = {i: found[word] for i, word in enumerate(words) if word in found}
    exact = len(rows)
    rows |= {i: found[w.lower()] for i, w in enumerate(words) if w not in found and w.lower() in found}
    if not rows:
        raise DataError(
            f"data.vectors: {path} has a vector for none of the {len(words):,} words of the vocabulary: "
            "expected vectors of the same language"
        )
    return WordVectors(path, hasher.hexdigest(), dimension, len(words), rows, len(rows) - exact)


def _read(path: Path, file: BinaryIO, wanted: set[str]) -> tuple[int, dict[str, np.ndarray]]:
    """How long the vectors are, and those of the words that are wanted."""
    lines = _lines(path, file)
    first = next(lines, None)
    if first is None:
        raise DataError(f"data.vectors: {path} is empty; {EXPECTED}")
    header = first[1].split()
    promised, dimension = None, len(header) - 1
    if len(header) == 2 and all(part.isdigit() for part in header):
        promised, dimension = map(int, header)
    else:
        lines = chain([first], lines)
    found: dict[str, np.ndarray] = {}
    count = 0
    for number, line in lines:
        count += 1
        word = _word(path, number, line, dimension)
        if word in wanted and word not in found:
            found[word] = _numbers(path, number, line, dimension)
    if promised not in (None, count):
        raise DataError(
            f"data.vectors: {path} promises {promised:,} vectors in its first line, and has {count:,}: it "
            "was cut off, or is no file of vectors. Get it anew"
        )
    return dimension, found


def _lines(path: Path, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := file.readline(LONGEST + 1):
        number += 1
        if b"\0" in line:
            raise DataError(
                f"data.vectors: {path}, line {number} holds zero bytes, so the file is binary; {EXPECTED}. "
                "Save word2vec's .bin as text first"
            )
        if len(line) > LONGEST:
            raise DataError(
                f"data.vectors: {path}, line {number} is longer than {LONGEST:,} bytes; {EXPECTED}"
            )
        if line.strip():
            yield number, line


def _word(path: Path, number: int, line: bytes, dimension: int) -> str:
    """The word of a line, which may have blanks in it, if as many numbers follow as there should."""
    if line.rstrip().count(b" ") == dimension > 0 and b"\t" not in line:  # the usual, and much faster
        return line.partition(b" ")[0].decode(errors="replace")
    parts = line.rsplit(None, dimension) if dimension > 0 else []
    more = parts[0].split()[1:] if parts else []
    if len(parts) != dimension + 1 or (more and all(map(is_number, more))):
        raise _other_columns(path, number, line, dimension)
    return parts[0].decode(errors="replace").strip()


def _other_columns(path: Path, number: int, line: bytes, dimension: int) -> DataError:
    return DataError(
        f"data.vectors: {path}, line {number}: expected a word and {max(1, dimension)} numbers, found "
        f"{len(line.split())} columns; {EXPECTED}"
    )


def _numbers(path: Path, number: int, line: bytes, dimension: int) -> np.ndarray:
    parts = line.rsplit(None, dimension)[1:]
    if len(parts) != dimension:
        raise _other_columns(path, number, line, dimension)
    with np.errstate(over="ignore"):
        try:
            row = np.array(parts, np.float32)
        except ValueError:
            row = np.array([float(part) if is_number(part) else math.nan for part in parts], np.float32)
    if not np.isfinite(row).all():
        wrong = parts[int(np.isfinite(row).argmin())][:24].decode(errors="replace")
        raise DataError(
            f"data.vectors: {path}, line {number}: '{wrong}' is no finite number; expected a word and "
            f"{dimension} numbers"
        )
    return row
