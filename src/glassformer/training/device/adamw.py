"""AdamW for a step that stays on the device: clipping and update in one pass over memory, in one launch for
each group of parameters. Twin of `FusedAdamW` in ../adamw.py, with the same state.

The weights lie in one vector like the gradients, and so do both moments: each parameter becomes a view.
Where the step is broken (1, else 0) nothing moves.
"""

from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from glassformer.training.device.gradients import FlatGradients

COUNT, FIRST, SECOND = "step", "exp_avg", "exp_avg_sq"


class DeviceAdamW(Optimizer):
    def __init__(
        self, plain: AdamW, gradients: FlatGradients, shrink: Tensor, broken: Tensor, operations: ModuleType
    ):
        """`shrink`: what clipping makes of the gradients, set before each step."""
        super().__init__(plain.param_groups, {})
        self.own: list[nn.Parameter] = [p for group in self.param_groups for p in group["params"]]
        self.shrink, self.broken, self.operations = shrink, broken, operations
        span = gradients.span(self.own)
        self.gradient = gradients.vector[span]
        self.weights, self.first, self.second = (torch.zeros_like(self.gradient) for _ in range(3))
        self.places = {p: _before(gradients.places[p], span.start) for p in self.own}
        self.spans = [_before(gradients.span(group["params"]), span.start) for group in self.param_groups]
        self.counts = torch.zeros(len(self.own), device=shrink.device)
        self.betas = torch.tensor(self.param_groups[0]["betas"], dtype=torch.float64, device=shrink.device)
        for p in self.own:
            view = self._view(self.weights, p)
            view.copy_(p.detach())
            p.data = view
        self.adopt()

    def _view(self, vector: Tensor, p: nn.Parameter) -> Tensor:
        return vector[self.places[p]].view(p.shape)

    def adopt(self) -> None:
        """Take up counts and moments that were put into the state from outside, as from a checkpoint."""
        for i, p in enumerate(self.own):
            views = {COUNT: self.counts[i]} | {
                name: self._view(vector, p) for name, vector in ((FIRST, self.first), (SECOND, self.second))
            }
            for name, view in views.items():
                found = self.state[p].get(name)
                if found is None:
                    view.zero_()
                elif found.data_ptr() != view.data_ptr():
                    view.copy_(found)
                self.state[p][name] = view

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.counts += 1 - self.broken
        corrections = (1 - self.betas ** self.counts.amax()).float()
        for group, span in zip(self.param_groups, self.spans, strict=True):
            tensors = (v[span] for v in (self.weights, self.gradient, self.first, self.second))
            how = group["betas"], group["eps"], group["weight_decay"]
            self.operations.adamw(*tensors, group["lr"], *how, corrections, self.shrink, self.broken)


def _before(place: slice, start: int) -> slice:
    return slice(place.start - start, place.stop - start)
