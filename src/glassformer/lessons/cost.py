"""Where the feed-forward net costs more than attention, and where the kernel is faster than the formula.

Counted, mixing takes 4 T C operations a token (scores and weighted values; half of them are thrown away under
a causal mask, but done), its four matrices 8 C², the feed-forward net 16 C² (hidden 4 C). So the net costs
more than the mixing up to T = 4 C, and more than all of attention up to T = 2 C. The clock has its own
opinion: a fused kernel gets other rates out of the machine than a matrix product does.

Letters: T positions, C model width.
"""

import math
from collections.abc import Sequence

from glassformer.core.device import choose_device
from glassformer.inspection.cost import measure
from glassformer.lessons.lesson import Curve, Lesson, Plot
from glassformer.runs.run import Run

WIDTHS = {"cpu": 128, "cuda": 1024}
LENGTHS = {"cpu": (32, 64, 128, 256, 512, 1024, 2048), "cuda": (256, 512, 1024, 2048, 4096, 8192, 16384)}
PARTS = ("feed-forward", "attention, fused", "attention, by formula")


def lesson(run: Run | None = None) -> Lesson:
    device = choose_device()
    kind = device.type if device.type in WIDTHS else "cpu"
    C, lengths = WIDTHS[kind], LENGTHS[kind]
    times = {part: [measure(part, T, C, device).seconds for T in lengths] for part in PARTS}
    net, fused, formula = (times[part] for part in PARTS)
    rows = [
        (T, 16 * C * C / (4 * T * C), *(1e3 * t for t in (net[i], fused[i], formula[i])))
        for i, T in enumerate(lengths)
    ]

    def since(one: Sequence[float], other: Sequence[float]) -> str:
        return _in_words(crossing(lengths, one, other), lengths[0])

    return Lesson(
        "Which costs more: attention or the feed-forward net? And which attention?",
        ("positions", "counted, net / mixing", "net, ms", "attention, fused, ms", "by formula, ms"),
        rows,
        [
            f"Counted, the net costs more than the mixing up to {4 * C} positions at width {C} (T = 4 C), "
            f"and more than attention with its four matrices up to {2 * C}.",
            f"By the clock the mixing takes longer than the net {since(fused, net)} fused, and "
            f"{since(formula, net)} by the formula.",
            f"The formula takes longer than the kernel {since(formula, fused)}.",
        ],
        Plot(
            f"One sequence, forward and backward, width {C}, {device.type}",
            "positions",
            "milliseconds (the shortest of seven)",
            [Curve(part, lengths, [1e3 * t for t in values]) for part, values in times.items()],
            log_x=True,
            log_y=True,
        ),
        f"width {C}, hidden {4 * C}, on this machine's {device.type}",
    )


def crossing(sizes: Sequence[int], one: Sequence[float], other: Sequence[float]) -> float | None:
    """The size from which on `one` is larger than `other`, between the sizes measured by a straight line in
    logarithms; the first size if it always is, None if it is not even at the last."""
    gaps = [math.log(a / b) for a, b in zip(one, other, strict=True)]
    if gaps[-1] <= 0:
        return None
    below = max((i for i, gap in enumerate(gaps) if gap <= 0), default=None)
    if below is None:
        return sizes[0]
    share = -gaps[below] / (gaps[below + 1] - gaps[below])
    low, high = math.log(sizes[below]), math.log(sizes[below + 1])
    return math.exp(low + share * (high - low))


def _in_words(size: float | None, first: int) -> str:
    if size is None:
        return "at no length measured"
    if size == first:
        return "at every length measured"
    return f"from about {float(f'{size:.2g}'):,.0f} positions on"
