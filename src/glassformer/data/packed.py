"""Files as streams of bytes; what is packed, such as .txt.gz and .jsonl.zst, is unpacked on the way.

Nothing is unpacked whole: memory holds one block. A file that ends in the middle is refused, and so is one
that unpacks to hundreds of times its size, which is no text but a trap.
"""

import importlib
import io
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, cast

from glassformer.core.errors import DataError, UsageError
from glassformer.data.newlines import PIECE, UnifiedStream

PACKED_SUFFIXES = (".gz", ".zst")
INNER_SUFFIXES = (".txt", ".json", ".jsonl", ".ndjson", ".vec")  # what may be packed
MAX_RATIO = 500  # times its own size that a file may unpack to
RATIO_FLOOR = 1 << 26  # bytes of unpacked text that are harmless whatever the ratio
BLOCK = 1 << 18  # bytes unpacked ahead
_CHUNK_BYTES = {".gz": 1 << 16, ".zst": 1 << 12}  # bytes handed over; what .zst makes of them has no bound


def is_packed(path: Path) -> bool:
    return path.suffix.lower() in PACKED_SUFFIXES and Path(path.stem).suffix.lower() in INNER_SUFFIXES


def open_packed(path: Path, hasher: Any = None) -> BinaryIO:
    """The file's bytes, unpacked, from the beginning; `hasher` gets those on the disk as they are read."""
    file = path.open("rb") if hasher is None else io.BufferedReader(_HashedFile(path, hasher), BLOCK)
    if is_packed(path):
        zstd = require_package("zstandard", str(path)) if path.suffix.lower() == ".zst" else None
        return cast(BinaryIO, io.BufferedReader(_UnpackingStream(path, file, zstd), BLOCK))
    return file


class StreamedText:
    """The text of a file that is packed, or whose line ends are changed, to be read in sections. One that
    begins after the last is gone on to from there: to read the file from its beginning for each would take as
    many times as long.
    """

    def __init__(self, path: Path, size: int, unifies: bool = False):
        """`size` of the text in bytes; `unifies`: its line ends are changed to \\n (newlines.py)."""
        self.path, self.size, self.unifies = path, size, unifies
        self._file: BinaryIO | None = None
        self._at = 0

    def blocks(self, start: int, end: int) -> Iterator[bytes]:
        while start < end and (block := self._read(start, min(PIECE, end - start))):
            start += len(block)
            if self._at >= self.size:  # of a folder with many such files few should be open
                self.close()
            yield block

    def _read(self, at: int, count: int) -> bytes:
        if self._file is None or self._at > at:
            self.close()
            file = open_packed(self.path)
            self._file = (
                cast(BinaryIO, io.BufferedReader(UnifiedStream(file), BLOCK)) if self.unifies else file
            )
        skip(self._file, at - self._at)
        block = self._file.read(count)
        self._at = at + len(block)
        return block

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._at = None, 0


def skip(file: BinaryIO, count: int) -> None:
    """Go on `count` bytes."""
    if file.seekable():
        file.seek(count, io.SEEK_CUR)
    while count > 0 and not file.seekable() and (block := file.read(min(count, PIECE))):
        count -= len(block)


def bytes_read(file: BinaryIO) -> int:
    """How many bytes of the file on disk have been read so far."""
    raw = getattr(file, "raw", None)
    return raw.bytes_read if isinstance(raw, _UnpackingStream) else file.tell()


def require_package(package: str, why: str) -> Any:
    """A package that only some data needs, or a message that says how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise UsageError(
            f"{why} needs the package {package.partition('.')[0]}: pip install 'glassformer[data]'"
        ) from None


class _HashedFile(io.FileIO):
    """A file whose bytes are hashed as they are read."""

    def __init__(self, path: Path, hasher: Any):
        super().__init__(path)
        self._hasher = hasher

    def readinto(self, buffer: Any, /) -> int:
        n = super().readinto(buffer)
        self._hasher.update(memoryview(buffer)[:n])
        return n


class _UnpackingStream(io.RawIOBase):
    """The unpacked bytes of a .gz or .zst file; members and frames follow one another without a seam.

    The next block is unpacked by a thread of its own while the last one is used.
    """

    def __init__(self, path: Path, file: BinaryIO, zstd: Any):
        self.path, self.file, self.zstd = path, file, zstd
        self.kind = path.suffix.lower()
        self.errors = (zlib.error, zstd.ZstdError) if zstd else zlib.error
        self.bytes_read = self.bytes_unpacked = 0
        self.plain = memoryview(b"")
        self._packed, self._read = b"", 0
        self._member: Any = None  # what unpacks the present one; None between two
        self._pool = ThreadPoolExecutor(1)
        self._ahead = self._pool.submit(self._block)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self.file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        if not self.plain:
            block, self.bytes_read = self._ahead.result()
            if not block:
                return 0
            self._ahead = self._pool.submit(self._block)
            self.plain = memoryview(block)
            self.bytes_unpacked += len(block)
            if self.bytes_unpacked > RATIO_FLOOR and self.bytes_unpacked > MAX_RATIO * self.bytes_read:
                raise DataError(
                    f"{self.path} unpacks to more than {MAX_RATIO} times its size, which no text does. "
                    "If it is meant so, unpack it first."
                )
        n = min(len(buffer), len(self.plain))
        buffer[:n], self.plain = self.plain[:n], self.plain[n:]
        return n

    def _block(self) -> tuple[bytes, int]:
        """The next bytes, none at the end; and how many bytes of the file they and those before come from."""
        parts: list[bytes] = []
        size = 0
        while size < BLOCK:
            if not self._packed:
                self._packed = self.file.read(_CHUNK_BYTES[self.kind])
                self._read += len(self._packed)
            if not self._packed:
                if self._member is not None or self._read == 0:
                    raise DataError(f"{self.path} ends in the middle: it was cut off. Get it anew.")
                break
            parts.append(self._unpack())
            size += len(parts[-1])
        return b"".join(parts), self._read

    def _unpack(self) -> bytes:
        if self._member is None:
            if self.kind == ".gz" and not self._packed.strip(b"\0"):  # gzip allows zeros after the end
                self._packed = b""
                return b""
            new = self.zstd.ZstdDecompressor().decompressobj if self.zstd else lambda: zlib.decompressobj(31)
            self._member = new()
        try:
            if self.zstd:
                data, self._packed = self._member.decompress(self._packed), b""
            else:
                data = self._member.decompress(self._packed, RATIO_FLOOR)
                self._packed = self._member.unconsumed_tail
        except self.errors as error:
            raise DataError(f"{self.path} is damaged: {self.kind[1:]} cannot unpack it ({error}).") from None
        if self._member.eof:
            self._packed, self._member = self._member.unused_data, None
        return data
