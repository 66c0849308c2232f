"""The draw of a row, as sampling.py and noise.py have it, without sorting.

    1  keys_kernel    scores ÷ temperature, and each with its Gumbel number added: its key. Of every tile of
                      the vocabulary the best score, the sum of e to (score − best), the best two keys; of
                      every group of a tile, the best score
    2  settle_kernel  the token with the best key of all. Without filters that is it. Else: is it among the k
                      best, within a share of p, above min_p? What is better than it is counted and added up.
                      If it is not, only what is better can be: the best key of those, and again. Groups
                      whose best score is too low for that are never looked at

Where few tokens can be among the k best, it settles by few.py, and their keys are made there.

PyTorch adds up probabilities in float32, in an order of its own, and keys are kept here in float32. Where the
choice hangs on such a rounding, the answer is UNSURE, and sampling.py has to be asked: so the two never
disagree. Rows that hold no numbers, or none that is finite, are left to it as well.

Letters: R rows, V vocabulary.
"""

import triton
import triton.language as tl

from glassformer.generation.gpu.kernels.few import are_few, choose_of_few, list_groups, scores_of
from glassformer.generation.gpu.kernels.functions import wait
from glassformer.generation.gpu.kernels.keys import (
    MIN_P_SLACK,
    NOTHING,
    OPEN,
    TOP_P_SLACK,
    TOP_P_SLACK_EACH,
    UNSURE,
    is_close,
    judged,
    keyed,
    number,
    ordered,
    tempered,
)


@triton.jit
def keys_kernel(
    logits,
    seed_keys,
    ats,
    bys,
    greedy,
    top_ks,
    keys,
    tops,
    sums,
    best_keys,
    second_keys,
    best_tokens,
    group_tops,
    V: tl.constexpr,
    TILES: tl.constexpr,
    TILE: tl.constexpr,
    GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
    FEW: tl.constexpr,
    MULTIPLIES: tl.constexpr,
    EARLY: tl.constexpr = False,
):
    """Keys (R, V) of logits (R, V), and what is known of tiles (R, TILES) and of groups (R, GROUPS)."""
    tile, row = tl.program_id(0), tl.program_id(1)
    group = tile * (TILE // GROUP) + tl.arange(0, TILE // GROUP)
    token = tile * TILE + tl.arange(0, TILE)
    there = token < V
    by, is_greedy = tl.load(bys + row), tl.load(greedy + row)
    few = are_few(tl.load(top_ks + row), is_greedy, V, GROUPS, FEW)
    wait(EARLY)
    score = tempered(tl.load(logits + row * V + token, there, NOTHING), by, MULTIPLIES)
    key = score
    if (is_greedy == 0) & ~few:
        key = keyed(score, token, seed_keys, ats, row)
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
    group_top = tl.max(tl.reshape(score, (TILE // GROUP, GROUP)), 1)
    tl.store(group_tops + row * GROUPS + group, group_top, group < GROUPS)


@triton.jit
def settle_kernel(
    logits,
    seed_keys,
    ats,
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
    group_tops,
    listed,
    candidates,
    told,
    tokens,
    positions,
    live,
    ROWS: tl.constexpr,
    TOLD: tl.constexpr,
    V: tl.constexpr,
    TILES: tl.constexpr,
    GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
    FEW: tl.constexpr,
    BESIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    MULTIPLIES: tl.constexpr,
    EARLY: tl.constexpr = False,
):
    """The chosen token of each row, or UNSURE; a filter that is not wanted has a value that lets all pass.

    `listed` (R, GROUPS) is room for the groups that are looked at, BLOCK tokens at a time, `candidates`
    (R, FEW) for tokens. `told` (TOLD, ROWS) is the host's memory: a row answers where its position says.
    With `tokens` (R) the next step reads the choice at the next position, without the host; rows that are not
    `live` belong to nobody and stay where they are. A choice that is not sure is read as token 0, and nobody
    reads what comes of it.
    """
    row = tl.program_id(0)
    t = tl.arange(0, triton.next_power_of_2(TILES))
    place, there = row * TILES + t, t < TILES
    k, p, least_share = tl.load(top_ks + row), tl.load(top_ps + row), tl.load(min_ps + row)
    by, greedily = tl.load(bys + row), tl.load(greedy + row)
    few = are_few(k, greedily, V, GROUPS, FEW)
    is_greedy = greedily != 0
    logits += row * V
    keys += row * V
    listed += row * GROUPS
    wait(EARLY)

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
    close = is_close(tl.max(others), key)
    free = is_greedy | ((k >= V) & (p >= 1.0) & (least_share <= 0.0))
    answer = tl.where(free, token, OPEN)
    answer = tl.where(strange | (close & ~is_greedy & ~few), UNSURE, answer)

    group = tl.arange(0, triton.next_power_of_2(GROUPS))
    group_top = tl.load(group_tops + row * GROUPS + group, (group < GROUPS) & (answer == OPEN), NOTHING)
    floor = tl.where(least_share > 0.0, top + tl.log(least_share), NOTHING)
    if few & (answer == OPEN):
        answer = choose_of_few(logits, by, seed_keys, ats, row, tile_tops, group_top, top, k, p, floor,
                               listed, candidates + row * FEW, V, TILES, GROUPS, GROUP, FEW, BESIDE, BLOCK,
                               MULTIPLIES)  # fmt: skip

    # With both top-k and top-p, p is a share of what top-k leaves: the k-th best score, by halving
    both = (answer == OPEN) & (k < V) & (p < 1.0)
    i = tl.arange(0, BLOCK)
    high = ordered(top).to(tl.int64)
    low = tl.where(both, high * 0 - (1 << 31), high)
    while low < high:
        middle = (low + high + 1) >> 1
        found = tl.zeros((BLOCK,), tl.int32)
        for start in range(0, V, BLOCK):
            score = tempered(tl.load(logits + start + i, start + i < V, NOTHING), by, MULTIPLIES)
            found += ((ordered(score) >= middle) & (start + i < V)).to(tl.int32)
        enough = tl.sum(found) >= k
        low, high = tl.where(enough, middle, low), tl.where(enough, high, middle - 1)
    kth = number(low.to(tl.int32))

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

    # The best of those that may be
    while answer == OPEN:
        limit = tempered(tl.load(logits + token), by, MULTIPLIES)
        count = list_groups(listed, group_top, limit)
        more, better = tl.zeros((BLOCK,), tl.int32), tl.zeros((BLOCK,), tl.float32)
        first, next_best = tl.full((BLOCK,), NOTHING, tl.float32), tl.full((BLOCK,), NOTHING, tl.float32)
        whose = tl.full((BLOCK,), V, tl.int32)
        for start in range(0, count, BLOCK // GROUP):
            n, is_there, score = scores_of(listed, start, count, logits, by, V, GROUP, BLOCK, MULTIPLIES)
            before = is_there & ((score > limit) | ((score == limit) & (n < token)))
            more += (is_there & (score > limit)).to(tl.int32)
            better += tl.where(before, tl.exp(score - top), 0.0)
            may_be = before & (score >= floor - MIN_P_SLACK)
            rival = tl.where(may_be, tl.load(keys + n, is_there, NOTHING), NOTHING)
            next_best = tl.maximum(next_best, tl.minimum(first, rival))
            whose = tl.where(rival > first, n, whose)
            first = tl.maximum(first, rival)
        share = tl.sum(better) / everything
        taken, left_out = judged(limit, top, tl.sum(more), share, k, p, slack, floor)
        key = tl.max(first)
        rival_token = tl.min(tl.where(first == key, whose, V))
        close = is_close(tl.max(tl.where(whose == rival_token, next_best, first)), key)
        answer = tl.where(taken, token, tl.where(left_out & ~close, OPEN, UNSURE))
        token = tl.where(answer == OPEN, rival_token, token)
    at = tl.load(ats + row)
    tl.store(told + at % TOLD * ROWS + row, answer)
    if tokens is not None:
        alive = tl.load(live + row)
        tl.store(tokens + row, tl.maximum(answer, 0) * alive)
        tl.store(positions + row, tl.load(positions + row) + alive)
        tl.store(ats + row, at + alive)
