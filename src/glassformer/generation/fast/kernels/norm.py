"""Norms of single vectors: LayerNorm and RMSNorm, as models/layers.py has them."""

import math

import numba as nb

from glassformer.core.lanes.vector import WIDTH, before, fill, fma, load_part, store_part, total

LAYER, RMS = range(2)


@nb.njit(nogil=True)
def copy(out, x, size):
    for i in range(0, size, WIDTH):
        store_part(out, i, size, load_part(x, i, size))


@nb.njit(nogil=True)
def norm(out, x, size, kind, gamma, beta, eps):
    """Of the numbers of x into `out`, which may be x; without a gamma they are only copied."""
    if gamma == 0:
        copy(out, x, size)
        return
    mean = nb.float32(0.0)
    if kind == LAYER:
        sums = fill(0.0)
        for i in range(0, size, WIDTH):
            sums = sums + load_part(x, i, size)
        mean = nb.float32(total(sums) / nb.float32(size))
    squares = fill(0.0)
    for i in range(0, size, WIDTH):
        centred = before(load_part(x, i, size) - mean, i, size)
        squares = fma(centred, centred, squares)
    inverse = nb.float32(nb.float32(1.0) / math.sqrt(nb.float32(total(squares) / nb.float32(size) + eps)))
    for i in range(0, size, WIDTH):
        normed = (load_part(x, i, size) - mean) * inverse * load_part(gamma, i, size)
        if beta != 0:
            normed = normed + load_part(beta, i, size)
        store_part(out, i, size, normed)
