"""Which documents were met before: 16 bytes of each one's hash, in a table that is at least half full."""

from pathlib import Path

import numpy as np

from glassformer.core.files import open_regular
from glassformer.data.text_files import DIGEST

MAX_LOAD = 3 / 4  # of the table, before it grows
GROWTH = 3 / 2
CHUNK = 1 << 20  # digests read at once


class DigestSet:
    """A set of digests: 21 to 32 bytes for each, half as much again for the moment in which it grows."""

    def __init__(self) -> None:
        from glassformer.tokenizers.fast.kernels.hash_set import add_keys  # compiled: loaded when needed

        self._add_keys = add_keys
        self._table = np.zeros((1 << 10, 2), np.uint64)
        self.count = 0

    def __len__(self) -> int:
        return self.count

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return self._table.nbytes

    def add(self, digest: bytes) -> bool:
        """Whether it is new."""
        before = self.count
        self._add(np.frombuffer(digest, np.uint64).reshape(1, 2))
        return self.count > before

    def load(self, path: Path) -> None:
        """Add all digests of a file."""
        with open_regular(path) as file:
            while block := file.read(CHUNK * DIGEST):
                self._add(np.frombuffer(block, np.uint64).reshape(-1, 2))

    def _add(self, keys: np.ndarray) -> None:
        total = self.count + len(keys)
        if total > MAX_LOAD * len(self._table):
            size = len(self._table)
            while total > MAX_LOAD * size:
                size = int(size * GROWTH)
            old, self._table = self._table, np.zeros((size, 2), np.uint64)
            self._add_keys(self._table, old)
        self.count += self._add_keys(self._table, keys)
