"""Whether to go by the compiled loops just now: training says so around its steps."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import torch

from glassformer.core.waiting import has_gnu_openmp

_wanted: ContextVar[bool] = ContextVar("own loops", default=False)


@contextmanager
def own_loops(wanted: bool) -> Iterator[None]:
    """Inside, attention and loss take their compiled twins where these fit, if that is wanted."""
    before = _wanted.set(wanted)
    try:
        yield
    finally:
        _wanted.reset(before)


def are_wanted() -> bool:
    return _wanted.get()


def have_threads() -> bool:
    """Whether the loops run on as many threads as PyTorch's operators (core/lanes/together.py)."""
    return torch.get_num_threads() == 1 or has_gnu_openmp()


@cache
def are_there() -> bool:
    """Whether they can be loaded, or compiled; if not, that is said once."""
    try:
        from glassformer.models.fast import attention, causal, entropy, loss, tiles
    except (RuntimeError, OSError, ImportError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        warnings.warn(
            f"Training goes without compiled loops, slower: {reason} (numba keeps compiled code beside its "
            "source, or in NUMBA_CACHE_DIR)",
            stacklevel=2,
        )
        return False
    same = (attention.ROWS, attention.COLUMNS) == (tiles.ROWS, tiles.COLUMNS)
    assert same and loss.LANES == entropy.WIDTH and causal.BITS + 1 == attention.HASHES
    return True
