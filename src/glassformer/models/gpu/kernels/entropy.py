"""Scores of next tokens into their gradient, in place, and each row's loss on the way."""

# ruff: noqa: RUF005 - Triton's tuples grow by addition alone

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit(do_not_specialize=["n", "smoothing"])
def entropy(
    SCORES, TARGETS, LOSSES, smoothing, n, NARROW, STRIDE: tl.constexpr, V: tl.constexpr,
    N: tl.constexpr, TILES: tl.constexpr, SMOOTHED: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    """Rows of V scores, STRIDE apart, TILES of N scores at a time. Columns behind V become 0, and so does a
    row whose target is negative. Few rows are under way at once: the second look finds one in the cache.

    Each lane has a largest score and a sum of its own, and asks for a new largest once for all its tiles.
    The shares alone are also written in 8 bits, UNITS for a whole, if there is a place for them: without what
    the target takes off, beside which they would be lost, and what smoothing does, which would be.
    """
    lane = tl.arange(0, N)
    for row in range(tl.program_id(0), n, tl.num_programs(0)):
        ROW = SCORES + row * tl.full((), 1, tl.int64) * STRIDE
        target = tl.load(TARGETS + row)
        top, total = tl.full((N,), -1e30, tl.float32), tl.zeros((N,), tl.float32)
        plain = tl.zeros((N,), tl.float32)
        for first in range(0, V, N * TILES):
            tiles, new = (), top
            for i in tl.static_range(TILES):
                col = first + i * N + lane
                x = tl.load(ROW + col, mask=col < STRIDE, other=0.0, eviction_policy="evict_last")
                x = x.to(tl.float32)
                if SMOOTHED:
                    plain += tl.where(col < V, x, 0.0)
                x = tl.where(col < V, x, -1e30)
                tiles, new = tiles + (x,), tl.maximum(new, x)
            total *= tl.exp2((top - new) * LOG2E)
            for i in tl.static_range(TILES):
                total += tl.exp2((tiles[i] - new) * LOG2E)
            top = new
        most = tl.max(top, 0)
        whole = tl.sum(total * tl.exp2((top - most) * LOG2E), 0)  # of all shares, as parts of the largest
        scored = target >= 0
        wanted = tl.load(ROW + tl.maximum(target, 0)).to(tl.float32)
        loss = tl.log(whole) + (most - wanted)
        if SMOOTHED:
            loss = tl.log(whole) + (1 - smoothing) * (most - wanted)
            loss += smoothing * (most - tl.sum(plain, 0) / V)
        tl.store(LOSSES + row, tl.where(scored, loss, 0.0))
        tl.debug_barrier()  # every lane has read what is written over now
        share_of_one = tl.where(scored, 1 / whole, 0.0)
        on_target, on_all = tl.where(scored, 1 - smoothing, 0.0), tl.where(scored, smoothing / V, 0.0)
        for first in range(0, STRIDE, N * TILES):
            for i in tl.static_range(TILES):
                col = first + i * N + lane
                x = tl.load(ROW + col, mask=col < STRIDE, other=0.0, eviction_policy="evict_first")
                share = tl.exp2((x.to(tl.float32) - most) * LOG2E) * share_of_one
                share = tl.where(col < V, share, 0.0)
                if NARROW is not None:
                    narrow = (share * UNITS).to(NARROW.dtype.element_ty)
                    place = NARROW + row * tl.full((), 1, tl.int64) * STRIDE + col
                    tl.store(place, narrow, mask=col < STRIDE, eviction_policy="evict_first")
                share -= tl.where(col == target, on_target, 0.0)
                if SMOOTHED:
                    share -= tl.where(col < V, on_all, 0.0)
                share = share.to(SCORES.dtype.element_ty)
                tl.store(ROW + col, share, mask=col < STRIDE, eviction_policy="evict_first")
