"""When training breaks: find the first tensor that went wrong and say so in words."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from glassformer.objectives.objective import Batch, Objective

HUGE = 1e18  # whose square is about the largest float32


@dataclass
class FirstBad:
    """A tap that remembers the first site with a value that is no number, and the largest before it."""

    site: str | None = None
    largest: dict[str, float] = field(default_factory=dict)

    def __call__(self, site: str, x: Tensor) -> Tensor:
        if self.site is None:
            if torch.isfinite(x).all():
                self.largest[site] = x.detach().abs().max().item()
            else:
                self.site = site
        return x


def explain(
    model: nn.Module,
    objective: Objective,
    batches: list[Batch],
    loss: float,
    norm: float,
    seed: Callable[[int], None],
) -> str:
    """The first bad tensor of this step: a weight, a value of the forward pass, or a gradient.

    The forward pass is run again as it was; `seed` sets the generator for a micro-batch.
    """
    for name, p in model.named_parameters():
        if not torch.isfinite(p).all():
            return f"the weight {name} holds NaN or Inf"
    for number, batch in enumerate(batches):
        tap = FirstBad()
        seed(number)
        with torch.no_grad():
            objective.loss(model, batch, tap=tap)
        if tap.site is not None:
            site, value = max(tap.largest.items(), key=lambda item: item[1], default=("embed", 0.0))
            where = f" of micro-batch {number}" if len(batches) > 1 else ""
            return (
                f"the first bad tensor is {tap.site}{where} in the forward pass "
                f"(the largest value before it: {value:.3g} at {site})"
            )
    bad = [n for n, p in model.named_parameters() if p.grad is not None and not torch.isfinite(p.grad).all()]
    if bad:  # the backward pass runs from the top down, so the last parameter went bad first
        return f"the forward pass is sound; the gradient explodes, first at {bad[-1]}"
    largest = max(
        ((float(p.grad.abs().max()), n) for n, p in model.named_parameters() if p.grad is not None),
        default=(0.0, ""),
    )
    if largest[0] > HUGE:
        return f"the gradient explodes: {largest[0]:.3g} at {largest[1]}, too large to be squared and summed"
    return f"every tensor is finite, but the loss is {loss} and the gradient norm {norm}"
