"""Byte-pair encoding at full speed: compiled loops, on all cores, over text that streams through.

    feed.py      texts in batches of about a megabyte, and the threads that take them
    learner.py   pieces counted, merges learned
    encoder.py   ids
    kernels/     the loops themselves, compiled

The answers are those of the plain Python of bpe.py, to the last id, and tests hold it to that. Small jobs
stay there: loading the compiled code takes most of a second and compiling it, once per machine, about ten.
"""

import hashlib
import os
import sys
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

from glassformer.core.errors import GlassformerError
from glassformer.core.files import cache_dir, write_atomically

# Bytes of text that are worth loading the compiled code; compiling it; and calling it when it is there.
WORTH_LOADING, WORTH_COMPILING, WORTH_CALLING = 1_500_000, 12_000_000, 4096


def worthwhile(size: int) -> bool:
    """Whether the compiled code pays for a job of so many bytes."""
    return size >= WORTH_CALLING if is_loaded() else worthwhile_to_load(size)


def worthwhile_to_load(size: int) -> bool:
    return not is_loaded() and (size >= WORTH_COMPILING or (size >= WORTH_LOADING and _is_compiled()))


def is_loaded() -> bool:
    return "glassformer.tokenizers.fast.kernels.apply" in sys.modules


def was_compiled() -> None:
    """Remember, where that can be, that this machine has the compiled code."""
    with suppress(OSError, GlassformerError):
        write_atomically(_marker(), b"")


def _is_compiled() -> bool:
    with suppress(OSError, GlassformerError):
        return _marker().exists()
    return False


@lru_cache
def _marker() -> Path:
    """A file that is there once this version was compiled on this machine."""
    machine = os.uname() if hasattr(os, "uname") else ""
    hasher = hashlib.sha256(f"{sys.version} {version('numba')} {machine}".encode())
    for path in sorted(Path(__file__).with_name("kernels").glob("*.py")):
        hasher.update(str(path).encode() + path.read_bytes())
    return cache_dir("compiled") / hasher.hexdigest()[:32]
