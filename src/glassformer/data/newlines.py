"""Line ends as the model sees them: \\n, whether a file came from Windows (\\r\\n) or an old Mac (\\r).

A tokenizer would learn each end of line twice, and a text that is asked to stop at an empty line never would.
`data.newlines` has the choice: `normalise`, or `keep` what the source has, as runs did that were made before.
"""

import io
from collections.abc import Iterator
from typing import Any, BinaryIO, Literal

Newlines = Literal["normalise", "keep"]  # what data.newlines can be
PIECE = 1 << 20  # bytes read at a time


def unified(text: str, newlines: Newlines = "normalise") -> str:
    """A text with its line ends as the setting says."""
    if newlines == "keep" or "\r" not in text:
        return text
    return text.replace("\r\n", "\n").replace("\r", "\n")


class Unifier:
    """The same for bytes that come in blocks: a line end may lie across the border of two."""

    def __init__(self) -> None:
        self.found = False  # whether there was anything to change
        self._waiting = False  # a \r at the end of the last block, which is not handed over yet

    def feed(self, block: bytes) -> bytes:
        if self._waiting:
            block, self._waiting = b"\r" + block, False
        if b"\r" not in block:
            return block
        self.found = True
        if block.endswith(b"\r"):
            block, self._waiting = block[:-1], True
        return block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def end(self) -> bytes:
        """What was waited with."""
        waiting, self._waiting = self._waiting, False
        return b"\n" if waiting else b""


def unified_blocks(file: BinaryIO, unifier: Unifier) -> Iterator[bytes]:
    """All of a file in blocks, none of them empty."""
    while raw := file.read(PIECE):
        if block := unifier.feed(raw):
            yield block
    if block := unifier.end():
        yield block


class UnifiedStream(io.RawIOBase):
    """A file as a stream of bytes whose line ends are \\n."""

    def __init__(self, file: BinaryIO):
        self.file = file
        self._blocks = unified_blocks(file, Unifier())
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            self._left = memoryview(next(self._blocks, b""))
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count

    def close(self) -> None:
        self.file.close()
        super().close()
