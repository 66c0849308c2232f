"""Why scores are divided by √D.

Queries and keys with entries of mean 0 and variance 1 have a product q·k of variance D (of σ_q² σ_k² D in
general): the wider the heads, the larger the scores. A softmax of large scores puts all weight on one key,
and its gradient, A ⊙ (1 − A), vanishes. Divided by √D the scores keep variance 1 at every width.

Letters: N samples, S keys, D head width.
"""

from dataclasses import dataclass
from math import log, sqrt

import torch

from glassformer.lessons.lesson import Curve, Lesson, Plot
from glassformer.runs.run import Run


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


def score_variance(D: int, sigma: float, S: int = 64, N: int = 4096) -> float:
    """The variance of q·k for entries of standard deviation sigma: σ⁴ D."""
    generator = torch.Generator().manual_seed(0)
    q, k = (sigma * torch.randn(rows, D, generator=generator) for rows in (N, S))
    return float((q @ k.T).var())


def lesson(run: Run | None = None) -> Lesson:
    effects = scale_effect()
    general = {sigma: score_variance(64, sigma) for sigma in (0.5, 1.0, 2.0)}
    widest = [e for e in effects if e.width == effects[-1].width]
    raw, scaled = (next(e for e in widest if e.scaled == on) for on in (False, True))
    return Lesson(
        "Why are scores divided by √D?",
        (
            "head width D",
            "divided",
            "variance of scores",
            "largest weight",
            "entropy",
            "slope of the softmax",
        ),
        [(e.width, e.scaled, e.variance, e.largest, e.entropy, e.gradient) for e in effects],
        [
            f"q·k of unit-variance vectors has variance D: at D = {raw.width} it is {raw.variance:.0f}, "
            "divided "
            f"by √D {scaled.variance:.2f}.",
            f"Undivided, the softmax puts {raw.largest:.2f} of its weight on one of 64 keys, and its slope, "
            "what "
            f"can be learned from, is 1/{scaled.gradient / raw.gradient:.0f} of what it is divided.",
            "In general the variance is σ_q² σ_k² D, σ⁴ D where both deviate by σ: at D = 64 it is "
            + ", ".join(f"{variance:.3g} for σ = {sigma:g}" for sigma, variance in general.items())
            + ". Divided by √D that leaves σ⁴: 1 only where the entries have variance 1.",
        ],
        Plot(
            "The largest of 64 weights, by the width of a head",
            "head width D",
            "largest attention weight, mean over queries",
            [
                Curve(
                    "q·k/√D" if on else "q·k",
                    [e.width for e in effects if e.scaled == on],
                    [e.largest for e in effects if e.scaled == on],
                )
                for on in (False, True)
            ],
            log_x=True,
        ),
        "512 random queries, 64 random keys, entries of mean 0 and variance 1",
        {f"variance at D = 64, σ = {sigma:g}": variance for sigma, variance in general.items()},
    )
