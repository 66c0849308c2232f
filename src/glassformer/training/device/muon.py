"""Muon for a step that stays on the device: twin of `Muon` in ../optim.py.

Momenta lie in one vector like the gradients; the learning rate is a tensor; and where the step is broken (1,
else 0) neither a momentum nor a weight moves.
"""

from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from glassformer.training.device.gradients import FlatGradients
from glassformer.training.optim import Muon, orthogonalise

MOMENTUM = "momentum"


class DeviceMuon(Optimizer):
    def __init__(
        self, plain: Muon, gradients: FlatGradients, shrink: Tensor, broken: Tensor, operations: ModuleType
    ):
        """`shrink`: what clipping makes of the gradients, set before each step."""
        (group,) = plain.param_groups
        super().__init__([group], {})
        self.own: list[nn.Parameter] = group["params"]
        self.shrink, self.broken, self.operations = shrink, broken, operations
        span = gradients.span(self.own)
        self.gradient = gradients.vector[span]
        self.momentum = torch.zeros_like(self.gradient)
        self.places: dict[nn.Parameter, slice] = {}
        self.stacks: dict[tuple[int, int], list[tuple[Tensor, slice]]] = {}  # matrices of a shape, and where
        for p in self.own:
            start = end = gradients.places[p].start - span.start
            columns, row = p.shape[1], 0
            for rows in plain.parts.get(p, (p.shape[0],)):
                place = slice(end, end := end + rows * columns)
                self.stacks.setdefault((rows, columns), []).append((p.detach()[row : row + rows], place))
                row += rows
            self.places[p] = slice(start, end)
        self.adopt()

    def adopt(self) -> None:
        """Take up momenta that were put into the state from outside, as when a checkpoint is read."""
        for p in self.own:
            view = self.momentum[self.places[p]].view(p.shape)
            found = self.state[p].get(MOMENTUM)
            if found is None:
                view.zero_()
            elif found.data_ptr() != view.data_ptr():
                view.copy_(found)
            self.state[p][MOMENTUM] = view

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        (group,) = self.param_groups
        lr, momentum, moving = group["lr"], group["momentum"], 1 - self.broken
        self.operations.tame(self.gradient, self.shrink, self.broken)
        self.momentum.lerp_(self.gradient, (1 - momentum) * moving)
        update = self.gradient.lerp(self.momentum, momentum)
        for (height, columns), entries in self.stacks.items():
            weights = [weight for weight, _ in entries]
            stack = torch.stack([update[place].view(height, columns) for _, place in entries])
            size = max(1.0, height / columns) ** 0.5
            moves = torch.where(self.broken > 0, 0.0, orthogonalise(stack) * (-lr * size))
            if group["weight_decay"]:
                shrink = 1 - lr * group["weight_decay"] * moving
                torch._foreach_mul_(weights, shrink)  # type: ignore[attr-defined]
            torch._foreach_add_(weights, list(moves.unbind()))  # type: ignore[attr-defined]
