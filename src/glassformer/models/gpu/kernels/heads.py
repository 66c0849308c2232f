"""Queries and keys between their product and the scores: normalised, and turned by their positions.

The two halves of a vector are read side by side: feature i of one half is turned together with feature i of
the other. The tables' first halves say all: the cosine's halves are equal, the sine's differ in sign.

Letters: D head width, N vectors at a time.
"""

import triton
import triton.language as tl


@triton.jit
def _unit(a, b, eps, D: tl.constexpr, CENTRED: tl.constexpr):
    """Both halves (N, D/2) of vectors, normalised, and 1 / deviation (N, 1)."""
    if CENTRED:
        mean = (tl.sum(a, 1) + tl.sum(b, 1))[:, None] / D
        a -= mean
        b -= mean
    rstd = 1 / tl.sqrt((tl.sum(a * a, 1) + tl.sum(b * b, 1)) / D + eps)[:, None]
    return a * rstd, b * rstd, rstd


@triton.jit
def _unit_back(da, db, a, b, rstd, D: tl.constexpr, CENTRED: tl.constexpr):
    """The way back from the normalised a, b."""
    along = (tl.sum(da * a, 1) + tl.sum(db * b, 1))[:, None] / D
    if CENTRED:
        mean = (tl.sum(da, 1) + tl.sum(db, 1))[:, None] / D
        return (da - a * along - mean) * rstd, (db - b * along - mean) * rstd
    return (da - a * along) * rstd, (db - b * along) * rstd


@triton.jit(do_not_specialize=["n"])
def turn(
    QKV, QK, GAIN, COS, SIN, eps, n, T, HEADS: tl.constexpr, STRIDE: tl.constexpr,
    D: tl.constexpr, N: tl.constexpr, NORMED: tl.constexpr, CENTRED: tl.constexpr, TURNED: tl.constexpr,
):  # fmt: skip
    """N of n vectors, HEADS at each position; a position of QKV is STRIDE long."""
    H: tl.constexpr = D // 2
    vector, i = tl.program_id(0) * N + tl.arange(0, N), tl.arange(0, H)[None, :]
    there, row = (vector < n)[:, None], vector // HEADS
    base = QKV + (row.to(tl.int64) * STRIDE + (vector % HEADS) * D)[:, None] + i
    a = tl.load(base, mask=there, other=0.0).to(tl.float32)
    b = tl.load(base + H, mask=there, other=0.0).to(tl.float32)
    if NORMED:
        a, b, _ = _unit(a, b, eps, D, CENTRED)
        a *= tl.load(GAIN + i)
        b *= tl.load(GAIN + H + i)
    if TURNED:
        angle = (row % T)[:, None] * D + i
        cos, sin = tl.load(COS + angle), tl.load(SIN + H + angle)
        a, b = a * cos - b * sin, b * cos + a * sin
    place = QK + vector.to(tl.int64)[:, None] * D + i
    tl.store(place, a.to(QK.dtype.element_ty), mask=there)
    tl.store(place + H, b.to(QK.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["n"])
def turn_back(
    ABOVE, QKV, INTO, GAIN, COS, SIN, GAINS, eps, n, T, HEADS: tl.constexpr, STRIDE: tl.constexpr,
    D: tl.constexpr, N: tl.constexpr, NORMED: tl.constexpr, CENTRED: tl.constexpr, TURNED: tl.constexpr,
):  # fmt: skip
    """The same backwards, N vectors after N; each program leaves its part of the gain's gradient."""
    H: tl.constexpr = D // 2
    i = tl.arange(0, H)[None, :]
    gain_a, gain_b = tl.zeros((N, H), tl.float32), tl.zeros((N, H), tl.float32)
    for first in range(tl.program_id(0) * N, n, tl.num_programs(0) * N):
        vector = first + tl.arange(0, N)
        there, row = (vector < n)[:, None], vector // HEADS
        place = (row.to(tl.int64) * STRIDE + (vector % HEADS) * D)[:, None] + i
        above = ABOVE + vector.to(tl.int64)[:, None] * D + i
        da = tl.load(above, mask=there, other=0.0).to(tl.float32)
        db = tl.load(above + H, mask=there, other=0.0).to(tl.float32)
        if TURNED:
            angle = (row % T)[:, None] * D + i
            cos, sin = tl.load(COS + angle), tl.load(SIN + H + angle)
            da, db = da * cos + db * sin, db * cos - da * sin
        if NORMED:
            a = tl.load(QKV + place, mask=there, other=0.0).to(tl.float32)
            b = tl.load(QKV + place + H, mask=there, other=0.0).to(tl.float32)
            a, b, rstd = _unit(a, b, eps, D, CENTRED)
            gain_a += da * a
            gain_b += db * b
            da *= tl.load(GAIN + i)
            db *= tl.load(GAIN + H + i)
            da, db = _unit_back(da, db, a, b, rstd, D, CENTRED)
        tl.store(INTO + place, da.to(INTO.dtype.element_ty), mask=there)
        tl.store(INTO + place + H, db.to(INTO.dtype.element_ty), mask=there)
    if NORMED:
        part = GAINS + tl.program_id(0) * D + tl.arange(0, H)
        tl.store(part, tl.sum(gain_a, 0))
        tl.store(part + H, tl.sum(gain_b, 0))
