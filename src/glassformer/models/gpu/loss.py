"""Cross-entropy and its gradient by an own kernel, in one pass over memory and in place.

Twin of `with_gradient` in objectives/loss.py, where it is called; asked for by the fused pass (twin.py).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from glassformer.core.triton_kernels import missing
from glassformer.models.gpu.narrow import Narrow, Pair, product

ROW = 64  # scores that a row is a multiple of, so that it begins where wide reads can

_wanted: ContextVar[bool] = ContextVar("own entropy", default=False)
_narrow: ContextVar[Pair | None] = ContextVar("the head's product in 8 bits", default=None)


@contextmanager
def own_entropy(narrow: Pair | None = None) -> Iterator[None]:
    """Inside, the loss takes the kernel where there is one; scores are made of a pair in 8 bits, if given."""
    before = _wanted.set(True), _narrow.set(narrow)
    try:
        yield
    finally:
        _wanted.reset(before[0])
        _narrow.reset(before[1])


def scores_of(h: Tensor, w: Tensor, chosen: slice) -> Tensor:
    """Scores of some rows of h (n, C) by w (V, C)."""
    pair = _narrow.get()
    if pair is None:
        return h[chosen] @ w.t()
    (numbers, unit), weight = pair
    scores = product((Narrow(numbers[chosen], unit), weight), None, h.dtype)
    return scores[:, : len(w)]


def fits(x: Tensor, dtype: torch.dtype) -> bool:
    """Whether scores of the vectors x, in this type, are for the kernel."""
    return _wanted.get() and dtype in (torch.float32, torch.bfloat16) and missing(x.device) is None


def padding(entries: int) -> int:
    """How many entries a vocabulary lacks of a multiple of `ROW`."""
    return -entries % ROW


def into_gradient(scores: Tensor, targets: Tensor, entries: int, smoothing: float) -> Tensor:
    """Each row's loss (n), in float32; the scores (n, ≥ entries) become the gradient of it."""
    from glassformer.models.gpu import launch

    return launch.into_gradient(scores, targets, entries, smoothing)
