"""From a row's product with the joint matrix to queries, and to keys and values in their pages.

Letters: R rows, H heads, K key-value heads, D head width, E value width, P positions of a page.
"""

import triton
import triton.language as tl

from glassformer.generation.gpu.kernels.functions import begin, normalised, wait


@triton.jit
def _normed(x, places, there, gamma, beta, eps, D: tl.constexpr, NORM: tl.constexpr):
    """A head's features, which stand at these places."""
    gain = tl.load(gamma + places, there, 0.0)
    shift = 0.0 if beta is None else tl.load(beta + places, there, 0.0)
    return normalised(x, there, gain, shift, eps, D, NORM)


@triton.jit
def heads_kernel(
    qkv,
    tokens_at,
    tables,
    gamma,
    beta,
    eps,
    cos,
    sin,
    scale,
    q,
    keys,
    values,
    H: tl.constexpr,
    K: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    BLOCK: tl.constexpr,
    P: tl.constexpr,
    TABLE: tl.constexpr,
    NORM: tl.constexpr,
    EARLY: tl.constexpr = False,
):
    """One head's query, key or value of one row (R, H D + K D + K E): the heads in this order.

    Queries and keys are normed and turned; queries get the scale of the scores. `tokens_at` (R) are the
    positions, `tables` (R, TABLE) the pages of a row's text, (pages, K, P, D or E) what is in them.
    """
    begin(EARLY)
    row, head = tl.program_id(0), tl.program_id(1)
    source = qkv + row * (H * D + K * D + K * E)
    at, i = tl.load(tokens_at + row), tl.arange(0, BLOCK)
    page = tl.load(tables + row * TABLE + at // P).to(tl.int64)
    wait(EARLY)
    if head < H + K:
        there = i < D
        x = tl.load(source + head * D + i, there, 0.0)
        if NORM != "none":
            x = _normed(x, i, there, gamma, beta, eps, D, NORM)
        if cos is not None:
            other = (i + D // 2) % D
            partner = tl.load(source + head * D + other, there, 0.0)
            if NORM != "none":
                partner = _normed(partner, other, there, gamma, beta, eps, D, NORM)
            turn = at * D + i
            x = x * tl.load(cos + turn, there, 0.0) + partner * tl.load(sin + turn, there, 0.0)
        if head < H:
            tl.store(q + (row * H + head) * D + i, x * scale, there)
        else:
            tl.store(keys + ((page * K + head - H) * P + at % P) * D + i, x, there)
    else:
        v = head - H - K
        x = tl.load(source + (H + K) * D + v * E + i, i < E, 0.0)
        tl.store(values + ((page * K + v) * P + at % P) * E + i, x, i < E)
