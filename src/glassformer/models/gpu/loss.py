"""Cross-entropy and its gradient by an own kernel, in one pass over memory and in place.

Twin of `with_gradient` in objectives/loss.py, where it is called; asked for by the fused pass (twin.py).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
from torch import Tensor

from glassformer.core.triton_kernels import missing
from glassformer.models.gpu.narrow import SHARE_UNIT, TYPE, Narrow, Pair, product

ROW = 64  # scores that a row is a multiple of, so that it begins where wide reads can
SCORES_AT_ONCE = 7 << 27
ROWS = 256  # that a tile of a product has

_wanted: ContextVar[bool] = ContextVar("own entropy", default=False)
_narrow: ContextVar["NarrowHead | None"] = ContextVar("the head in 8 bits", default=None)


@contextmanager
def own_entropy(narrow: "NarrowHead | None" = None) -> Iterator[None]:
    """Inside, the loss takes the kernel where there is one, and the head's products in 8 bits, if given."""
    before = _wanted.set(True), _narrow.set(narrow)
    try:
        yield
    finally:
        _wanted.reset(before[0])
        _narrow.reset(before[1])


def fits(x: Tensor, dtype: torch.dtype) -> bool:
    """Whether scores of the vectors x, in this type, are for the kernel."""
    return _wanted.get() and dtype in (torch.float32, torch.bfloat16) and missing(x.device) is None


def rows_at_once(n: int, entries: int) -> int:
    """How many of n rows are scored together: parts of one size, since a small last one would leave most of
    a GPU without work for as long as a large one takes."""
    parts = -(-n // max(ROWS, SCORES_AT_ONCE // entries))
    rows = -(-n // parts)
    return rows + -rows % ROWS


def padding(entries: int) -> int:
    """How many entries a vocabulary lacks of a multiple of `ROW`."""
    return -entries % ROW


class NarrowHead(NamedTuple):
    """What the head multiplies, and its weight for both ways, in 8 bits."""

    pair: Pair
    turned: Narrow  # (C, V')


class Head:
    """The head's products: rows of h (n, C) by w (V', C), and scores' gradients back."""

    def __init__(self, h: Tensor, w: Tensor):
        self.h, self.w, self.narrow = h, w, _narrow.get()

    def scores(self, rows: slice) -> Tensor:
        if self.narrow is None:
            return self.h[rows] @ self.w.t()
        (numbers, unit), weight = self.narrow.pair
        return product((Narrow(numbers[rows], unit), weight), None, self.h.dtype)[:, : len(self.w)]

    def by_kernel(
        self, scores: Tensor, targets: Tensor, entries: int, smoothing: float, into: Tensor
    ) -> Tensor:
        """Each row's loss (n), in float32; the scores (n, ≥ entries) become the gradient of it, and `into`
        that of the rows.
        """
        from glassformer.models.gpu import launch

        narrow = None if self.narrow is None else torch.empty_like(scores, dtype=TYPE)
        losses = launch.into_gradient(scores, targets, entries, smoothing, narrow)
        if self.narrow is None or narrow is None:
            torch.mm(scores, self.w, out=into)
        else:
            unit = torch.full((), SHARE_UNIT, device=scores.device)
            shared = product((Narrow(narrow, unit), self.narrow.turned), None, into.dtype)
            own = self.w.index_select(0, targets.clamp(min=0))
            scored = (targets >= 0).to(into.dtype)[:, None]
            torch.addcmul(shared, own, scored, value=smoothing - 1, out=into)
            if smoothing:
                into.addcmul_(self.w[:entries].sum(0), scored, value=-smoothing / entries)
        return losses
