"""Where the gradients of a pass's weights go: each into the place that its weight has for it (`grad`).

Of what an earlier step left in a place nothing is wanted, so the first product of a step is written over it,
which spares setting it to zero and reading it; those of further passes are added.
"""

from collections.abc import Sequence
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
        write = write_wide_product if id(weight) in self._stale else add_wide_product
        self._stale.discard(id(weight))
        work = partial(write, weight.grad, dy.t(), x)
        if self.aside is None:
            work()
        else:
            self.aside.run(work, dy, x)
        return None
