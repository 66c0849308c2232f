"""Dropout: what is left out is a hash of (seed of the step, site, place)."""

import triton
import triton.language as tl


@triton.jit
def kept(SEED, site, at, bound):
    """True where the hash of a place is at least `bound`, of 2²⁴."""
    x = (at.to(tl.uint32) * 0x9E3779B1) ^ (tl.load(SEED) + site * 0x3C6EF372).to(tl.uint32)
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return ((x ^ (x >> 16)) >> 8).to(tl.int32) >= bound


@triton.jit(do_not_specialize=["site", "bound"])
def drop(X, Y, SEED, site, bound, grow, n, N: tl.constexpr):
    """n elements: y = x · grow where it is kept, else 0."""
    at = tl.program_id(0).to(tl.int64) * N + tl.arange(0, N)
    there = at < n
    x = tl.load(X + at, mask=there, other=0.0).to(tl.float32)
    y = tl.where(kept(SEED, site, at, bound), x * grow, 0.0)
    tl.store(Y + at, y.to(Y.dtype.element_ty), mask=there)
