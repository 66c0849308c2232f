"""The draw of one row, as sampling.py and noise.py have it, without sorting, with a few logarithms.

    1  the scores ÷ temperature; the best of them
    2  the k-th best by a heap of k; what is not below it stays
    3  the winner: the best of score + Gumbel number among what stays and reaches min_p
    4  is it within top_p? What is better than it is added up. If not, only what is better can be: again 3

A Gumbel number is at most (ones its hash begins with + 1) · ln 2, since −ln(−ln u) ≤ −ln(1 − u), so most
tokens are out of the race once they are hashed.

PyTorch adds up probabilities in float32, in an order of its own, and rounds logarithms in its own way. Where
the choice hangs on such a rounding, the answer is UNSURE, and sampling.py has to be asked: so the two never
disagree. Rows that hold no numbers, or none that is finite, are left to it as well.

Letters: V vocabulary, N tokens that stay.
"""

import math

import numba as nb
import numpy as np
from llvmlite import ir
from numba import types

from glassformer.core.lanes.functions import exp
from glassformer.core.lanes.vector import (
    WIDTH,
    any_larger,
    any_nan,
    any_reaching,
    before,
    fill,
    get,
    get_double,
    get_int,
    inlined,
    instruction,
    larger,
    largest,
    load,
    load_part,
    put,
    put_int,
    store,
    total,
    where_less,
)
from glassformer.generation.fast.kernels.plan import Draw, Plan
from glassformer.generation.noise import FIRST, GOLDEN, SECOND

SETTINGS = len(Draw)
TEMPERATURE, TOP_K, TOP_P, MIN_P = (int(field) for field in Draw)
UNSURE = -1
TINY = 1e-37  # what is less may be nothing in float32
SCRATCH = 16  # bytes for each token of the vocabulary: tempered scores, a heap, what stays
SAFE_LN2 = math.log(2) + 1e-5  # so much more that no rounding makes a bound too small
CLOSE = 1e-9  # two sums of score and noise that are no further apart are not told apart here
MIN_P_SLACK = 1e-5  # in the logarithm
TOP_P_SLACK = 1e-6  # in the share of better tokens; and for each token that is added up
TOP_P_SLACK_EACH = 2e-8
GROUP, BLOCK = 64, 1024  # tokens that are hashed, and added up, together


@instruction
def leading_ones(typing, x):
    def generate(context, builder, signature, args):
        return builder.ctlz(builder.not_(args[0]), ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


@inlined
def mix(x):
    """The finaliser of splitmix64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(FIRST)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(SECOND)
    return x ^ (x >> np.uint64(31))


@nb.njit(nogil=True)
def bits_of(key, token):
    return mix(key + np.uint64(token + 1) * np.uint64(GOLDEN))


@inlined
def gumbel(bits):
    uniform = (float(bits >> np.uint64(12)) + 0.5) * 2.0**-52
    return -math.log(-math.log(uniform))


@nb.njit(nogil=True)
def temper(out, scores, V, temperature):
    """Scores ÷ temperature; returns the best, or −∞ if there are none that could be compared."""
    best, strange = fill(-np.inf), False
    whole = V - V % WIDTH
    for i in range(0, whole, WIDTH):
        x = load(scores, i) / temperature
        strange = strange or any_nan(x)
        best = larger(best, x)
        store(out, i, x)
    top = largest(best)
    for i in range(whole, V):
        x = nb.float32(get(scores, i) / temperature)
        strange = strange or x != x
        top = max(top, x)
        put(out, i, x)
    return nb.float32(-np.inf) if strange or top == np.inf else top


@nb.njit(nogil=True)
def first_at(x, V, value):
    """The first place of a value that is there."""
    whole = V - V % WIDTH
    for i in range(0, whole, WIDTH):
        if any_reaching(load(x, i), fill(value)):
            for j in range(i, i + WIDTH):
                if get(x, j) >= value:
                    return j
    for j in range(whole, V):
        if get(x, j) >= value:
            return j
    return 0


@nb.njit(nogil=True)
def sink(heap, size, i, value):
    """Let a value sink from place i of a heap with the smallest on top."""
    while 2 * i + 1 < size:
        child = 2 * i + 1
        if child + 1 < size and get(heap, child + 1) < get(heap, child):
            child += 1
        if value <= get(heap, child):
            break
        put(heap, i, get(heap, child))
        i = child
    put(heap, i, value)


@nb.njit(nogil=True)
def kth_best(x, V, k, heap):
    """The k-th largest of V numbers, k < V."""
    for i in range(k):
        put(heap, i, get(x, i))
    for i in range(k // 2 - 1, -1, -1):
        sink(heap, k, i, get(heap, i))
    i = k
    while i < V:
        if i + WIDTH <= V and not any_larger(load(x, i), fill(get(heap, 0))):
            i += WIDTH
            continue
        for j in range(i, min(i + WIDTH, V)):
            if get(x, j) > get(heap, 0):
                sink(heap, k, 0, get(x, j))
        i += WIDTH
    return get(heap, 0)


@nb.njit(nogil=True)
def collect(x, V, least, ids):
    """The places of numbers that are not below the least, in order; how many they are."""
    N, whole = 0, V - V % WIDTH
    for i in range(0, V, WIDTH):
        if i < whole and not any_reaching(load(x, i), fill(least)):
            continue
        for j in range(i, min(i + WIDTH, V)):
            if get(x, j) >= least:
                put_int(ids, N, j)
                N += 1
    return N


@nb.njit(nogil=True)
def promising(x, first, last, key, best, bounds):
    """Whether any of the tokens `first` to `last` could beat the best; `bounds` has room for a number each.

    In two loops, so that the first is made of instructions that hash several tokens at once.
    """
    for i in range(first, last):
        put(bounds, i - first, nb.float32((nb.int32(leading_ones(bits_of(key, i))) + nb.int32(1)) * SAFE_LN2))
    enough = fill(nb.float32(best - 1e-6 * abs(best)))
    for i in range(first, last, WIDTH):
        if any_reaching(load_part(x, i, last) + load_part(bounds, i - first, last - first), enough):
            return True
    return False


@nb.njit(nogil=True)
def winner(x, N, ids, some, key, least, limit, limit_token, bounds):
    """The token with the best sum of score and noise among N tokens, `ids` if only some may be.

    It reaches the least score and ranks before the limit: a larger score, or the same and a smaller id.
    UNSURE if two are too close to say, and if there is none.
    """
    best, token, close = -np.inf, UNSURE, False
    for start in range(0, N, GROUP):
        stop = min(start + GROUP, N)
        if not some and token != UNSURE and not promising(x, start, stop, key, best, bounds):
            continue
        for n in range(start, stop):
            i = get_int(ids, n) if some else n
            score = get(x, i)
            if score < least or score < limit or (score == limit and i >= limit_token):
                continue
            bits = bits_of(key, i)
            if score + (leading_ones(bits) + 1) * SAFE_LN2 < best:
                continue
            value = score + gumbel(bits)
            margin = CLOSE + 1e-12 * abs(value)
            if value > best + margin:
                best, token, close = value, i, False
            elif value > best - margin:
                close = True
                if value > best:
                    best, token = value, i
    return UNSURE if close else token


@nb.njit(nogil=True)
def mass(x, N, ids, some, top, limit, token):
    """Σ e to (score − top) of the tokens that rank before one with this score."""
    amount = 0.0
    if some:
        for n in range(N):
            i = get_int(ids, n)
            score = get(x, i)
            if score > limit or (score == limit and i < token):
                amount += math.exp(float(score) - top)
        return amount
    first, last = 0, token  # those before it count with the same score, those after it do not
    for behind in range(2):
        for start in range(first, last, BLOCK):  # few enough to be added up in float32
            sums, stop = fill(0.0), min(start + BLOCK, last)
            for i in range(start, stop, WIDTH):
                scores = load_part(x, i, stop)
                weights = before(exp(scores - top), i, stop)
                if behind:
                    weights = where_less(limit, scores, weights, 0.0)
                else:
                    weights = where_less(scores, limit, 0.0, weights)
                sums = sums + weights
            amount += total(sums)
        first, last = token + 1, N
    return amount


@nb.njit(nogil=True)
def draw(scores, V, temperature, top_k, top_p, min_p, key, scratch):
    """The chosen token of scores (V), or UNSURE. `scratch` has SCRATCH bytes for each token."""
    x, heap, ids = scratch + 8 * V, scratch + 12 * V, scratch
    greedy = temperature == 0
    top = temper(x, scores, V, nb.float32(1.0 if greedy else temperature))
    if top == -np.inf:
        return UNSURE
    if greedy:
        return first_at(x, V, top)
    N, some = V, top_k < V
    if some:
        N = collect(x, V, kth_best(x, V, top_k, heap), ids)
    least, sure = nb.float32(-np.inf), nb.float32(-np.inf)
    if min_p > 0:
        least, sure = top + math.log(min_p) - MIN_P_SLACK, top + math.log(min_p) + MIN_P_SLACK
    limit, limit_token = nb.float32(-np.inf), V
    everything = mass(x, N, ids, some, top, nb.float32(-np.inf), V) if top_p < 1 else 1.0
    slack = TOP_P_SLACK + TOP_P_SLACK_EACH * N
    while True:
        token = winner(x, N, ids, some, key, least, limit, limit_token, heap)
        if token == UNSURE:
            return UNSURE
        score = get(x, token)
        if score < sure and score != top:
            return UNSURE
        if top_p >= 1:
            return token
        better = mass(x, N, ids, some, top, score, token)
        if (better == 0 and top_p > TINY) or better / everything < top_p - slack:
            return token
        if better / everything < top_p + slack:
            return UNSURE
        limit, limit_token = score, token


@inlined
def settings_of_row(plan, row):
    return plan[Plan.SETTINGS] + 8 * row * SETTINGS


@nb.njit(nogil=True)
def key_of_row(plan, row):
    """What the noise of a row is hashed from."""
    seeds = plan[Plan.SEEDS] + 16 * row
    return mix(mix(np.uint64(get_int(seeds, 0))) + np.uint64(get_int(seeds, 1)))


@nb.njit(nogil=True)
def draw_row(plan, row, me):
    """The choice of one row of scores, as its settings say, into its place."""
    settings = settings_of_row(plan, row)
    token = draw(
        plan[Plan.SCORES] + 4 * row * plan[Plan.VOCAB],
        plan[Plan.VOCAB],
        get_double(settings, TEMPERATURE),
        int(get_double(settings, TOP_K)),
        get_double(settings, TOP_P),
        get_double(settings, MIN_P),
        key_of_row(plan, row),
        plan[Plan.SCRATCH] + me * plan[Plan.SCRATCH_SIZE],
    )
    put_int(plan[Plan.CHOSEN], row, token)
