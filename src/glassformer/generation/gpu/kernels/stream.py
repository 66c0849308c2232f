"""The residual stream: begun from embeddings, added to by layers, read through norms.

Letters: R rows, C model width, S parts of a product.
"""

import triton
import triton.language as tl

from glassformer.generation.gpu.kernels.functions import normalised, wait


@triton.jit
def embed_kernel(
    x,
    tokens,
    positions,
    embedding,
    places,
    scale,
    C: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr = False,
):
    """x = embedding[token] · scale, + places[position] where there are such: one row a program."""
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(embedding + tl.load(tokens + row).to(tl.int64) * C + c, c < C, 0.0) * scale
    if places is not None:
        value += tl.load(places + tl.load(positions + row).to(tl.int64) * C + c, c < C, 0.0)
    wait(EARLY)
    tl.store(x + row * C + c, value, c < C)


@triton.jit
def join_kernel(
    x,
    picks,
    parts,
    bias,
    gamma,
    beta,
    eps,
    h,
    C: tl.constexpr,
    BLOCK: tl.constexpr,
    STRIDE: tl.constexpr,
    S: tl.constexpr,
    NORM: tl.constexpr,
    EARLY: tl.constexpr = False,
):
    """x += bias + Σ parts, then h = norm(x): one row a program.

    The S parts of a product (S, STRIDE / C, C) are added in their order. With `picks`, h's rows are those of
    x that it names, and nothing is added.
    """
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    there = c < C
    source = row if picks is None else tl.load(picks + row)
    gain = tl.load(gamma + c, there, 0.0)
    shift = 0.0 if beta is None else tl.load(beta + c, there, 0.0)
    wait(EARLY)
    value = tl.load(x + source * C + c, there, 0.0)
    if S > 0:
        if bias is not None:
            value += tl.load(bias + c, there, 0.0)
        for i in tl.static_range(S):
            value += tl.load(parts + i * STRIDE + row * C + c, there, 0.0)
        tl.store(x + row * C + c, value, there)
    tl.store(h + row * C + c, normalised(value, there, gain, shift, eps, C, NORM), there)
