"""Two whys, as numbers: why scores are divided by √D, and why a transformer needs positions.

Queries and keys with entries of mean 0 and variance 1 have a product q·k of variance D (of σ_q² σ_k² D in
general): the wider the heads, the larger the scores. A softmax of large scores puts all weight on one key,
and its gradient, A ⊙ (1 − A), vanishes. Divided by √D the scores keep variance 1 at every width.

Letters: N samples, S keys, D head width, T positions.
"""

from dataclasses import dataclass
from math import log, sqrt

import torch
from torch import Tensor, nn

from glassformer.core.errors import UsageError


@dataclass
class Scale:
    """The scores of one head width, with and without the scale."""

    width: int
    scaled: bool
    variance: float  # of the scores
    largest: float  # weight of a row, mean: 1 is saturated, 1/S is even
    entropy: float  # of a row, as a share of log S
    gradient: float  # mean |∂A/∂score|: what is left to learn from


def scale_effect(widths: tuple[int, ...] = (16, 64, 256, 1024), S: int = 64, N: int = 512) -> list[Scale]:
    generator = torch.Generator().manual_seed(0)
    rows: list[Scale] = []
    for D in widths:
        q, k = torch.randn(N, D, generator=generator), torch.randn(S, D, generator=generator)
        for scaled in (False, True):
            scores = q @ k.T / (sqrt(D) if scaled else 1.0)
            A = scores.softmax(dim=-1)
            entropy = -(A * A.clamp_min(1e-30).log()).sum(dim=-1).mean() / log(S)
            slope = (A * (1 - A)).mean()
            largest = A.max(dim=-1).values.mean()
            rows.append(Scale(D, scaled, float(scores.var()), float(largest), float(entropy), float(slope)))
    return rows


@dataclass
class Equivariance:
    """How far f(x permuted) is from f(x) permuted, as a share of f(x)."""

    gap: float
    holds: bool


@torch.no_grad()
def equivariance(model: nn.Module, inputs: Tensor, order: Tensor | None = None) -> Equivariance:
    """Whether a model that answers at every position treats its input as a set."""
    T = inputs.shape[1]
    order = torch.randperm(T, generator=torch.Generator().manual_seed(0)) if order is None else order
    if sorted(order.tolist()) != list(range(T)):
        raise UsageError(f"a permutation of {T} positions names each of them once")
    order = order.to(inputs.device)
    outputs = model(inputs)
    if outputs.ndim != 3:
        raise UsageError("this model answers once for the whole text; equivariance is about positions")
    permuted_outputs = model(inputs[:, order])
    gap = float((permuted_outputs - outputs[:, order]).norm() / outputs.norm())
    return Equivariance(gap, gap < 1e-5)
