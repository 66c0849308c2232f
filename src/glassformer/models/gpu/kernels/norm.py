"""The residual connection and the norm behind it, in one pass over the stream."""

import triton
import triton.language as tl

from glassformer.models.gpu.kernels.dropout import kept


@triton.jit(do_not_specialize=["site", "bound", "n"])
def norm(
    X, U, GAIN, SHIFT, S, Y, MEAN, RSTD, SEED, site, bound, grow, eps, n, UNIT, NARROW,
    C: tl.constexpr, W: tl.constexpr, R: tl.constexpr,
    JOINED: tl.constexpr, DROPS: tl.constexpr, CENTRED: tl.constexpr, SHIFTED: tl.constexpr,
):  # fmt: skip
    """R rows of C, in W ≥ C lanes. With a unit also in numbers of 8 bits."""
    row, col = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R), tl.arange(0, W)[None, :]
    inside = (col < C) & (row[:, None] < n)
    at = row[:, None] * C + col
    s = tl.load(U + at, mask=inside, other=0.0).to(tl.float32)
    if DROPS:
        s = tl.where(kept(SEED, site, at, bound), s * grow, 0.0).to(S.dtype.element_ty).to(tl.float32)
    if JOINED:
        s += tl.load(X + at, mask=inside, other=0.0).to(tl.float32)
    if JOINED or DROPS:
        narrow = s.to(S.dtype.element_ty)
        tl.store(S + at, narrow, mask=inside)
        s = narrow.to(tl.float32)  # the way back reads what was written
    if CENTRED:
        mean = tl.sum(s, 1) / C
        s = tl.where(inside, s - mean[:, None], 0.0)
        tl.store(MEAN + row, mean, mask=row < n)
    rstd = 1 / tl.sqrt(tl.sum(s * s, 1) / C + eps)
    y = s * rstd[:, None] * tl.load(GAIN + col, mask=col < C, other=0.0)
    if SHIFTED:
        y += tl.load(SHIFT + col, mask=col < C, other=0.0)
    y = y.to(Y.dtype.element_ty)
    tl.store(Y + at, y, mask=inside)
    if UNIT is not None:
        narrow = y.to(tl.float32) * (1 / tl.load(UNIT))  # exact: a unit is a power of two
        # Eight at a time as y is stored: more would have to be gathered from other threads first.
        place = tl.max_contiguous(at, [1, 8])
        tl.store(NARROW + place, narrow.to(NARROW.dtype.element_ty), mask=inside)
    tl.store(RSTD + row, rstd, mask=row < n)


@triton.jit(do_not_specialize=["site", "bound", "n"])
def norm_back(
    DY, DS, S, GAIN, MEAN, RSTD, DX, DU, GAINS, SHIFTS, SEED, site, bound, grow, n,
    C: tl.constexpr, W: tl.constexpr,
    STREAM: tl.constexpr, DROPS: tl.constexpr, CENTRED: tl.constexpr, SHIFTED: tl.constexpr,
):  # fmt: skip
    """Row after row; each program leaves its part of the gradients of gain and shift."""
    col = tl.arange(0, W)
    inside = col < C
    gain = tl.load(GAIN + col, mask=inside, other=0.0)
    dgain, dshift = tl.zeros((W,), tl.float32), tl.zeros((W,), tl.float32)
    for row in range(tl.program_id(0), n, tl.num_programs(0)):
        at = row * tl.full((), C, tl.int64) + col
        dy = tl.load(DY + at, mask=inside, other=0.0).to(tl.float32)
        s = tl.load(S + at, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(RSTD + row)
        if CENTRED:
            s = tl.where(inside, s - tl.load(MEAN + row), 0.0)
        unit, above = s * rstd, dy * gain
        dx = above - unit * (tl.sum(above * unit, 0) / C)
        if CENTRED:
            dx -= tl.sum(above, 0) / C
        dx *= rstd
        if STREAM:
            dx += tl.load(DS + at, mask=inside, other=0.0).to(tl.float32)
        narrow = dx.to(DX.dtype.element_ty)
        tl.store(DX + at, narrow, mask=inside)
        if DROPS:
            du = tl.where(kept(SEED, site, at, bound), narrow.to(tl.float32) * grow, 0.0)
            tl.store(DU + at, du.to(DU.dtype.element_ty), mask=inside)
        dgain += dy * unit
        if SHIFTED:
            dshift += dy
    part = tl.program_id(0) * C + col
    tl.store(GAINS + part, dgain, mask=inside)
    if SHIFTED:
        tl.store(SHIFTS + part, dshift, mask=inside)
