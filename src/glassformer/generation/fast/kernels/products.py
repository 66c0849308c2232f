"""Rows times a matrix: out[r, n] = Σ_c x[r, c] · w[n, c], for weights of three kinds.

A sum is made of sixteen that each take every sixteenth column in turn; then these are added. That order is
the same in each of the tiles below, so what comes out for a row does not depend on how many rows there are,
on their order, or on which outputs are asked for:

    1 row  × 8 outputs   one text: the weights are read once, which is all the time it takes
    4 rows × 4 outputs   many: each number that is read is used four times
    1 row  × 1 output    what is left over

Weights are float32; or bfloat16, as the upper halves of float32; or int8, to be multiplied by a scale for
each output afterwards.

Letters: R rows, C columns of a weight, N outputs.
"""

import numba as nb

from glassformer.core.lanes.vector import (
    LINE,
    WIDTH,
    fill,
    fma,
    inlined,
    load,
    load_bf16,
    load_bf16_part,
    load_int8,
    load_int8_part,
    load_part,
    prefetch,
    put,
    store_part,
    store_some,
    total,
    totals_8,
    totals_16,
)

# Kinds of weights, as the walk knows them by number, and bytes of each.
FLOAT32, BFLOAT16, INT8 = range(3)
SIZES = (4, 2, 1)
AHEAD = 16  # rows of a weight that are asked for before they are read


def _make(load_weights, load_last, size):
    lines = 8 * WIDTH * size // LINE  # that eight rows have in sixteen columns

    @inlined
    def one_by_one(out, x, w, C):
        """One sum."""
        a = fill(0.0)
        whole = C - C % WIDTH
        for c in range(0, whole, WIDTH):
            a = fma(load_weights(w, c), load(x, c), a)
        if whole < C:
            a = fma(load_last(w, whole, C), load_part(x, whole, C), a)
        put(out, 0, total(a))

    @inlined
    def one_by_eight(out, x, w, C):
        """Eight sums of one row. Rows of a weight are short for the processor to see where reading goes on,
        so later ones are asked for, line by line, while these are added up."""
        zero = fill(0.0)
        a, b, c, d, e, f, g, h = zero, zero, zero, zero, zero, zero, zero, zero
        whole = C - C % WIDTH
        for i in range(0, whole, WIDTH):
            prefetch(w + size * (AHEAD * C + 8 * i), lines)
            row = load(x, i)
            a = fma(load_weights(w, i), row, a)
            b = fma(load_weights(w, i + C), row, b)
            c = fma(load_weights(w, i + 2 * C), row, c)
            d = fma(load_weights(w, i + 3 * C), row, d)
            e = fma(load_weights(w, i + 4 * C), row, e)
            f = fma(load_weights(w, i + 5 * C), row, f)
            g = fma(load_weights(w, i + 6 * C), row, g)
            h = fma(load_weights(w, i + 7 * C), row, h)
        if whole < C:
            row = load_part(x, whole, C)
            a = fma(load_last(w, whole, C), row, a)
            b = fma(load_last(w + C * size, whole, C), row, b)
            c = fma(load_last(w + 2 * C * size, whole, C), row, c)
            d = fma(load_last(w + 3 * C * size, whole, C), row, d)
            e = fma(load_last(w + 4 * C * size, whole, C), row, e)
            f = fma(load_last(w + 5 * C * size, whole, C), row, f)
            g = fma(load_last(w + 6 * C * size, whole, C), row, g)
            h = fma(load_last(w + 7 * C * size, whole, C), row, h)
        store_some(out, 0, totals_8(a, b, c, d, e, f, g, h), 0, 8)

    @inlined
    def four_by_four(out, N, x, X, w, C):
        """Four sums of each of four rows, which are X apart in x and N apart in out."""
        zero = fill(0.0)
        a0, a1, a2, a3 = zero, zero, zero, zero
        b0, b1, b2, b3 = zero, zero, zero, zero
        c0, c1, c2, c3 = zero, zero, zero, zero
        d0, d1, d2, d3 = zero, zero, zero, zero
        for i in range(0, C, WIDTH):
            if i + WIDTH <= C:
                p, q, r, s = load(x, i), load(x, i + X), load(x, i + 2 * X), load(x, i + 3 * X)
            else:
                p, q = load_part(x, i, C), load_part(x + 4 * X, i, C)
                r, s = load_part(x + 8 * X, i, C), load_part(x + 12 * X, i, C)
            y = load_weights(w, i) if i + WIDTH <= C else load_last(w, i, C)
            a0, b0, c0, d0 = fma(y, p, a0), fma(y, q, b0), fma(y, r, c0), fma(y, s, d0)
            y = load_weights(w, i + C) if i + WIDTH <= C else load_last(w + C * size, i, C)
            a1, b1, c1, d1 = fma(y, p, a1), fma(y, q, b1), fma(y, r, c1), fma(y, s, d1)
            y = load_weights(w, i + 2 * C) if i + WIDTH <= C else load_last(w + 2 * C * size, i, C)
            a2, b2, c2, d2 = fma(y, p, a2), fma(y, q, b2), fma(y, r, c2), fma(y, s, d2)
            y = load_weights(w, i + 3 * C) if i + WIDTH <= C else load_last(w + 3 * C * size, i, C)
            a3, b3, c3, d3 = fma(y, p, a3), fma(y, q, b3), fma(y, r, c3), fma(y, s, d3)
        sums = totals_16(a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3)
        store_some(out, 0, sums, 0, 4)
        store_some(out, N, sums, 4, 4)
        store_some(out, 2 * N, sums, 8, 4)
        store_some(out, 3 * N, sums, 12, 4)

    @nb.njit(nogil=True)
    def products_of_row(out, x, w, C, N):
        """N outputs of one row."""
        eights = N - N % 8
        for n in range(0, eights, 8):
            one_by_eight(out + 4 * n, x, w + size * n * C, C)
        for n in range(eights, N):
            one_by_one(out + 4 * n, x, w + size * n * C, C)

    @nb.njit(nogil=True)
    def products(out, N, x, X, R, w, C, first, last):
        """Outputs `first` to `last` of R rows, which are X apart in x and N apart in out."""
        if R == 1:
            products_of_row(out + 4 * first, x, w + size * first * C, C, last - first)
            return
        for n in range(first, last, 8):  # rows of weights that stay near while all rows of x pass
            count = min(8, last - n)
            fours = R - R % 4 if count == 8 else 0
            for i in range(0, 2 * fours, 4):  # twice all rows, for four outputs each time
                r, m = (i, n) if i < fours else (i - fours, n + 4)
                four_by_four(out + 4 * (r * N + m), N, x + 4 * r * X, X, w + size * m * C, C)
            for r in range(fours, R):
                products_of_row(out + 4 * (r * N + n), x + 4 * r * X, w + size * n * C, C, count)

    return products_of_row, products


products_of_row, products_float32 = _make(load, load_part, SIZES[FLOAT32])
_, products_bfloat16 = _make(load_bf16, load_bf16_part, SIZES[BFLOAT16])
_, products_int8 = _make(load_int8, load_int8_part, SIZES[INT8])


@nb.njit(nogil=True)
def linear(out, N, x, X, R, kind, w, scale, bias, C, first, last):
    """The same for a kind of weight, with what comes after: scales and a bias for each output, or 0."""
    if kind == FLOAT32:
        products_float32(out, N, x, X, R, w, C, first, last)
    elif kind == BFLOAT16:
        products_bfloat16(out, N, x, X, R, w, C, first, last)
    else:
        products_int8(out, N, x, X, R, w, C, first, last)
    if scale == 0 and bias == 0:
        return
    for r in range(R):
        row = out + 4 * r * N
        for n in range(first, last, WIDTH):
            a = load_part(row, n, last)
            if scale != 0:
                a = a * load_part(scale, n, last)
            if bias != 0:
                a = a + load_part(bias, n, last)
            store_part(row, n, last, a)
