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
def narrow(X, UNIT, NUMBERS, n, N: tl.constexpr):
    """x ÷ unit, in the type of the numbers."""
    at = tl.program_id(0).to(tl.int64) * N + tl.arange(0, N)
    there = at < n
    x = tl.load(X + at, mask=there, other=0.0).to(tl.float32) * (1 / tl.load(UNIT))
    tl.store(NUMBERS + at, x.to(NUMBERS.dtype.element_ty), mask=there)
