"""All gradients side by side in one vector, so that what concerns all of them is one operation."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class FlatGradients:
    """The `grad` of each parameter is a view of `vector`; autograd adds to it."""

    def __init__(self, parameters: Sequence[nn.Parameter]):
        self.parameters = list(parameters)
        first = self.parameters[0]
        self.vector = torch.zeros(
            sum(p.numel() for p in self.parameters), dtype=torch.float32, device=first.device
        )
        self.places: dict[nn.Parameter, slice] = {}
        end = 0
        for p in self.parameters:
            self.places[p] = slice(end, end := end + p.numel())
        self.attach()

    def attach(self) -> None:
        for p in self.parameters:
            p.grad = self.of(p)

    def of(self, p: nn.Parameter) -> Tensor:
        return self.vector[self.places[p]].view(p.shape)

    def of_all(self, parameters: Sequence[nn.Parameter]) -> Tensor:
        """The part of some parameters that stand in a row."""
        start, end = self.places[parameters[0]].start, self.places[parameters[-1]].stop
        assert end - start == sum(p.numel() for p in parameters)
        return self.vector[start:end]
