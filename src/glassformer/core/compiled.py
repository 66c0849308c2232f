"""Loops that numba compiles: whether this machine has them already, which takes seconds if it has not."""

import hashlib
import os
import sys
from contextlib import suppress
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

from glassformer.core.errors import GlassformerError
from glassformer.core.files import cache_dir, write_atomically


class CompiledFolder:
    """A folder of such loops, and those it takes from. A file in the cache says that these very versions were
    compiled here."""

    def __init__(self, *folders: Path):
        self.folders = folders

    def was_compiled(self) -> None:
        """Remember it, where that can be."""
        with suppress(OSError, GlassformerError):
            write_atomically(self._marker, b"")

    @property
    def is_compiled(self) -> bool:
        with suppress(OSError, GlassformerError):
            return self._marker.exists()
        return False

    @cached_property
    def _marker(self) -> Path:
        machine = os.uname() if hasattr(os, "uname") else ""
        hasher = hashlib.sha256(f"{sys.version} {version('numba')} {machine}".encode())
        for path in sorted(path for folder in self.folders for path in folder.glob("*.py")):
            hasher.update(str(path).encode() + path.read_bytes())
        return cache_dir("compiled") / hasher.hexdigest()[:32]
