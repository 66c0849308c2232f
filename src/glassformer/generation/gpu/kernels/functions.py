"""What kernels are made of: activations, norms of a row, and how one waits for the one before it.

A kernel may begin before the one in front of it has ended (programmatic dependent launch): it loads what none
of these kernels writes (weights, tokens, positions, page tables), then waits, then reads what that one has
written. Every program of a kernel waits, so who has waited knows that all kernels before are done. Only then
does it let the next one begin: if it did so at once, a row of kernels would stand in the processors, each
waiting, and those at work would find no room beside each other. The last kernel of a step moves tokens and
positions on, and the next step begins when it has ended.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def wait(EARLY: tl.constexpr):
    """Until all kernels before this one are done; then the next one may begin."""
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()


@triton.jit
def fetch_ahead(pointers):
    """Bring the lines of memory that these point at nearer (to the L2 cache), without waiting for them."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
        "=r,l",
        [pointers.to(tl.int64)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def activated(a, KIND: tl.constexpr):
    """The hidden unit of a, for an MLP without a gate."""
    if KIND == "relu":
        unit = tl.maximum(a, 0.0)
    elif KIND == "relu2":
        unit = tl.maximum(a, 0.0) * tl.maximum(a, 0.0)
    elif KIND == "gelu":
        unit = 0.5 * a * (1.0 + tl.erf(a * 0.7071067811865476))
    else:  # a/2 (1 + tanh u) = a (1 − 1 / (1 + e²ᵘ))
        tl.static_assert(KIND == "gelu-tanh")
        u = 0.7978845608028654 * (a + 0.044715 * a * a * a)
        unit = a * (1.0 - 1.0 / (1.0 + tl.exp(2.0 * u)))
    return unit


@triton.jit
def silu(a):
    return a / (1.0 + tl.exp(-a))


@triton.jit
def normalised(x, there, gamma, beta, eps, SIZE: tl.constexpr, KIND: tl.constexpr):
    """A row x, zero where it is not `there`, by a norm of this kind with this gain and this bias."""
    if KIND == "layer":
        x = tl.where(there, x - tl.sum(x) / SIZE, 0.0)
    return x * (1.0 / tl.sqrt(tl.sum(x * x) / SIZE + eps)) * gamma + beta
