"""Whether training goes by the compiled loops just now. It says so around its steps; nobody else does."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_wanted: ContextVar[bool] = ContextVar("compiled loops", default=False)


@contextmanager
def compiled_loops(wanted: bool) -> Iterator[None]:
    """Inside, attention and loss take their compiled twins where these fit, if that is wanted."""
    before = _wanted.set(wanted)
    try:
        yield
    finally:
        _wanted.reset(before)


def are_wanted() -> bool:
    return _wanted.get()
