"""Where gradients of weights and norms go: each into the place that its parameter has for it (`grad`).

Of what an earlier step left in a place nothing is wanted, so the first product of a step is written over it,
which spares setting it to zero and reading it; those of further passes are added.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from glassformer.models.gpu.aside import Aside
from glassformer.models.products import add_wide_product, wide_product, write_wide_product


class Slots:
    def __init__(self, weights: Sequence[Tensor], device: torch.device):
        self.weights = list(weights)
        self.aside = Aside(device) if device.type == "cuda" else None
        self._stale: set[int] = set()

    def begin_pass(self) -> None:
        if self.aside is not None:
            self.aside.begin()

    def begin_step(self) -> frozenset[int]:
        """What the places hold counts for nothing from here on. Whose places these are: ids of weights."""
        self._stale = {id(w) for w in self.weights if w.requires_grad and w.grad is not None}
        return frozenset(self._stale)

    @property
    def are_written(self) -> bool:
        """Whether every place holds something of this step."""
        return not self._stale

    def put(self, weight: Tensor, dy: Tensor, x: Tensor) -> Tensor | None:
        """The gradient dyᵀ x of x Wᵀ by W: into its place, beside the pass where it can; or returned."""
        if weight.grad is None:
            return wide_product(dy.t(), x)
        write = write_wide_product if self._is_first(weight) else add_wide_product
        self._do(partial(write, weight.grad, dy.t(), x), dy, x)
        return None

    def put_sum(self, weight: Tensor, rows: Tensor) -> Tensor | None:
        """The same of a gradient that is the sum of rows."""
        if weight.grad is None:
            return rows.sum(dim=0)
        write = _write_sum if self._is_first(weight) else _add_sum
        self._do(partial(write, weight.grad, rows), rows)
        return None

    def _is_first(self, weight: Tensor) -> bool:
        first = id(weight) in self._stale
        self._stale.discard(id(weight))
        return first

    def _do(self, work: Callable[[], None], *read: Tensor) -> None:
        if self.aside is None:
            work()
        else:
            self.aside.run(work, *read)


def _write_sum(place: Tensor, rows: Tensor) -> None:
    torch.sum(rows, dim=0, out=place)


def _add_sum(place: Tensor, rows: Tensor) -> None:
    place.add_(rows.sum(dim=0))
