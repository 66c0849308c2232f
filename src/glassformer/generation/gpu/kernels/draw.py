"""The draw of a row, as sampling.py and noise.py have it, without sorting.

    1  keys_kernel    scores ÷ temperature, and each with its Gumbel number added: its key. Of every tile of
                      the vocabulary the best score, the sum of e to (score − best), the best two keys
    2  settle_kernel  the token with the best key of all. Without filters that is it. Else: is it among the k
                      best, within a share of p, above min_p? What is better than it is counted and added up.
                      If it is not, only what is better can be: the best key of those, and again. With top-k
                      it starts with fewer: k tiles have scores as good as the k-th best of the tiles' best
                      ones, so what is below that is not among the k best

PyTorch adds up probabilities in float32, in an order of its own, and keys are kept here in float32. Where the
choice hangs on such a rounding, the answer is UNSURE, and sampling.py has to be asked: so the two never
disagree. Rows that hold no numbers, or none that is finite, are left to it as well.

Letters: R rows, V vocabulary.
"""

import triton
import triton.language as tl

from glassformer.generation.noise import FIRST as FIRST_FACTOR
from glassformer.generation.noise import GOLDEN as GOLDEN_STEP
from glassformer.generation.noise import SECOND as SECOND_FACTOR

FIRST, SECOND, GOLDEN = tl.constexpr(FIRST_FACTOR), tl.constexpr(SECOND_FACTOR), tl.constexpr(GOLDEN_STEP)
UNSURE, OPEN = tl.constexpr(-1), tl.constexpr(-2)  # not to be said here; not known yet
TINY = tl.constexpr(1e-37)  # what is less may be nothing in float32
CLOSE, CLOSE_SHARE = tl.constexpr(1e-6), tl.constexpr(4e-7)  # keys no further apart are not told apart
MIN_P_SLACK = tl.constexpr(1e-5)  # in the logarithm
TOP_P_SLACK, TOP_P_SLACK_EACH = tl.constexpr(1e-6), tl.constexpr(2e-8)  # in the share of better tokens
NOTHING = tl.constexpr(-float("inf"))


@triton.jit
def _mix(bits):
    bits = (bits ^ (bits >> 30)) * FIRST
    bits = (bits ^ (bits >> 27)) * SECOND
    return bits ^ (bits >> 31)


@triton.jit
def gumbel(key, token):
    """Twin of `noise.gumbel`: the number of a token in a row with this key, in double precision."""
    bits = _mix(key + (token + 1).to(tl.uint64) * GOLDEN)
    uniform = ((bits >> 12).to(tl.float64) + 0.5) * 2.220446049250313e-16  # 2⁻⁵²
    return -tl.log(-tl.log(uniform))


@triton.jit
def tempered(logit, by, MULTIPLIES: tl.constexpr):
    """A score ÷ temperature, to the last bit as PyTorch computes it on this device."""
    return logit * by if MULTIPLIES else logit / by


@triton.jit
def keys_kernel(
    logits,
    seed_keys,
    ats,
    bys,
    greedy,
    keys,
    tops,
    sums,
    best_keys,
    second_keys,
    best_tokens,
    V: tl.constexpr,
    TILES: tl.constexpr,
    TILE: tl.constexpr,
    MULTIPLIES: tl.constexpr,
):
    """Keys (R, V) of logits (R, V), and what is known of each of the tiles (R, TILES)."""
    tile, row = tl.program_id(0), tl.program_id(1)
    token = tile * TILE + tl.arange(0, TILE)
    there = token < V
    score = tempered(tl.load(logits + row * V + token, there, NOTHING), tl.load(bys + row), MULTIPLIES)
    key = score
    if tl.load(greedy + row) == 0:
        at = tl.load(ats + row).to(tl.uint64, bitcast=True)
        row_key = _mix(tl.load(seed_keys + row).to(tl.uint64, bitcast=True) + at)
        key = (score.to(tl.float64) + gumbel(row_key, token)).to(tl.float32)
    tl.store(keys + row * V + token, key, there)
    strange = tl.sum((score != score).to(tl.int32)) > 0
    top = tl.max(score)
    finite = tl.where(top == NOTHING, 0.0, top)
    best = tl.max(key)
    which = tl.min(tl.where(key == best, token, V))
    place = row * TILES + tile
    tl.store(tops + place, tl.where(strange, float("inf"), top))
    tl.store(sums + place, tl.sum(tl.exp(score - finite)))
    tl.store(best_keys + place, best)
    tl.store(second_keys + place, tl.max(tl.where(token == which, NOTHING, key)))
    tl.store(best_tokens + place, which)


@triton.jit
def ordered(x):
    """float32 as int32, in the same order."""
    bits = x.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def settle_kernel(
    logits,
    bys,
    greedy,
    top_ks,
    top_ps,
    min_ps,
    keys,
    tops,
    sums,
    best_keys,
    second_keys,
    best_tokens,
    chosen,
    V: tl.constexpr,
    TILES: tl.constexpr,
    BLOCK: tl.constexpr,
    MULTIPLIES: tl.constexpr,
):
    """The chosen token of each row, or UNSURE; a filter that is not wanted has a value that lets all pass."""
    row = tl.program_id(0)
    t = tl.arange(0, triton.next_power_of_2(TILES))
    place, there = row * TILES + t, t < TILES
    k, p, least_share = tl.load(top_ks + row), tl.load(top_ps + row), tl.load(min_ps + row)
    by, is_greedy = tl.load(bys + row), tl.load(greedy + row) != 0
    logits += row * V
    keys += row * V
    i = tl.arange(0, BLOCK)

    # The best of all
    tile_tops = tl.load(tops + place, there, NOTHING)
    top = tl.max(tile_tops)
    strange = (top == NOTHING) | (top == float("inf"))
    top = tl.where(strange, 0.0, top)
    tile_best = tl.load(best_keys + place, there, NOTHING)
    key = tl.max(tile_best)
    token = tl.min(tl.where(tile_best == key, tl.load(best_tokens + place, there, V), V))
    second = tl.load(second_keys + place, there, NOTHING)
    others = tl.where(tl.load(best_tokens + place, there, V) == token, second, tile_best)
    close = tl.max(others) > key - (CLOSE + CLOSE_SHARE * tl.abs(key))
    free = is_greedy | ((k >= V) & (p >= 1.0) & (least_share <= 0.0))
    limited = (k <= TILES) & (k < V) & ~free
    answer = tl.where(free, token, OPEN)
    answer = tl.where(strange | (close & ~is_greedy & ~limited), UNSURE, answer)

    # With top-k, the best of those that may be among the k best
    limited &= answer == OPEN
    rank = tl.sum(((tile_tops[None, :] > tile_tops[:, None]) & limited).to(tl.int32), 1)
    bound = tl.min(tl.where((rank < k) & there, tile_tops, float("inf")))
    first, next_best = tl.full((BLOCK,), NOTHING, tl.float32), tl.full((BLOCK,), NOTHING, tl.float32)
    whose = tl.full((BLOCK,), V, tl.int32)
    for start in range(0, tl.where(limited, V, 0), BLOCK):
        n = start + i
        score = tempered(tl.load(logits + n, n < V, NOTHING), by, MULTIPLIES)
        rival = tl.where(score >= bound, tl.load(keys + n, (n < V) & (score >= bound), NOTHING), NOTHING)
        next_best = tl.maximum(next_best, tl.minimum(first, rival))
        whose = tl.where(rival > first, n, whose)
        first = tl.maximum(first, rival)
    if limited:
        key = tl.max(first)
        token = tl.min(tl.where(first == key, whose, V))
        second_key = tl.max(tl.where(whose == token, next_best, first))
        close = (key == NOTHING) | (second_key > key - (CLOSE + CLOSE_SHARE * tl.abs(key)))
        answer = tl.where(close, UNSURE, OPEN)

    # With both top-k and top-p, p is a share of what top-k leaves: the k-th best score, by halving
    both = (answer == OPEN) & (k < V) & (p < 1.0)
    high = ordered(top).to(tl.int64)
    low = tl.where(both, high * 0 - (1 << 31), high)
    while low < high:
        middle = (low + high + 1) >> 1
        count = tl.zeros((BLOCK,), tl.int32)
        for start in range(0, V, BLOCK):
            score = tempered(tl.load(logits + start + i, start + i < V, NOTHING), by, MULTIPLIES)
            count += ((ordered(score) >= middle) & (start + i < V)).to(tl.int32)
        enough = tl.sum(count) >= k
        low, high = tl.where(enough, middle, low), tl.where(enough, high, middle - 1)
    bits = low.to(tl.int32)
    kth = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)

    # All that there is to share
    everything = tl.sum(tl.load(sums + place, there, 0.0) * tl.exp(tl.where(there, tile_tops - top, 0.0)))
    kept = tl.zeros((BLOCK,), tl.float32)
    kept_count = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, tl.where(both, V, 0), BLOCK):
        score = tempered(tl.load(logits + start + i, start + i < V, NOTHING), by, MULTIPLIES)
        kept += tl.where(score >= kth, tl.exp(score - top), 0.0)
        kept_count += (score >= kth).to(tl.int32)
    everything = tl.where(both, tl.sum(kept), everything)
    slack = TOP_P_SLACK + TOP_P_SLACK_EACH * tl.where(both, tl.sum(kept_count), V).to(tl.float32)
    floor = tl.where(least_share > 0.0, top + tl.log(least_share), NOTHING)

    # The best of those that may be
    while answer == OPEN:
        limit = tempered(tl.load(logits + token), by, MULTIPLIES)
        more, better = tl.zeros((BLOCK,), tl.int32), tl.zeros((BLOCK,), tl.float32)
        first, next_best = tl.full((BLOCK,), NOTHING, tl.float32), tl.full((BLOCK,), NOTHING, tl.float32)
        whose = tl.full((BLOCK,), V, tl.int32)
        for start in range(0, V, BLOCK):
            n = start + i
            score = tempered(tl.load(logits + n, n < V, NOTHING), by, MULTIPLIES)
            before = (n < V) & ((score > limit) | ((score == limit) & (n < token)))
            more += (score > limit).to(tl.int32)
            better += tl.where(before, tl.exp(score - top), 0.0)
            may_be = before & (score >= floor - MIN_P_SLACK)
            rival = tl.where(may_be, tl.load(keys + n, n < V, NOTHING), NOTHING)
            next_best = tl.maximum(next_best, tl.minimum(first, rival))
            whose = tl.where(rival > first, n, whose)
            first = tl.maximum(first, rival)
        share = tl.sum(better) / everything
        among_best = tl.sum(more) < k
        within = (p >= 1.0) | ((share == 0.0) & (p > TINY)) | (share < p - slack)
        beyond = (p < 1.0) & (share >= p + slack)
        likely = (limit >= floor + MIN_P_SLACK) | (limit == top)
        unlikely = limit < floor - MIN_P_SLACK
        taken = among_best & within & likely
        left_out = (~among_best) | (beyond & ~((share == 0.0) & (p > TINY))) | (unlikely & (limit != top))
        key = tl.max(first)
        rival_token = tl.min(tl.where(first == key, whose, V))
        second_key = tl.max(tl.where(whose == rival_token, next_best, first))
        close = (key == NOTHING) | (second_key > key - (CLOSE + CLOSE_SHARE * tl.abs(key)))
        answer = tl.where(taken, token, tl.where(left_out & ~close, OPEN, UNSURE))
        token = tl.where(answer == OPEN, rival_token, token)
    tl.store(chosen + row, answer)
