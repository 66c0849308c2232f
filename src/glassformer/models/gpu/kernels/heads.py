"""Queries and keys between their product and the scores: normalised, and turned by their positions."""

import triton
import triton.language as tl


@triton.jit
def _partner(d, D: tl.constexpr):
    """The other half of a pair of features."""
    return (d + D // 2) % D


@triton.jit(do_not_specialize=["n"])
def turn(
    QKV, QK, GAIN, COS, SIN, eps, n, T, HEADS, STRIDE,
    D: tl.constexpr, N: tl.constexpr, NORMED: tl.constexpr, CENTRED: tl.constexpr, TURNED: tl.constexpr,
):  # fmt: skip
    """N of n vectors, HEADS at each position; a position of QKV is STRIDE long."""
    vector = tl.program_id(0).to(tl.int64) * N + tl.arange(0, N)
    there, row, d = (vector < n)[:, None], vector // HEADS, tl.arange(0, D)[None, :]
    base = QKV + (row * STRIDE + (vector % HEADS) * D)[:, None]
    x = tl.load(base + d, mask=there, other=0.0).to(tl.float32)
    if TURNED:
        other = tl.load(base + _partner(d, D), mask=there, other=0.0).to(tl.float32)
    if NORMED:
        if CENTRED:
            mean = tl.sum(x, 1)[:, None] / D
            x -= mean
        rstd = 1 / tl.sqrt(tl.sum(x * x, 1) / D + eps)[:, None]
        x *= rstd * tl.load(GAIN + d)
        if TURNED:
            if CENTRED:
                other -= mean
            other *= rstd * tl.load(GAIN + _partner(d, D))
    if TURNED:
        angle = (row % T)[:, None] * D + d
        x = x * tl.load(COS + angle, mask=there, other=0.0)
        x += other * tl.load(SIN + angle, mask=there, other=0.0)
    tl.store(QK + vector[:, None] * D + d, x.to(QK.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["n"])
def turn_back(
    ABOVE, QKV, INTO, GAIN, COS, SIN, GAINS, eps, n, T, HEADS, STRIDE,
    D: tl.constexpr, N: tl.constexpr, NORMED: tl.constexpr, CENTRED: tl.constexpr, TURNED: tl.constexpr,
):  # fmt: skip
    """The same backwards, N vectors after N; each program leaves its part of the gain's gradient."""
    d = tl.arange(0, D)[None, :]
    dgain = tl.zeros((N, D), tl.float32)
    for first in range(tl.program_id(0) * N, n, tl.num_programs(0) * N):
        vector = first + tl.arange(0, N).to(tl.int64)
        there, row = (vector < n)[:, None], vector // HEADS
        place = (row * STRIDE + (vector % HEADS) * D)[:, None] + d
        above = tl.load(ABOVE + vector[:, None] * D + d, mask=there, other=0.0).to(tl.float32)
        if TURNED:
            partner = _partner(d, D)
            other = tl.load(ABOVE + vector[:, None] * D + partner, mask=there, other=0.0).to(tl.float32)
            angle = (row % T)[:, None] * D
            above = above * tl.load(COS + angle + d, mask=there, other=0.0)
            above += other * tl.load(SIN + angle + partner, mask=there, other=0.0)
        if NORMED:
            x = tl.load(QKV + place, mask=there, other=0.0).to(tl.float32)
            if CENTRED:
                x -= tl.sum(x, 1)[:, None] / D
            rstd = 1 / tl.sqrt(tl.sum(x * x, 1) / D + eps)[:, None]
            unit = x * rstd
            dgain += above * unit
            above *= tl.load(GAIN + d)
            back = above - unit * (tl.sum(above * unit, 1)[:, None] / D)
            if CENTRED:
                back -= tl.sum(above, 1)[:, None] / D
            above = back * rstd
        tl.store(INTO + place, above.to(INTO.dtype.element_ty), mask=there)
    if NORMED:
        tl.store(GAINS + tl.program_id(0) * D + tl.arange(0, D), tl.sum(dgain, 0))
