"""Products of eight rows at a time with thirty-two columns: the numbers in between stay in the processor.

Rows may lie anywhere at equal distances; all distances are counted in numbers. Sums go over j in order.
"""

from glassformer.core.lanes.vector import WIDTH, fill, fma, get, inlined, load, store

ROWS, COLUMNS = 8, 2 * WIDTH


@inlined
def rows_times(out, Y, w, W, n, x, X):
    """out[r] = Σ_j w[r, j] · x[j] for eight rows r, j < n and thirty-two columns of x."""
    a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = fill(0.0)
    b0 = b1 = b2 = b3 = b4 = b5 = b6 = b7 = fill(0.0)
    at = 0
    for j in range(n):
        left, right = load(x, at), load(x, at + WIDTH)
        at += X
        c = fill(get(w, j))
        a0, b0 = fma(c, left, a0), fma(c, right, b0)
        c = fill(get(w, j + W))
        a1, b1 = fma(c, left, a1), fma(c, right, b1)
        c = fill(get(w, j + 2 * W))
        a2, b2 = fma(c, left, a2), fma(c, right, b2)
        c = fill(get(w, j + 3 * W))
        a3, b3 = fma(c, left, a3), fma(c, right, b3)
        c = fill(get(w, j + 4 * W))
        a4, b4 = fma(c, left, a4), fma(c, right, b4)
        c = fill(get(w, j + 5 * W))
        a5, b5 = fma(c, left, a5), fma(c, right, b5)
        c = fill(get(w, j + 6 * W))
        a6, b6 = fma(c, left, a6), fma(c, right, b6)
        c = fill(get(w, j + 7 * W))
        a7, b7 = fma(c, left, a7), fma(c, right, b7)
    put_row(out, a0, b0)
    put_row(out + 4 * Y, a1, b1)
    put_row(out + 8 * Y, a2, b2)
    put_row(out + 12 * Y, a3, b3)
    put_row(out + 16 * Y, a4, b4)
    put_row(out + 20 * Y, a5, b5)
    put_row(out + 24 * Y, a6, b6)
    put_row(out + 28 * Y, a7, b7)


@inlined
def add_turned(out, Y, w, W, n, x, X):
    """out[j] += Σ_r w[r, j] · x[r] for eight rows r, j < n and thirty-two columns of x."""
    a0, b0 = load(x, 0), load(x, WIDTH)
    a1, b1 = load(x, X), load(x, X + WIDTH)
    a2, b2 = load(x, 2 * X), load(x, 2 * X + WIDTH)
    a3, b3 = load(x, 3 * X), load(x, 3 * X + WIDTH)
    a4, b4 = load(x, 4 * X), load(x, 4 * X + WIDTH)
    a5, b5 = load(x, 5 * X), load(x, 5 * X + WIDTH)
    a6, b6 = load(x, 6 * X), load(x, 6 * X + WIDTH)
    a7, b7 = load(x, 7 * X), load(x, 7 * X + WIDTH)
    for j in range(n):
        left, right = load(out, 0), load(out, WIDTH)
        c = fill(get(w, j))
        left, right = fma(c, a0, left), fma(c, b0, right)
        c = fill(get(w, j + W))
        left, right = fma(c, a1, left), fma(c, b1, right)
        c = fill(get(w, j + 2 * W))
        left, right = fma(c, a2, left), fma(c, b2, right)
        c = fill(get(w, j + 3 * W))
        left, right = fma(c, a3, left), fma(c, b3, right)
        c = fill(get(w, j + 4 * W))
        left, right = fma(c, a4, left), fma(c, b4, right)
        c = fill(get(w, j + 5 * W))
        left, right = fma(c, a5, left), fma(c, b5, right)
        c = fill(get(w, j + 6 * W))
        left, right = fma(c, a6, left), fma(c, b6, right)
        c = fill(get(w, j + 7 * W))
        left, right = fma(c, a7, left), fma(c, b7, right)
        put_row(out, left, right)
        out += 4 * Y


@inlined
def put_row(out, left, right):
    store(out, 0, left)
    store(out, WIDTH, right)
