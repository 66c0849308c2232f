"""Documents out of files that hold many, one at a time: JSON lines, Parquet, and whole texts among them.

    .jsonl .ndjson, also with .gz or .zst (and .json.gz, .json.zst)    an object per line
    .parquet                                                           a row per document
    anything else                                                      a text, packed or not

The text of a record is in one field, whose name is a setting.
"""

import codecs
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from glassformer.core.errors import DataError
from glassformer.core.files import digest
from glassformer.data.newlines import Newlines, unified
from glassformer.data.packed import (
    MAX_RATIO,
    PACKED_SUFFIXES,
    PIECE,
    RATIO_FLOOR,
    bytes_read,
    open_packed,
    require_package,
)
from glassformer.data.sources import MAX_PIECE, Part, SourceChangedError, Span
from glassformer.data.text_files import DIGEST, TextFacts, file_identity, normal_form
from glassformer.tokenizers.patterns import last_cut
from glassformer.tokenizers.tokenizer import to_bytes

MAX_RECORD_BYTES = 1 << 26  # longer texts go into files of their own, which are read in pieces
BATCH_BYTES = 1 << 24  # of Parquet rows that are read at once
BATCH_ROWS = 1024  # and how many rows at most


class Document:
    """A document in memory."""

    __slots__ = ("_content", "_digest", "data", "text")

    def __init__(self, text: str):
        self.text, self.data = text, to_bytes(text)
        self._digest = self._content = b""

    def __len__(self) -> int:
        return len(self.data)

    def blocks(self) -> Iterator[bytes]:
        yield self.data

    def section(self, start: int, end: int) -> "Document":
        return Document(self.data[start:end].decode(errors="surrogatepass"))

    def read(self) -> Iterator[str]:
        """The text; a long one in pieces, cut where the tokenizers would have cut anyway."""
        at = 0
        while len(self.text) - at > PIECE:
            cut = last_cut(self.text[at : at + PIECE], PIECE // 4) or MAX_PIECE
            yield self.text[at : at + cut]
            at += cut
        if at < len(self.text):
            yield self.text[at:] if at else self.text

    def digest(self) -> bytes:
        self._digest = self._digest or hashlib.sha256(self.data).digest()[:DIGEST]
        return self._digest

    def content(self) -> bytes:
        self._content = self._content or hashlib.sha256(normal_form(self.data)).digest()[:DIGEST]
        return self._content


class Unit(Protocol):
    """A file of documents, or a shard of a stream, that can be opened without those before it."""

    name: str

    @property
    def size(self) -> float: ...  # on disk

    @property
    def text_digest(self) -> str | None:
        """SHA-256 of its text; None: it looks itself whether it is what was opened."""
        ...

    def documents(self) -> Iterator[Part]: ...

    def total(self, read: int, count: int) -> float:
        """About how many bytes of text there are, after `read` bytes in `count` documents."""
        ...


class TextFile:
    """A document that is a file."""

    def __init__(self, path: Path, name: str, facts: TextFacts):
        self.name, self.size, self.text_digest = name, path.stat().st_size, facts.text_digest
        self.span = Span(name, facts.place, facts.start, facts.size, facts.content)

    def documents(self) -> Iterator[Part]:
        yield self.span

    def total(self, read: int, count: int) -> float:
        return len(self.span)


class RecordFile:
    """A file of records, and the digest of the file that was opened: read to its end, it must be the same."""

    text_digest = None

    def __init__(
        self,
        path: Path,
        name: str,
        field: str,
        digest: str | None = None,
        newlines: Newlines = "normalise",
    ):
        self.path, self.name, self.field, self.size = path, name, field, path.stat().st_size
        self.file_digest = digest
        self.newlines: Newlines = newlines


class JsonLines(RecordFile):
    """An object per line."""

    def documents(self) -> Iterator[Part]:
        hasher = hashlib.sha256()
        with open_packed(self.path, hasher) as self.file:
            number = 0
            while line := self.file.readline(MAX_RECORD_BYTES + 1):
                number += 1
                if len(line) > MAX_RECORD_BYTES:
                    raise record_too_large(f"{self.name}, line {number}")
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                if line.isspace() or not line:
                    continue
                where = f"{self.name}, line {number}"
                text = text_of(self._parse(line, number), self.field, where, self.newlines)
                if text:
                    yield Document(text)
        if self.file_digest not in (None, hasher.hexdigest()):
            raise SourceChangedError(self.name)

    def _parse(self, line: bytes, number: int) -> Any:
        try:
            return json.loads(line.decode())
        except UnicodeDecodeError:
            problem = "it is not UTF-8"
        except json.JSONDecodeError as error:
            problem = f"{error.msg} (character {error.pos + 1})"
        except (ValueError, RecursionError):
            problem = "it holds a number too long, or is nested too deeply"
        raise DataError(
            f"{self.name}, line {number} is not JSON: {problem}. Expected an object on each line."
        )

    def total(self, read: int, count: int) -> float:
        return read * self.size / max(1, bytes_read(self.file))


class Parquet(RecordFile):
    """A row per document. Only the column of the text is read."""

    def documents(self) -> Iterator[Part]:
        before = file_identity(self.path)
        yield from self._rows()
        # It is not read from its beginning to its end, so that nothing can be hashed on the way.
        same = self.file_digest in (None, digest(self.path)) and file_identity(self.path) == before
        if not same:
            raise SourceChangedError(self.name)

    def _rows(self) -> Iterator[Part]:
        arrow, parquet = require_package("pyarrow", self.name), require_package("pyarrow.parquet", self.name)
        row = unpacked = 0
        try:
            schema = parquet.read_schema(self.path)
            if self.field not in schema.names:
                raise missing_field(self.name, self.field, {f.name: str(f.type) for f in schema})
            # Equal values stay one, so that a small file cannot fill the memory.
            dictionary_columns = [self.field] if arrow.types.is_string(schema.field(self.field).type) else []
            with parquet.ParquetFile(self.path, pre_buffer=False, read_dictionary=dictionary_columns) as file:
                self.rows = file.metadata.num_rows
                groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
                size = sum(group.total_byte_size for group in groups)
                batch_rows = max(1, min(BATCH_ROWS, BATCH_BYTES * self.rows // max(1, size)))
                if size > RATIO_FLOOR and size > MAX_RATIO * self.size:
                    raise self._too_dense()
                for batch in file.iter_batches(batch_rows, columns=[self.field], use_threads=False):
                    for value in batch.column(0):
                        row += 1
                        where = f"{self.name}, row {row}"
                        text = text_of({self.field: value.as_py()}, self.field, where, self.newlines)
                        # What the file says of itself is not to be relied on: a value that is stored once
                        # may stand for any number of rows.
                        unpacked += len(text)
                        if unpacked > RATIO_FLOOR and unpacked > MAX_RATIO * self.size:
                            raise self._too_dense()
                        if len(text) > MAX_RECORD_BYTES:
                            raise record_too_large(where)
                        if text:
                            yield Document(text)
        except UnicodeDecodeError:
            raise DataError(f"{self.name}, row {row} is not UTF-8 text.") from None
        except (arrow.ArrowException, OSError) as error:
            after = f" after row {row}" if row else ""
            raise DataError(f"{self.name} is no Parquet file, or damaged{after}: {error}") from None

    def _too_dense(self) -> DataError:
        return DataError(
            f"{self.name} unpacks to more than {MAX_RATIO} times its size, which no text does. "
            "If it is meant so, write it without compression and dictionary first."
        )

    def total(self, read: int, count: int) -> float:
        return read * self.rows / max(1, count)


def kind_of(path: Path) -> type[JsonLines] | type[Parquet] | None:
    """What reads a file as records; None: it is a text."""
    name = path.name.lower()
    if name.endswith(".parquet"):
        return Parquet
    endings = [f"{inner}{packed}" for inner in (".jsonl", ".ndjson") for packed in ("", *PACKED_SUFFIXES)]
    endings += [f".json{packed}" for packed in PACKED_SUFFIXES]
    return JsonLines if name.endswith(tuple(endings)) else None


def text_of(row: Any, field: str, where: str, newlines: Newlines = "normalise") -> str:
    """The text of a record, or a message that says what there is instead."""
    if not isinstance(row, dict):
        raise DataError(f"{where}: expected a JSON object, found {_type_name(row)}.")
    text = row.get(field)
    if not isinstance(text, str):
        raise missing_field(where, field, {str(name): _type_name(value) for name, value in row.items()})
    return unified(text, newlines)


def missing_field(where: str, field: str, fields: dict[str, str]) -> DataError:
    """The field of the text is not there, or is no text."""
    problem = f"is {fields[field]}, not text" if field in fields else "is not there"
    names = ", ".join(f"{name} ({kind})" for name, kind in list(fields.items())[:12]) or "none"
    return DataError(
        f"{where}: the field '{field}' {problem}. Its fields: {names}. "
        "Say which one holds the text: --set data.field=NAME"
    )


def record_too_large(where: str) -> DataError:
    return DataError(
        f"{where}: one document of more than {MAX_RECORD_BYTES >> 20} MiB. Put a text of that length into a "
        ".txt file of its own, which is read in pieces."
    )


def _type_name(value: Any) -> str:
    names = {str: "text", bool: "boolean", int: "number", float: "number", list: "list", dict: "object"}
    return names.get(type(value), "null" if value is None else type(value).__name__)
