"""Large files checked block by block: each before its first use, so that opening one costs nothing.

digests = block_digest(block)                 when it is written: 16 bytes for every 64 KiB
blocks = CheckedBlocks(data, digests)         when it is opened: nothing is read yet
blocks.find_damage(start, end)                before these bytes are used
"""

import hashlib

import numpy as np

BLOCK = 1 << 16  # bytes that are hashed together
DIGEST = 16  # bytes of the hash of each


def block_digest(block: bytes | memoryview) -> bytes:
    return hashlib.sha256(block).digest()[:DIGEST]


def block_count(size: int) -> int:
    return -(-size // BLOCK)


class CheckedBlocks:
    """The bytes of a file, as an array that may be mapped, and which of its blocks were found whole."""

    def __init__(self, data: np.ndarray, digests: bytes):
        self.data, self.digests = data, digests
        self._unchecked = bytearray(b"\1") * block_count(len(data))

    def find_damage(self, start: int, end: int) -> int | None:
        """The first block of these bytes that is not what was written; None if all are."""
        last = block_count(end)
        at = self._unchecked.find(1, start // BLOCK, last)
        while at >= 0:
            digest = block_digest(self.data[at * BLOCK : (at + 1) * BLOCK].data)
            if digest != self.digests[at * DIGEST : (at + 1) * DIGEST]:
                return at
            self._unchecked[at] = 0
            at = self._unchecked.find(1, at + 1, last)
        return None
