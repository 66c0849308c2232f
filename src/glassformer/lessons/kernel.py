"""Attention as a soft dictionary, and as a kernel whose likeness is learned.

A dictionary gives the value of the one key that equals the query. softmax(β q·k) gives a mean of all values,
weighted by likeness; as β grows it is the dictionary. With likeness −(q − k)²/2h² the same sum is kernel
regression (Nadaraya and Watson), and what attention adds is that the likeness is learned.

Letters: N entries, D width, β sharpness, h width of the kernel.
"""

from math import sqrt

import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.lessons.lesson import Curve, Lesson, Plot
from glassformer.models.attention import attend_by_formula
from glassformer.models.mask import Mask
from glassformer.runs.run import Run

N, D = 32, 16


def lookup(q: Tensor, k: Tensor, v: Tensor, beta: float) -> Tensor:
    """softmax(β q·kᵀ) v, by the project's attention, which divides by √D."""
    scaled = beta * sqrt(q.shape[-1]) * q
    return attend_by_formula(scaled[None, None], k[None, None], v[None, None], Mask())[0][0, 0]


def smooth(x: Tensor, y: Tensor, at: Tensor, h: Tensor | float) -> Tensor:
    """Kernel regression, written out: Σ K(at − x) y / Σ K(at − x) with K(d) = exp(−d²/2h²)."""
    kernel = torch.exp(-((at[:, None] - x) ** 2) / (2 * h**2))
    return (kernel @ y) / kernel.sum(-1)


def smooth_by_attention(x: Tensor, y: Tensor, at: Tensor, h: float) -> Tensor:
    """The same as attention: −(a − x)²/2h² = (a·x − x²/2)/h² but for what does not depend on x."""
    q = torch.stack([at, torch.ones_like(at)], dim=-1)
    k = torch.stack([x, -(x**2) / 2], dim=-1)
    return lookup(q, k, y[:, None], 1 / h**2)[:, 0]


def lesson(run: Run | None = None) -> Lesson:
    generator = torch.Generator().manual_seed(0)
    k = F.normalize(torch.randn(N, D, generator=generator), dim=-1)
    v = torch.randn(N, D, generator=generator)
    q = F.normalize(k + 0.1 * torch.randn(N, D, generator=generator), dim=-1)  # keys, slightly wrong
    rows, sharpness, errors = [], [1, 4, 16, 64, 256], []
    for beta in sharpness:
        weights = (beta * q @ k.T).softmax(-1)
        error = float((lookup(q, k, v, beta) - v).norm() / v.norm())
        errors.append(error)
        rows.append((f"dictionary of {N} entries, β = {beta}", float(weights.diagonal().mean()), error))
    x = torch.linspace(0, 6, 40)
    y = torch.sin(2 * x) + 0.2 * torch.randn(40, generator=generator)
    at = torch.linspace(0.1, 5.9, 60)
    same = float((smooth(x, y, at, 0.3) - smooth_by_attention(x, y, at, 0.3)).abs().max())
    h = _learn_width(x, y)
    for name, width in (("kernel regression, h = 2", 2.0), (f"the same, h learned: {h:.2f}", h)):
        error = float((smooth(x, y, at, width) - torch.sin(2 * at)).norm() / torch.sin(2 * at).norm())
        rows.append((name, None, error))
    return Lesson(
        "Is attention a dictionary, or a kernel?",
        ("what", "weight on the right entry", "error of what is found"),
        rows,
        [
            f"Both. As β grows, softmax(βq·k)v becomes the dictionary: the weight on the right one of {N} "
            "entries goes "
            f"from {rows[0][1]:.2f} to {rows[len(sharpness) - 1][1]:.2f}, although the queries are slightly "
            "wrong.",
            f"With −(q − k)²/2h² for likeness it is kernel regression, to {same:.0e}; and h can be learned "
            "by gradient "
            f"descent, as W_q and W_k are: the error falls from {rows[-2][2]:.2f} to {rows[-1][2]:.2f}.",
        ],
        Plot(
            "A soft dictionary becomes a hard one",
            "sharpness β of the softmax",
            "error of the value found, as a share of it",
            [Curve("slightly wrong queries", sharpness, errors)],
            log_x=True,
        ),
        f"{N} random keys and values of width {D}; 40 noisy points of a sine",
        {"kernel and attention differ by": same, "h": h},
    )


def _learn_width(x: Tensor, y: Tensor, steps: int = 200) -> float:
    """The h with the least error at each point when that point itself is left out."""
    log_h = torch.tensor(0.7, requires_grad=True)
    optimizer = torch.optim.Adam([log_h], lr=0.05)
    distance = (x[:, None] - x) ** 2
    for _ in range(steps):
        scores = (-distance / (2 * log_h.exp() ** 2)).masked_fill(
            torch.eye(len(x), dtype=torch.bool), float("-inf")
        )
        loss = ((scores.softmax(-1) @ y - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(log_h.detach().exp())
