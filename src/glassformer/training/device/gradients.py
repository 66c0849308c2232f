"""All gradients side by side in one vector, so that what concerns all of them is one operation."""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor, nn

ALIGNED = 128  # numbers that a place begins at a multiple of, so that reads of any width can begin there


class FlatGradients:
    """The `grad` of each parameter is a view of `vector`; autograd adds to it. Between places are zeros."""

    def __init__(self, parameters: Sequence[nn.Parameter]):
        self.parameters = list(parameters)
        self.places: dict[nn.Parameter, slice] = {}
        end = 0
        for p in self.parameters:
            self.places[p] = slice(end, end + p.numel())
            end += p.numel() + -p.numel() % ALIGNED
        self.vector = torch.zeros(end, dtype=torch.float32, device=self.parameters[0].device)
        self.attach()

    def attach(self) -> None:
        for p in self.parameters:
            p.grad = self.of(p)

    def of(self, p: nn.Parameter) -> Tensor:
        return self.vector[self.places[p]].view(p.shape)

    def span(self, parameters: Sequence[nn.Parameter]) -> slice:
        """From the first to the last of some parameters that stand in a row."""
        first, last = self.places[parameters[0]], self.places[parameters[-1]]
        return slice(first.start, last.stop)

    def zero(self, spared: Collection[int] = ()) -> None:
        """All of them but the `spared` ones, of tensors with these ids."""
        if not spared:
            self.vector.zero_()
            return
        if others := [self.of(p) for p in self.parameters if id(p) not in spared]:
            torch._foreach_zero_(others)  # type: ignore[attr-defined]
