"""What one head does for one position: turn queries and keys, compare, and gather values from the pages.

Letters: S positions seen, D head width, E value width.
"""

import numba as nb

from glassformer.core.lanes.functions import exp
from glassformer.core.lanes.vector import (
    LOWEST,
    WIDTH,
    before,
    fill,
    fma,
    get,
    get_int,
    larger,
    largest,
    load,
    load_part,
    put,
    store,
    store_part,
    total,
)
from glassformer.generation.fast.kernels.products import products_of_row


@nb.njit(nogil=True)
def turn(x, cos, sin, D):
    """RoPE: each pair (i, i + D/2) of a query or key by its angle at this position."""
    half = D // 2
    for i in range(0, half, WIDTH):
        c, s = load_part(cos, i, half), load_part(sin, i, half)
        left, right = load_part(x, i, half), load_part(x + 4 * half, i, half)
        store_part(x, i, half, left * c - right * s)
        store_part(x + 4 * half, i, half, right * c + left * s)


@nb.njit(nogil=True)
def weigh(scores, S, scale, slope, distance):
    """Scores of S keys become weights before their division: e to what they lie below the best.

    The first key is `distance` back, and a slope makes distant ones count less. Returns the weights' sum.
    """
    best = fill(LOWEST)
    whole = S - S % WIDTH
    if slope != 0:
        for i in range(S):
            put(scores, i, get(scores, i) * scale - slope * nb.float32(distance - i))
        scale = nb.float32(1.0)
    for i in range(0, whole, WIDTH):
        best = larger(best, load(scores, i))
    top = largest(best)
    for i in range(whole, S):
        top = max(top, get(scores, i))
    sums = fill(0.0)
    for i in range(0, whole, WIDTH):
        weights = exp((load(scores, i) - top) * scale)
        sums = sums + weights
        store(scores, i, weights)
    if whole < S:
        weights = before(exp((load_part(scores, whole, S) - top) * scale), whole, S)
        sums = sums + weights
        store_part(scores, whole, S, weights)
    return total(sums)


@nb.njit(nogil=True)
def attend(z, q, keys, values, table, page, K, first, last, D, E, scale, slope, scores):
    """Attention of q (D) at position `last` to all from `first` on, into z (E).

    `keys` and `values` are this head's in page 0. A page has `page` positions of one head side by side, then
    those of the next of K heads; `table` (int64) says which pages. `scores` has room for all positions and a
    few.
    """
    at = first
    while at <= last:
        number, offset = get_int(table, at // page), at % page
        count = min(page - offset, last + 1 - at)
        # Eight at a time are no slower than one, and a page has room for them: what comes out is not read.
        eights = min(count + -count % 8, page - offset)
        start = keys + 4 * D * (number * K * page + offset)
        products_of_row(scores + 4 * (at - first), q, start, D, eights)
        at += count
    S = last + 1 - first
    factor = 1.0 / weigh(scores, S, scale, slope, last - first)
    for e in range(0, E, 4 * WIDTH):
        a = b = c = d = fill(0.0)
        at = first
        while at <= last:
            number, offset = get_int(table, at // page), at % page
            count = min(page - offset, last + 1 - at)
            row = values + 4 * E * (number * K * page + offset)
            for i in range(at - first, at - first + count):
                weight = fill(get(scores, i))
                if e + 4 * WIDTH <= E:
                    a = fma(weight, load(row, e), a)
                    b = fma(weight, load(row, e + WIDTH), b)
                    c = fma(weight, load(row, e + 2 * WIDTH), c)
                    d = fma(weight, load(row, e + 3 * WIDTH), d)
                else:
                    a = fma(weight, load_part(row, e, E), a)
                    b = fma(weight, load_part(row, e + WIDTH, E), b)
                    c = fma(weight, load_part(row, e + 2 * WIDTH, E), c)
                    d = fma(weight, load_part(row, e + 3 * WIDTH, E), d)
                row += 4 * E
            at += count
        store_part(z, e, E, a * factor)
        store_part(z, e + WIDTH, E, b * factor)
        store_part(z, e + 2 * WIDTH, E, c * factor)
        store_part(z, e + 3 * WIDTH, E, d * factor)
