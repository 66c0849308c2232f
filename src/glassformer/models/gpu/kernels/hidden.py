"""Hidden units of the feed-forward net: the activation, dropout, and the way back through both."""

import triton
import triton.language as tl

from glassformer.models.gpu.kernels.dropout import kept

RELU, RELU2, GELU, GELU_TANH, SWIGLU = (tl.constexpr(i) for i in range(5))
_SQRT_HALF, _DENSITY = tl.constexpr(0.7071067811865476), tl.constexpr(0.3989422804014327)
# Abramowitz and Stegun 7.1.26: erfc(x) = t (a₁ + t (a₂ + …)) e^(−x²), t = 1 / (1 + p x), within 1.5·10⁻⁷
_P, _A1, _A2 = tl.constexpr(0.3275911), tl.constexpr(0.254829592), tl.constexpr(-0.284496736)
_A3, _A4, _A5 = tl.constexpr(1.421413741), tl.constexpr(-1.453152027), tl.constexpr(1.061405429)
_CUBE, _SLOPE = tl.constexpr(0.044715), tl.constexpr(0.7978845608028654)


@triton.jit
def _bend(a, KIND: tl.constexpr):
    """The activation of a, and its derivative there."""
    if KIND == RELU:
        return tl.maximum(a, 0.0), tl.where(a > 0, 1.0, 0.0)
    if KIND == RELU2:
        positive = tl.maximum(a, 0.0)
        return positive * positive, 2 * positive
    if KIND == GELU:
        bell = tl.exp(-0.5 * a * a)  # both the error function and its derivative want it
        t = 1 / (1 + _P * _SQRT_HALF * tl.abs(a))
        tail = 0.5 * bell * t * (_A1 + t * (_A2 + t * (_A3 + t * (_A4 + t * _A5))))
        share = tl.where(a < 0, tail, 1 - tail)
        return a * share, share + a * _DENSITY * bell
    if KIND == GELU_TANH:
        share = tl.sigmoid(2 * _SLOPE * (a + _CUBE * a * a * a))  # ½ (1 + tanh(…))
        return a * share, share + a * share * (1 - share) * 2 * _SLOPE * (1 + 3 * _CUBE * a * a)
    share = tl.sigmoid(a)
    return a * share, share * (1 + a * (1 - share))


@triton.jit(do_not_specialize=["site", "bound"])
def activate(
    A, HIDDEN, SEED, site, bound, grow, n, M, N: tl.constexpr, KIND: tl.constexpr, DROPS: tl.constexpr
):
    """N of n hidden units, M in a row. Of swiglu a row of A holds M gates, then M linear parts."""
    at = tl.program_id(0).to(tl.int64) * N + tl.arange(0, N)
    there = at < n
    place = at + at // M * M if KIND == SWIGLU else at
    hidden, _ = _bend(tl.load(A + place, mask=there, other=0.0).to(tl.float32), KIND)
    if KIND == SWIGLU:
        hidden *= tl.load(A + place + M, mask=there, other=0.0).to(tl.float32)
    if DROPS:
        hidden = tl.where(kept(SEED, site, at, bound), hidden * grow, 0.0)
    tl.store(HIDDEN + at, hidden.to(HIDDEN.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["site", "bound"])
def activate_back(
    ABOVE, A, DA, SEED, site, bound, grow, n, M, N: tl.constexpr, KIND: tl.constexpr, DROPS: tl.constexpr
):
    at = tl.program_id(0).to(tl.int64) * N + tl.arange(0, N)
    there = at < n
    above = tl.load(ABOVE + at, mask=there, other=0.0).to(tl.float32)
    if DROPS:
        above = tl.where(kept(SEED, site, at, bound), above * grow, 0.0)
    place = at + at // M * M if KIND == SWIGLU else at
    hidden, slope = _bend(tl.load(A + place, mask=there, other=0.0).to(tl.float32), KIND)
    if KIND == SWIGLU:
        linear = tl.load(A + place + M, mask=there, other=0.0).to(tl.float32)
        tl.store(DA + place + M, (above * hidden).to(DA.dtype.element_ty), mask=there)
        above *= linear
    tl.store(DA + place, (above * slope).to(DA.dtype.element_ty), mask=there)
