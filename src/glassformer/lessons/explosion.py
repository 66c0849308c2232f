"""When numbers become NaN: a gradient that grows by a factor at every step of a recurrence.

h_t = φ(W h_{t−1}); the gradient comes down as g ← Wᵀ(φ′ ⊙ g), once for each step. Its length goes like a
power of the largest |eigenvalue| of W, the spectral radius: above one it grows until float32 has no number
for it (inf, above 3.4·10³⁸), and soon a product adds inf to −inf, which is NaN. Below one it vanishes, which
is another trouble but no NaN. Under tanh the slopes φ′ ≤ 1 work against it, and may lose.

Letters: T steps, C width of the state.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glassformer.lessons.lesson import Curve, Lesson, Plot
from glassformer.runs.run import Run

C, STEPS = 64, (10, 100, 1000)
RADII = (0.5, 0.9, 1.0, 1.1, 1.5, 2.0)
CLIP = 1.0
HUGE = 3e38  # about the largest number of float32


@dataclass
class Descent:
    """A gradient on its way down a recurrence, in float32."""

    lengths: list[float]  # after 0, 1, 2 … steps, beside the first; counted in double precision
    last_finite: Tensor  # (C): the last gradient without inf
    infinite: int | None  # the step at which an entry is inf, or none is
    nan: int | None  # … at which one is NaN


def recurrent_matrix(radius: float, seed: int = 0) -> Tensor:
    """A random matrix (C, C) whose largest |eigenvalue| is `radius`."""
    W = torch.randn(C, C, dtype=torch.double, generator=torch.Generator().manual_seed(seed))
    return (W * (radius / torch.linalg.eigvals(W).abs().max())).float()


def descend(W: Tensor, tanh: bool, steps: int = max(STEPS), seed: int = 1) -> Descent:
    """∂L/∂h_T, a random unit vector, down to ∂L/∂h_0."""
    generator = torch.Generator().manual_seed(seed)
    h, g = torch.randn(C, generator=generator), torch.randn(C, generator=generator)
    slopes: list[Tensor] = []
    for _ in range(steps if tanh else 0):
        h = torch.tanh(W @ h)
        slopes.append(1 - h * h)
    g = g / g.norm()
    lengths, last = [1.0], g
    infinite = nan = None
    for step in range(1, steps + 1):
        g = W.T @ (g * slopes.pop() if tanh else g)
        if infinite is None and not g.isfinite().all():
            infinite = step
        if nan is None and g.isnan().any():
            nan = step
        if infinite is None:
            last = g
        lengths.append(float(g.double().norm()))
    return Descent(lengths, last, infinite, nan)


def clipped(g: Tensor) -> Tensor:
    """What PyTorch's clipping, which training uses, makes of a gradient."""
    parameter = nn.Parameter(torch.zeros_like(g))
    parameter.grad = g.clone()
    nn.utils.clip_grad_norm_([parameter], CLIP)
    return parameter.grad


def lesson(run: Run | None = None) -> Lesson:
    each = {
        (radius, tanh): descend(recurrent_matrix(radius), tanh) for radius in RADII for tanh in (False, True)
    }
    rows = [
        (
            radius,
            "tanh" if tanh else "none",
            *(down.lengths[T] if math.isfinite(down.lengths[T]) else None for T in STEPS),
            down.infinite,
            down.nan,
        )
        for (radius, tanh), down in each.items()
    ]
    worst = each[RADII[-1], False]
    assert worst.infinite is not None
    early = descend(recurrent_matrix(RADII[-1]), False, worst.infinite // 4).last_finite
    late = torch.where(torch.arange(C) == 0, torch.inf, worst.last_finite)
    kept, lost = clipped(early), clipped(late)
    alike = float(torch.cosine_similarity(kept.double(), early.double(), dim=0))
    x = torch.tensor(HUGE)
    figures = {
        "length before clipping": float(early.double().norm()),
        "length behind clipping": float(kept.norm()),
        "cosine of the two": alike,
        "NaN behind clipping a gradient with one inf": float(lost.isnan().sum()),
        "relu of 3e38": float(x.relu()),
        "sigmoid of 3e38": float(x.sigmoid()),
        "slope of that sigmoid": float(x.sigmoid() * (1 - x.sigmoid())),
    }
    exploding = ", ".join(
        f"at step {down.infinite} with {radius:g}"
        for (radius, tanh), down in each.items()
        if down.infinite and not tanh
    )
    still = [f"{radius:g}" for (radius, tanh), down in each.items() if down.infinite and tanh]
    return Lesson(
        "Where does NaN come from in a recurrent model?",
        (
            "spectral radius",
            "nonlinearity",
            *(f"|∂L/∂h₀| after {T}" for T in STEPS),
            "inf at step",
            "NaN at step",
        ),
        rows,
        [
            f"Above a spectral radius of 1 the gradient explodes, until float32 overflows: {exploding}. "
            "A step or two later a product adds inf to −inf, and that is NaN. Below 1 the gradient vanishes, "
            "and stays a number.",
            f"The slopes of tanh, below 1, work against it: within {max(STEPS)} steps it overflows "
            + (f"at a radius of {', '.join(still)} only." if still else "nowhere."),
            f"Clipped in time the gradient keeps its direction (cosine {alike:.3f}): a length of "
            f"{figures['length before clipping']:.2g} becomes {figures['length behind clipping']:.2g}. "
            f"Too late there is nothing to cure: of a gradient with a single inf, clipping makes "
            f"{int(lost.isnan().sum())} NaN and {int((lost == 0).sum())} zeros.",
            f"A large number alone is no NaN: of {HUGE:g}, relu makes {figures['relu of 3e38']:.2g} and the "
            f"sigmoid {figures['sigmoid of 3e38']:g}, with a slope of {figures['slope of that sigmoid']:g}: "
            "that vanishes.",
        ],
        Plot(
            "The gradient on its way down a recurrence, in float32",
            "steps passed",
            "length, beside the first",
            [
                Curve(f"radius {radius:g}" + (", tanh" if tanh else ""), *_drawn(down.lengths))
                for (radius, tanh), down in each.items()
                if not tanh or radius > 1
            ],
            log_y=True,
        ),
        f"random matrices of width {C}, no inputs, float32",
        figures,
    )


def _drawn(lengths: list[float]) -> tuple[list[int], list[float]]:
    steps = [s for s, length in enumerate(lengths) if s % 10 == 0 and 0 < length < math.inf]
    return steps, [lengths[s] for s in steps]
