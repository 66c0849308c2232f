"""From a row's product with the joint matrix to queries, and to keys and values in their pages.

Where queries and keys have no norm, the product itself does that as it ends (`partners`, `hand_out`): a
kernel less. A norm needs whole heads, which no program of a product has, and so a kernel of its own.

Letters: R rows, H heads, G key-value heads, D head width, E value width, P positions of a page.
"""

import triton
import triton.language as tl

from glassformer.generation.gpu.kernels.functions import normalised, wait


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
    G: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    BLOCK: tl.constexpr,
    P: tl.constexpr,
    TABLE: tl.constexpr,
    NORM: tl.constexpr,
    EARLY: tl.constexpr = False,
):
    """One head's query, key or value of one row (R, H D + G D + G E): the heads in this order. Without a norm
    it is the slow twin of `hand_out`.

    Queries and keys are normed and turned; queries get the scale of the scores. `tokens_at` (R) are the
    positions, `tables` (R, TABLE) the pages of a row's text, (pages, G, P, D or E) what is in them.
    """
    row, head = tl.program_id(0), tl.program_id(1)
    source = qkv + row * (H * D + G * D + G * E)
    at, i = tl.load(tokens_at + row), tl.arange(0, BLOCK)
    page = tl.load(tables + row * TABLE + at // P).to(tl.int64)
    wait(EARLY)
    if head < H + G:
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
            tl.store(keys + ((page * G + head - H) * P + at % P) * D + i, x, there)
    else:
        v = head - H - G
        x = tl.load(source + (H + G) * D + v * E + i, i < E, 0.0)
        tl.store(values + ((page * G + v) * P + at % P) * E + i, x, i < E)


@triton.jit
def partners(i, H: tl.constexpr, G: tl.constexpr, D: tl.constexpr):
    """Outputs in an order in which two that turn together stand side by side, in queries and keys."""
    turned = i // D * D + (i % 2) * (D // 2) + i % D // 2
    return tl.where(i < (H + G) * D, turned, i)


@triton.jit
def turns(cos, sin, at, n, there, D: tl.constexpr):
    """By what outputs n (N) of rows at these positions (R) turn: (R, N)."""
    place = at[:, None] * D + (n % D)[None, :]
    return tl.load(cos + place, there, 0.0), tl.load(sin + place, there, 0.0)


@triton.jit
def hand_out(
    y,
    by_cos,
    by_sin,
    row,
    n,
    there,
    at,
    page,
    scale,
    q,
    keys,
    values,
    H: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    P: tl.constexpr,
    TURNS: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
):
    """Outputs n (OUTPUTS) of rows (ROWS), y, to where attention reads them.

    Where they turn, n are in the order of `partners`. `page` is the page of each row's position `at`.
    """
    query, key = n < H * D, n < (H + G) * D
    if TURNS:
        first, second = tl.split(tl.reshape(y, (ROWS, OUTPUTS // 2, 2)))
        partner = tl.reshape(tl.join(second, first), (ROWS, OUTPUTS))
        y = tl.where(key[None, :], y * by_cos + partner * by_sin, y)
    tl.store(q + row[:, None] * (H * D) + n[None, :], y * scale, there & query[None, :])
    page, within = page.to(tl.int64)[:, None], (at % P)[:, None]
    k = tl.where(key, n - H * D, 0)[None, :]
    place = ((page * G + k // D) * P + within) * D + k % D
    tl.store(keys + place, y, there & (key & (n >= H * D))[None, :])
    v = tl.where(key, 0, n - (H + G) * D)[None, :]
    place = ((page * G + v // E) * P + within) * E + v % E
    tl.store(values + place, y, there & (n >= (H + G) * D)[None, :])
