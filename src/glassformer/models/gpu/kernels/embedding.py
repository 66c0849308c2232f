"""Rows of the embedding's table into the stream, and the stream's gradient back into rows."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["n"])
def embed(
    IDS,
    TABLE,
    PLACES,
    X,
    scale,
    n,
    T,
    C: tl.constexpr,
    W: tl.constexpr,
    R: tl.constexpr,
    PLACED: tl.constexpr,
):
    """R of n positions: x = scale · table[id], + places[position] where these are."""
    row, col = tl.program_id(0) * R + tl.arange(0, R), tl.arange(0, W)[None, :]
    there = (row[:, None] < n) & (col < C)
    ids = tl.load(IDS + row, mask=row < n, other=0)
    x = tl.load(TABLE + ids.to(tl.int64)[:, None] * C + col, mask=there, other=0.0) * scale
    if PLACED:
        x += tl.load(PLACES + (row % T)[:, None] * C + col, mask=there, other=0.0)
    tl.store(X + row.to(tl.int64)[:, None] * C + col, x.to(X.dtype.element_ty), mask=there)


@triton.jit
def embed_back(
    DX,
    STARTS,
    ORDER,
    GRADIENT,
    scale,
    V,
    C: tl.constexpr,
    N: tl.constexpr,
    FEW: tl.constexpr,
    MANY: tl.constexpr,
):
    """To row v of the gradient is added what the positions of v got, in their order: they are
    ORDER[STARTS[v]:STARTS[v + 1]]. N columns a program; most rows have FEW positions, some very MANY.
    """
    col = tl.program_id(1) * N + tl.arange(0, N)
    inside = (col < C)[None, :]
    for v in range(tl.program_id(0), V, tl.num_programs(0)):
        first, end = tl.load(STARTS + v), tl.load(STARTS + v + 1)
        if first < end:
            at = first + tl.arange(0, FEW)
            rows = tl.load(ORDER + at, mask=at < end, other=0).to(tl.int64)[:, None]
            mine = tl.load(DX + rows * C + col[None, :], mask=(at < end)[:, None] & inside, other=0.0)
            total = tl.sum(mine.to(tl.float32), 0)
            if first + FEW < end:
                more = tl.zeros((MANY, N), tl.float32)
                for start in range(first + FEW, end, MANY):
                    at_more = start + tl.arange(0, MANY)
                    rows_more = tl.load(ORDER + at_more, mask=at_more < end, other=0).to(tl.int64)[:, None]
                    there = (at_more < end)[:, None] & inside
                    more += tl.load(DX + rows_more * C + col[None, :], mask=there, other=0.0).to(tl.float32)
                total += tl.sum(more, 0)
            place = GRADIENT + v * tl.full((), C, tl.int64) + col
            tl.store(place, tl.load(place, mask=col < C, other=0.0) + total * scale, mask=col < C)
