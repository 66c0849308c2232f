"""What the parts of a model cost, measured over length and width, and the exponents that come out.

    attention       O(T² C) time; O(T²) memory as the formula has it, O(T) with the fused kernels
    feed-forward    O(T C²)
    recurrence      O(T C²) too, but T steps that wait for each other

A part is run by itself, forward and backward, at growing T (and growing C). The exponent is the slope of
log time over log size at the large end, where what a call costs anyway has faded.

Letters: B batch, T positions, C width, H heads, D head width.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.models.attention import attend, attend_by_formula, join_heads, split_heads
from glassformer.models.layers import MLP
from glassformer.models.mask import Mask
from glassformer.models.recurrent import Recurrence

HEADS = 4
MOST_BYTES = {"cpu": 1 << 30, "cuda": 1 << 34}  # that the formula may take
SIZES = {"cpu": (128, 4096, 64, 1024), "cuda": (1024, 32768, 256, 4096)}  # T and C, from and to
EXPECTED = {  # exponents of time over T and over C, of memory over T
    "attention, by formula": (2, 1, 2),
    "attention, fused": (2, 1, 1),
    "feed-forward": (1, 2, 1),
    "lstm": (1, 2, 1),
}


@dataclass
class Point:
    part: str
    T: int
    C: int
    seconds: float
    bytes: int  # at most, beyond parameters and input


@dataclass
class Fit:
    part: str
    over: str  # T or C
    time: float  # exponents
    memory: float
    expected_time: int
    expected_memory: int | None


def make_part(part: str, C: int, device: torch.device) -> Callable[[Tensor], Tensor]:
    """What takes x (1, T, C) to something of the same shape. Attention is the mixing alone: q = k = v = x."""
    if part.startswith("attention"):
        form = _by_formula if part.endswith("formula") else attend
        mask = Mask(causal=True)
        return lambda x: join_heads(form(h := split_heads(x, HEADS), h, h, mask))
    if part == "feed-forward":
        return MLP(C, 4 * C, F.gelu, False).to(device)
    recurrence = Recurrence("lstm", C, C).to(device)
    return lambda x: recurrence(x, recurrence.begin(len(x)))[0]


def _by_formula(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    return attend_by_formula(q, k, v, mask)[0]


def measure(part: str, T: int, C: int, device: torch.device, repeats: int = 7) -> Point:
    """The shortest time of a forward and backward pass of one sequence, and the memory it takes."""
    torch.manual_seed(0)
    run = make_part(part, C, device)
    x = torch.randn(1, T, C, device=device, requires_grad=True)

    def once() -> None:
        run(x).sum().backward()
        x.grad = None

    once()
    seconds: list[float] = []
    for _ in range(repeats):
        _wait(device)
        start = time.perf_counter()
        once()
        _wait(device)
        seconds.append(time.perf_counter() - start)
    return Point(part, T, C, min(seconds), peak_memory(once, device))


def peak_memory(work: Callable[[], Any], device: torch.device) -> int:
    """Bytes that PyTorch holds at most while it works, beyond what it held before."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        return torch.cuda.max_memory_allocated() - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or it says on standard error that it begins and ends
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as p:
        work()
    assert p.profiler is not None and p.profiler.kineto_results is not None
    events: list[Any] = [e for e in p.profiler.kineto_results.events() if e.name() == "[memory]"]
    memory = np.cumsum([e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())])
    return int(max(memory, default=0))


def doubling(device: torch.device, longest: int | None, widest: int | None) -> tuple[list[int], list[int]]:
    """Lengths and widths to measure: large enough for the device to have something to do."""
    shortest, long, narrowest, wide = SIZES.get(device.type, SIZES["cpu"])
    long, wide = longest or long, widest or wide
    shortest, narrowest = min(shortest, long // 4), min(narrowest, wide // 4)
    return (
        [shortest << k for k in range(20) if shortest << k <= long],
        [narrowest << k for k in range(20) if narrowest << k <= wide],
    )


def sweep(
    lengths: Sequence[int],
    widths: Sequence[int],
    device: torch.device,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Point]:
    """Every part over T at the narrowest width, and over C at a length in the middle."""
    points: list[Point] = []
    for part in EXPECTED:
        middle = lengths[2 * len(lengths) // 3]
        sizes = {(T, widths[0]) for T in lengths} | {(middle, C) for C in widths}
        for T, C in sorted(sizes):
            if part.endswith("formula") and MOST_BYTES.get(device.type, 1 << 30) < 14 * HEADS * T * T:
                continue
            progress(f"{part}: T {T}, C {C} …")
            points.append(measure(part, T, C, device))
    return points


def fit(points: Sequence[Point]) -> list[Fit]:
    """The exponents of each part over T and over C, from the three largest sizes."""
    fits: list[Fit] = []
    for part, (time_T, time_C, memory_T) in EXPECTED.items():
        part_points = [p for p in points if p.part == part]
        narrow = min(p.C for p in part_points)
        lengths = [p.T for p in part_points]
        middle = max(lengths, key=lengths.count)  # the length of several widths
        for over, series, expected, memory in (
            ("T", [p for p in part_points if narrow == p.C], time_T, memory_T),
            ("C", [p for p in part_points if middle == p.T], time_C, None),
        ):
            if len(series) < 3:
                continue
            series = sorted(series, key=lambda p: (p.T, p.C))[-3:]
            sizes = np.log([p.T if over == "T" else p.C for p in series])
            time_, bytes_ = (float(np.polyfit(sizes, np.log(y), 1)[0]) for y in _series(series))
            fits.append(Fit(part, over, time_, bytes_, expected, memory))
    return fits


def _series(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [p.seconds for p in points], [float(max(1, p.bytes)) for p in points]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
