"""Scores of next tokens into their gradient, in place, and each row's loss on the way."""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit(do_not_specialize=["n", "smoothing"])
def entropy(SCORES, TARGETS, LOSSES, smoothing, n, STRIDE, V: tl.constexpr, N: tl.constexpr):
    """Rows of V scores, STRIDE apart, N scores at a time. Columns behind V become 0, and so does a row whose
    target is negative. Few rows are under way at once, so the second look at one finds it in the cache.
    """
    lane = tl.arange(0, N)
    for row in range(tl.program_id(0), n, tl.num_programs(0)):
        ROW = SCORES + row * tl.full((), 1, tl.int64) * STRIDE
        target = tl.load(TARGETS + row)
        top, total = tl.full((N,), -1e30, tl.float32), tl.zeros((N,), tl.float32)
        plain = tl.zeros((N,), tl.float32)
        for first in range(0, V, N):
            col = first + lane
            x = tl.load(ROW + col, mask=col < STRIDE, other=0.0).to(tl.float32)
            plain += tl.where(col < V, x, 0.0)
            x = tl.where(col < V, x, -1e30)
            new = tl.maximum(top, x)
            total = total * tl.exp2((top - new) * LOG2E) + tl.exp2((x - new) * LOG2E)
            top = new
        most = tl.max(top, 0)
        whole = tl.sum(total * tl.exp2((top - most) * LOG2E), 0)  # of all shares, as parts of the largest
        scored = target >= 0
        wanted = tl.load(ROW + tl.maximum(target, 0)).to(tl.float32)
        loss = tl.log(whole) + (1 - smoothing) * (most - wanted) + smoothing * (most - tl.sum(plain, 0) / V)
        tl.store(LOSSES + row, tl.where(scored, loss, 0.0))
        tl.debug_barrier()  # every lane has read what is written over now
        for first in range(0, STRIDE, N):
            col = first + lane
            x = tl.load(ROW + col, mask=col < STRIDE, other=0.0).to(tl.float32)
            share = tl.exp2((x - most) * LOG2E) / whole
            share -= tl.where(col == target, 1 - smoothing, 0.0) + smoothing / V
            share = tl.where((col < V) & scored, share, 0.0)
            tl.store(ROW + col, share.to(SCORES.dtype.element_ty), mask=col < STRIDE)
