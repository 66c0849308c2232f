"""Scores of those tokens alone that can be chosen: most of a large vocabulary is ruled out by a rough look.

The unembedding has a rough copy of whole numbers from −127 to 127, a quarter of float32's bytes. With
w = scale · q + e for each of its rows, a score w·x differs from the estimate scale · (q·x) by at most |e| |x|
(Cauchy and Schwarz), and |e| is known for every row. So each score has a bound below it and one above:

    1  estimate  scale · (q·x) of all tokens                               some tokens are a part
    2  sift      what must a token reach to matter? By the bounds below    a row
                 (the best, the k-th best, the race of the draw). Those
                 whose bounds above reach it are found
    3  weigh     the scores of those, from the weights themselves; all     some of them
                 others are −∞

The draw then gives what it would have given: whatever it could choose is there, with the score that it has
anyhow, to the last bit. Where too many are found all scores are made after all. A filter that adds up all
probabilities (top-p without top-k) cannot be sifted for.

A score outside its bounds says that the copy is not one of these weights; it is told. Scores that were ruled
out are not looked at: the copy must be renewed whenever weights change.

Letters: V vocabulary, C model width.
"""

import math

import numba as nb
import numpy as np

from glassformer.core.lanes.vector import (
    WIDTH,
    any_nan,
    any_reaching,
    fill,
    fma,
    get,
    get_double,
    get_int,
    larger,
    largest,
    load_part,
    put,
    put_int,
    store_part,
    total,
)
from glassformer.generation.fast.kernels.draw import (
    GROUP,
    MIN_P,
    MIN_P_SLACK,
    SAFE_LN2,
    TEMPERATURE,
    TOP_K,
    bits_of,
    gumbel,
    key_of_row,
    kth_best,
    leading_ones,
    promising,
    settings_of_row,
)
from glassformer.generation.fast.kernels.plan import Plan
from glassformer.generation.fast.kernels.products import INT8, linear

ALL = -1  # in place of a count: too many
SOME, MANY = 8, 128  # tokens of a part, where some are found, and where all are scored
FEW = 8  # at most one token in so many is worth the search
SAFE = 1.0 + 1e-5  # makes up for the rounding of a length
RACE_SLACK = 1e-6  # of the race, relative, more than what draw.py calls close


@nb.njit(nogil=True)
def estimate(plan, x, first, last):
    """Rough scores of tokens `first` to `last` for all rows x (R, C); their scores are −∞ for now."""
    C, V, count = plan[Plan.WIDTH], plan[Plan.VOCAB], plan[Plan.SCORED]
    linear(
        plan[Plan.ESTIMATES],
        V,
        x,
        C,
        count,
        INT8,
        plan[Plan.SIEVE],
        plan[Plan.SIEVE_SCALE],
        0,
        C,
        first,
        last,
    )
    nothing = fill(-np.inf)
    for r in range(count):
        for i in range(first, last, WIDTH):
            store_part(plan[Plan.SCORES] + 4 * r * V, i, last, nothing)


@nb.njit(nogil=True)
def length_of(x, C):
    """|x|, or a little more."""
    squares = fill(0.0)
    for i in range(0, C, WIDTH):
        part = load_part(x, i, C)
        squares = fma(part, part, squares)
    return nb.float32(math.sqrt(total(squares)) * SAFE)


@nb.njit(nogil=True)
def bound(out, estimates, errors, V, length):
    """Estimates + errors · length, and the largest of them; not a number if any is none."""
    best, strange = fill(-np.inf), False
    for i in range(0, V, WIDTH):
        x = fma(load_part(errors, i, V), fill(length), load_part(estimates, i, V))
        strange = strange or any_nan(x)
        if i + WIDTH <= V:
            best = larger(best, x)
        store_part(out, i, V, x)
    top = largest(best)
    for i in range(V - V % WIDTH, V):
        top = max(top, get(out, i))
    return nb.float32(np.nan) if strange else top


@nb.njit(nogil=True)
def divide(x, V, temperature):
    for i in range(0, V, WIDTH):
        store_part(x, i, V, load_part(x, i, V) / temperature)


@nb.njit(nogil=True)
def race(x, V, key, bounds):
    """The best sum of x and noise."""
    best = -np.inf
    for start in range(0, V, GROUP):
        stop = min(start + GROUP, V)
        if not promising(x, start, stop, key, best, bounds):
            continue
        for i in range(start, stop):
            bits = bits_of(key, i)
            if get(x, i) + (leading_ones(bits) + 1) * SAFE_LN2 >= best:
                best = max(best, get(x, i) + gumbel(bits))
    return best


@nb.njit(nogil=True)
def runners(x, V, key, best, bounds, ids, most):
    """The tokens whose sum of x and noise is not below the best; how many they are, or ALL."""
    least, N = best - RACE_SLACK * (1.0 + abs(best)), 0
    for start in range(0, V, GROUP):
        stop = min(start + GROUP, V)
        if not promising(x, start, stop, key, least, bounds):
            continue
        for i in range(start, stop):
            bits = bits_of(key, i)
            if get(x, i) + (leading_ones(bits) + 1) * SAFE_LN2 >= least and get(x, i) + gumbel(bits) >= least:
                if most == N:
                    return ALL
                put_int(ids, N, i)
                N += 1
    return N


@nb.njit(nogil=True)
def reaching(x, V, least, ids, most):
    """The tokens with x not below the least; how many they are, or ALL."""
    N, wide = 0, fill(least)
    for i in range(0, V, WIDTH):
        if i + WIDTH <= V and not any_reaching(load_part(x, i, V), wide):
            continue
        for j in range(i, min(i + WIDTH, V)):
            if get(x, j) >= least:
                if most == N:
                    return ALL
                put_int(ids, N, j)
                N += 1
    return N


@nb.njit(nogil=True)
def sift(plan, row, x, me):
    """Find the tokens that a row can choose; x (C) is what its scores are made from."""
    V, C = plan[Plan.VOCAB], plan[Plan.WIDTH]
    most, scratch = V // FEW, plan[Plan.SCRATCH] + me * plan[Plan.SCRATCH_SIZE]
    bounds, heap = scratch + 8 * V, scratch + 12 * V
    estimates, errors = plan[Plan.ESTIMATES] + 4 * row * V, plan[Plan.SIEVE_ERROR]
    ids, counts, settings = (
        plan[Plan.FOUND] + 8 * row * most,
        plan[Plan.FOUND_COUNTS],
        settings_of_row(plan, row),
    )
    temperature, length = nb.float32(get_double(settings, TEMPERATURE)), length_of(x, C)
    top_k, min_p = int(get_double(settings, TOP_K)), get_double(settings, MIN_P)
    put(plan[Plan.LENGTHS], row, length)
    least = bound(bounds, estimates, errors, V, -length)
    if not abs(least) < np.inf:
        put_int(counts, row, ALL)
        return
    if temperature > 0 and top_k >= V and min_p <= 0:
        key = key_of_row(plan, row)
        divide(bounds, V, temperature)
        best = race(bounds, V, key, heap)
        bound(bounds, estimates, errors, V, length)
        divide(bounds, V, temperature)
        put_int(counts, row, runners(bounds, V, key, best, heap, ids, most))
        return
    if temperature > 0:
        if top_k < V:
            least = kth_best(bounds, V, top_k, heap)
        else:
            least = nb.float32(least + temperature * (math.log(min_p) - 2 * MIN_P_SLACK))
    bound(bounds, estimates, errors, V, length)
    put_int(counts, row, reaching(bounds, V, least, ids, most))


@nb.njit(nogil=True)
def parts_found(plan, row):
    """In how many parts a row's scores are made."""
    found = get_int(plan[Plan.FOUND_COUNTS], row)
    return (found + SOME - 1) // SOME if found >= 0 else (plan[Plan.VOCAB] + MANY - 1) // MANY


@nb.njit(nogil=True)
def weigh(plan, row, x, part):
    """The scores of some tokens that were found for a row, or of some of all."""
    V, C, most = plan[Plan.VOCAB], plan[Plan.WIDTH], plan[Plan.VOCAB] // FEW
    matrix, scale, kind = plan[Plan.UNEMBEDDING], plan[Plan.UNEMBEDDING_SCALE], plan[Plan.KIND]
    ids, scores = plan[Plan.FOUND] + 8 * row * most, plan[Plan.SCORES] + 4 * row * V
    found = get_int(plan[Plan.FOUND_COUNTS], row)
    if found < 0:
        linear(scores, V, x, C, 1, kind, matrix, scale, 0, C, part * MANY, min(V, (part + 1) * MANY))
        return
    for n in range(part * SOME, min(found, (part + 1) * SOME)):
        i = get_int(ids, n)
        linear(scores, V, x, C, 1, kind, matrix, scale, 0, C, i, i + 1)
        estimated, error = get(plan[Plan.ESTIMATES] + 4 * row * V, i), get(plan[Plan.SIEVE_ERROR], i)
        if not abs(get(scores, i) - estimated) <= error * get(plan[Plan.LENGTHS], row):
            put_int(plan[Plan.STRANGE], row, 1)
