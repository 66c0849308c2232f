"""What is done to all gradients side by side, and to all numbers of a weight."""

import triton
import triton.language as tl


@triton.jit
def tame(VECTOR, FACTOR, BROKEN, n, N: tl.constexpr):
    """vector · factor, or nothing where the step is broken."""
    at = tl.program_id(0).to(tl.int64) * N + tl.arange(0, N)
    there = at < n
    x = tl.load(VECTOR + at, mask=there, other=0.0) * tl.load(FACTOR)
    tl.store(VECTOR + at, tl.where(tl.load(BROKEN) > 0, 0.0, x), mask=there)


@triton.jit
def adamw(
    WEIGHTS, GRADIENT, FIRST, SECOND, LR, CORRECTIONS, FACTOR, BROKEN, decay, keep1, new1, keep2, new2, eps,
    n, N: tl.constexpr,
):  # fmt: skip
    """Clipping and AdamW; nothing where the step is broken. A share of each moment is kept, one is new."""
    if tl.load(BROKEN) > 0:
        return
    at = tl.program_id(0).to(tl.int64) * N + tl.arange(0, N)
    there = at < n
    lr = tl.load(LR)
    g = tl.load(GRADIENT + at, mask=there, other=0.0) * tl.load(FACTOR)
    first = keep1 * tl.load(FIRST + at, mask=there, other=0.0) + new1 * g
    second = keep2 * tl.load(SECOND + at, mask=there, other=0.0) + new2 * g * g
    size = tl.sqrt(second / tl.load(CORRECTIONS + 1)) + eps
    w = tl.load(WEIGHTS + at, mask=there, other=0.0) * (1 - lr * decay)
    w -= lr * (first / tl.load(CORRECTIONS)) / size
    tl.store(WEIGHTS + at, w, mask=there)
    tl.store(FIRST + at, first, mask=there)
    tl.store(SECOND + at, second, mask=there)


@triton.jit
def narrow(X, UNIT, NUMBERS, n, N: tl.constexpr):
    """x ÷ unit, in the type of the numbers."""
    at = tl.program_id(0).to(tl.int64) * N + tl.arange(0, N)
    there = at < n
    x = tl.load(X + at, mask=there, other=0.0).to(tl.float32) * (1 / tl.load(UNIT))
    tl.store(NUMBERS + at, x.to(NUMBERS.dtype.element_ty), mask=there)
