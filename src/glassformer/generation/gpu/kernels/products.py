"""Rows times matrices: finish(norm(x) Wᵀ + b), in two kinds.

    vectors   A warp has a row of weights, keeps it, and multiplies row after row of x with it. Every weight
              is read once and nothing waits but the sums of a warp: for few rows. The norm is part of it.
    tiles     Many rows of x with some rows of weights at once, in tiles, by tensor cores where numbers are
              of two bytes: for many rows. A sum over many inputs may be divided into parts, which stream.py
              joins.

In both, what a row of x becomes depends on nothing but that row: not on how many there are beside it. One
compiled kernel serves any number of rows, so that holds to the last bit. The two kinds add up in another
order, so a step takes one of them and stays with it.

How a product is finished:

    store     as it is
    add       added to what is there                       (vectors)
    part      each part of the sum by itself               (tiles)
    heads     handed out to queries, keys and values       (heads.py)
    an activation, relu or gelu and so on; swiglu has twice as many rows of weights, those of the gates first

Letters: R rows, K inputs, N outputs; of heads H heads, G key-value heads, D head width, E value width, P
positions of a page.
"""

# ruff: noqa: RUF005 - Triton's tuples grow by addition alone

import triton
import triton.language as tl

from glassformer.generation.gpu.kernels.functions import activated, fetch_ahead, silu, wait
from glassformer.generation.gpu.kernels.heads import hand_out, partners, turns


@triton.jit(do_not_specialize=["R"])
def vectors_kernel(
    x,
    picks,
    weight,
    bias,
    gamma,
    beta,
    eps,
    out,
    R,
    N: tl.constexpr,
    K: tl.constexpr,
    NORM: tl.constexpr,
    FINISH: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    TIMES: tl.constexpr = 1,
    EARLY: tl.constexpr = False,
    tokens_at=None,
    tables=None,
    cos=None,
    sin=None,
    scale=1.0,
    keys=None,
    values=None,
    H: tl.constexpr = 1,
    G: tl.constexpr = 1,
    D: tl.constexpr = 1,
    E: tl.constexpr = 1,
    P: tl.constexpr = 1,
    TABLE: tl.constexpr = 1,
):
    """Some outputs of R rows of x (R, K), or of those that `picks` names.

    Tiles are BN rows of weights, one for each warp, by BK inputs; a warp has TIMES such rows. x is read by
    each warp for itself, so that no warp waits for another but where two heads' numbers turn together.
    """
    TURNS: tl.constexpr = cos is not None
    TILES: tl.constexpr = (K + BK - 1) // BK
    lane = tl.arange(0, BK)[None, :] + tl.zeros((BN, 1), tl.int32)
    weights, linear, gains, shifts, added, linear_added = (), (), (), (), (), ()
    for i in tl.static_range(TIMES):
        n = _outputs(i, TIMES, BN, TURNS, H, G, D)
        for j in tl.static_range(TILES):
            k = j * BK + lane
            there = (n < N)[:, None] & (k < K)
            start = weight + n[:, None].to(tl.int64) * K + k
            weights = weights + (tl.load(start, there, 0.0),)
            if FINISH == "swiglu":
                linear = linear + (tl.load(start + N * K, there, 0.0),)
        if bias is not None:
            added = added + (tl.load(bias + n, n < N, 0.0),)
            if FINISH == "swiglu":
                linear_added = linear_added + (tl.load(bias + N + n, n < N, 0.0),)
    for j in tl.static_range(TILES if NORM != "none" else 0):
        k = j * BK + lane
        gains = gains + (tl.load(gamma + k, k < K, 0.0),)
        if beta is not None:
            shifts = shifts + (tl.load(beta + k, k < K, 0.0),)
    wait(EARLY)
    for row in range(R):
        source = row if picks is None else tl.load(picks + row)
        if FINISH == "heads":
            only = row + tl.arange(0, 1)
            at = tl.load(tokens_at + only)
            page = tl.load(tables + only * TABLE + at // P)
        xs = ()
        for j in tl.static_range(TILES):
            xs = xs + (tl.load(x + source * K + j * BK + lane, j * BK + lane < K, 0.0).to(tl.float32),)
        if NORM == "layer":
            total = xs[0]
            for j in tl.static_range(1, TILES):
                total += xs[j]
            mean = (tl.sum(total, 1) / K)[:, None]
            centred = ()
            for j in tl.static_range(TILES):
                centred = centred + (tl.where(j * BK + lane < K, xs[j] - mean, 0.0),)
            xs = centred
        if NORM != "none":
            total = xs[0] * xs[0]
            for j in tl.static_range(1, TILES):
                total += xs[j] * xs[j]
            rstd = (1.0 / tl.sqrt(tl.sum(total, 1) / K + eps))[:, None]
            scaled = ()
            for j in tl.static_range(TILES):
                value = xs[j] * rstd * gains[j]
                if beta is not None:
                    value += shifts[j]
                scaled = scaled + (value,)
            xs = scaled
        for i in tl.static_range(TIMES):
            n = _outputs(i, TIMES, BN, TURNS, H, G, D)
            y = _row_sum(weights, xs, i, TILES)
            if bias is not None:
                y += added[i]
            place = out + row * N + n
            if FINISH == "swiglu":
                gated = _row_sum(linear, xs, i, TILES)
                if bias is not None:
                    gated += linear_added[i]
                y = silu(y) * gated
            elif FINISH == "add":
                y += tl.load(place, n < N, 0.0)
            elif (FINISH != "store") & (FINISH != "heads"):
                y = activated(y, FINISH)
            if FINISH == "heads":
                real, by_cos, by_sin = (n < N)[None, :], 1.0, 0.0
                if TURNS:
                    by_cos, by_sin = turns(cos, sin, at, n, real, D)
                hand_out(y[None, :], by_cos, by_sin, only, n, real, at, page, scale, out, keys, values,
                         H, G, D, E, P, TURNS, 1, BN)  # fmt: skip
            else:
                tl.store(place, y, n < N)


@triton.jit
def _outputs(i, TIMES: tl.constexpr, BN: tl.constexpr, TURNS: tl.constexpr, H: tl.constexpr, G: tl.constexpr,
             D: tl.constexpr):  # fmt: skip
    """The i-th outputs of this program."""
    n = (tl.program_id(0) * TIMES + i) * BN + tl.arange(0, BN)
    if TURNS:
        n = partners(n, H, G, D)
    return n


@triton.jit
def _row_sum(weights, xs, i: tl.constexpr, TILES: tl.constexpr):
    """The i-th row of weights, in tiles, times a row of x."""
    total = weights[i * TILES].to(tl.float32) * xs[0]
    for j in tl.static_range(1, TILES):
        total += weights[i * TILES + j].to(tl.float32) * xs[j]
    return tl.sum(total, 1)


@triton.jit(do_not_specialize=["R"])
def tiles_kernel(
    h,
    weight,
    bias,
    out,
    R,
    N: tl.constexpr,
    K: tl.constexpr,
    FINISH: tl.constexpr,
    STRIDE: tl.constexpr,
    PART: tl.constexpr,
    BR: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PRECISION: tl.constexpr,
    EARLY: tl.constexpr = False,
    tokens_at=None,
    tables=None,
    cos=None,
    sin=None,
    scale=1.0,
    keys=None,
    values=None,
    H: tl.constexpr = 1,
    G: tl.constexpr = 1,
    D: tl.constexpr = 1,
    E: tl.constexpr = 1,
    P: tl.constexpr = 1,
    TABLE: tl.constexpr = 1,
):
    """Some outputs of BR rows of h (R, K), from PART of the inputs; parts lie STRIDE apart."""
    TURNS: tl.constexpr = cos is not None
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    r = tl.program_id(1) * BR + tl.arange(0, BR)
    known = (r < R)[:, None] & (n < N)[None, :]
    if TURNS:
        n = partners(n, H, G, D)
    if FINISH == "heads":
        at = tl.load(tokens_at + r, r < R, 0)
        page = tl.load(tables + r * TABLE + at // P, r < R, 0)
        by_cos, by_sin = 1.0, 0.0
        if TURNS:
            by_cos, by_sin = turns(cos, sin, at, n, known, D)
    first = tl.program_id(2) * PART
    if EARLY:
        LINE: tl.constexpr = 1024 // weight.dtype.element_ty.primitive_bitwidth  # numbers of 128 bytes
        line = tl.minimum(
            first + tl.arange(0, triton.next_power_of_2((PART + LINE - 1) // LINE)) * LINE, K - 1
        )
        lines = tl.minimum(n, N - 1)[:, None].to(tl.int64) * K + line[None, :]
        fetch_ahead(weight + lines)
        if FINISH == "swiglu":
            fetch_ahead(weight + N * K + lines)
    lane = tl.arange(0, BK)
    total = tl.zeros((BR, BN), tl.float32)
    linear = tl.zeros((BR, BN), tl.float32)
    wait(EARLY)
    for start in range(first, min(first + PART, K), BK):
        k = start + lane
        rows = tl.load(h + r[:, None] * K + k[None, :], (r < R)[:, None] & (k < K)[None, :], 0.0)
        place = weight + n[None, :].to(tl.int64) * K + k[:, None]
        there = (n < N)[None, :] & (k < K)[:, None]
        total = tl.dot(rows, tl.load(place, there, 0.0), total, input_precision=PRECISION)
        if FINISH == "swiglu":
            linear = tl.dot(rows, tl.load(place + N * K, there, 0.0), linear, input_precision=PRECISION)
    if bias is not None:
        total += tl.load(bias + n, n < N, 0.0)[None, :]
        if FINISH == "swiglu":
            linear += tl.load(bias + N + n, n < N, 0.0)[None, :]
    if FINISH == "swiglu":
        total = silu(total) * linear
    elif (FINISH != "store") & (FINISH != "part") & (FINISH != "heads"):
        total = activated(total, FINISH)
    if FINISH == "heads":
        hand_out(total, by_cos, by_sin, r, n, known, at, page, scale, out, keys, values,
                 H, G, D, E, P, TURNS, BR, BN)  # fmt: skip
    else:
        place = out + tl.program_id(2) * STRIDE + r[:, None] * N + n[None, :]
        tl.store(place, total, known)
