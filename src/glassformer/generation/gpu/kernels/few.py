"""The draw from the k best where k is small: few tokens can be among them, and each is compared with each.

    1  bound   a score that k tokens reach, since k tiles, or k groups, have best ones as good
    2  list    the groups whose best score reaches it, then their tokens that do; where those are too many,
               the bound is raised as long as k tokens reach it
    3  pairs   how many are better than a token, and what they have together: so the filters know each at once
    4  keys    of those that the filters leave

Letters: V vocabulary.
"""

import triton
import triton.language as tl

from glassformer.generation.gpu.kernels.keys import (
    NOTHING,
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
def are_few(k, greedy, V: tl.constexpr, GROUPS: tl.constexpr, FEW: tl.constexpr):
    """Whether a row is drawn by comparing each of few tokens with each."""
    return (greedy == 0) & (k < V) & (((k <= FEW // 2) & (k <= GROUPS)) | (V <= FEW))


@triton.jit
def list_groups(listed, group_top, least):
    """Name the groups whose best score is at least that, and more than nothing; how many there are."""
    tl.debug_barrier()  # whoever still reads the list before
    good = ((group_top >= least) & (group_top > NOTHING)).to(tl.int32)
    tl.store(listed + tl.cumsum(good, 0) - 1, tl.arange(0, group_top.shape[0]), good > 0)
    tl.debug_barrier()
    return tl.sum(good)


@triton.jit
def scores_of(
    listed,
    first,
    count,
    logits,
    by,
    V: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK: tl.constexpr,
    MULTIPLIES: tl.constexpr,
):
    """The tokens of some groups of the list, whether they are there, and their scores."""
    i = tl.arange(0, BLOCK)
    place = first + i // GROUP
    token = tl.load(listed + place, place < count, 0) * GROUP + i % GROUP
    there = (place < count) & (token < V)
    return token, there, tempered(tl.load(logits + token, there, NOTHING), by, MULTIPLIES)


@triton.jit
def first_bound(tile_tops, group_top, top, k, TILES: tl.constexpr, GROUPS: tl.constexpr, MOST: tl.constexpr):
    """A score that at least k tokens reach, and where that can be no more than MOST groups; `ordered`."""
    t = tl.arange(0, tile_tops.shape[0])
    rank = tl.sum((tile_tops[None, :] > tile_tops[:, None]).to(tl.int32), 1)
    bound = tl.min(tl.where((rank < k) & (t < TILES), tile_tops, float("inf")))
    low = ordered(tl.where(k <= TILES, bound, NOTHING)).to(tl.int64)
    order = ordered(group_top).to(tl.int64)
    high = ordered(top).to(tl.int64)
    reached = tl.where(k <= GROUPS, tl.sum((order >= low).to(tl.int32)), 0)
    while (low < high) & (reached > MOST):
        middle = (low + high + 1) >> 1
        count = tl.sum((order >= middle).to(tl.int32))
        enough = count >= k
        low, high = tl.where(enough, middle, low), tl.where(enough, high, middle - 1)
        reached = tl.where(enough, count, reached)
    return low


@triton.jit
def list_tokens(
    candidates,
    bound,
    listed,
    groups,
    logits,
    by,
    V: tl.constexpr,
    GROUP: tl.constexpr,
    FEW: tl.constexpr,
    BLOCK: tl.constexpr,
    MULTIPLIES: tl.constexpr,
):
    """Name up to FEW tokens of the listed groups whose scores reach the bound; how many do."""
    tl.debug_barrier()  # whoever still reads the list before
    count = 0
    for start in range(0, groups, BLOCK // GROUP):
        token, there, score = scores_of(listed, start, groups, logits, by, V, GROUP, BLOCK, MULTIPLIES)
        good = (there & (score >= bound) & (score > NOTHING)).to(tl.int32)
        place = count + tl.cumsum(good, 0) - 1
        tl.store(candidates + place, token, (good > 0) & (place < FEW))
        count += tl.sum(good)
    tl.debug_barrier()
    return count


@triton.jit
def choose_of_few(
    logits,
    by,
    seed_keys,
    ats,
    row,
    tile_tops,
    group_top,
    top,
    k,
    p,
    floor,
    listed,
    candidates,
    V: tl.constexpr,
    TILES: tl.constexpr,
    GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
    FEW: tl.constexpr,
    BESIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    MULTIPLIES: tl.constexpr,
):
    """The chosen token of a row that is drawn from its k best. It is UNSURE also where more than FEW are as
    good as the k-th.
    """
    low = first_bound(tile_tops, group_top, top, k, TILES, GROUPS, FEW * 3 // 4)
    bound = number(low.to(tl.int32))
    groups = list_groups(listed, group_top, bound)
    count = list_tokens(candidates, bound, listed, groups, logits, by, V, GROUP, FEW, BLOCK, MULTIPLIES)
    high = ordered(top).to(tl.int64)
    while (count > FEW) & (low < high):
        middle = (low + high + 1) >> 1
        bound = number(middle.to(tl.int32))
        reaching = list_tokens(
            candidates, bound, listed, groups, logits, by, V, GROUP, FEW, BLOCK, MULTIPLIES
        )
        enough = reaching >= k
        low, high = tl.where(enough, middle, low), tl.where(enough, high, middle - 1)
        count = tl.where(enough, reaching, count)

    # Each beside each: how many are better, and what they have together
    i = tl.arange(0, FEW)
    there = i < tl.minimum(count, FEW)
    token = tl.load(candidates + i, there, V)
    score = tempered(tl.load(logits + token, there, NOTHING), by, MULTIPLIES)
    more, better = tl.zeros((FEW,), tl.int32), tl.zeros((FEW,), tl.float32)
    for start in range(0, tl.minimum(count, FEW), BESIDE):
        j = start + tl.arange(0, BESIDE)
        other = tl.load(candidates + j, j < count, V)
        rival = tempered(tl.load(logits + other, j < count, NOTHING), by, MULTIPLIES)[None, :]
        above = rival > score[:, None]
        before = above | ((rival == score[:, None]) & (other[None, :] < token[:, None]))
        more += tl.sum(above.to(tl.int32), 1)
        better += tl.sum(tl.where(before, tl.exp(rival - top), 0.0), 1)

    # p is a share of what top-k leaves
    kept = there & (more < k)
    everything = tl.sum(tl.where(kept, tl.exp(score - top), 0.0))
    slack = TOP_P_SLACK + TOP_P_SLACK_EACH * tl.sum(kept.to(tl.int32)).to(tl.float32)
    taken, left_out = judged(score, top, more, better / everything, k, p, slack, floor)
    key = tl.where(left_out, NOTHING, keyed(score, token, seed_keys, ats, row))
    key = tl.where(there, key, NOTHING)
    best = tl.max(key)
    which = tl.min(tl.where(there & (key == best), token, V))
    close = is_close(tl.max(tl.where(token == which, NOTHING, key)), best)
    sure = tl.max((taken & (token == which)).to(tl.int32)) > 0
    return tl.where(sure & ~close & (count <= FEW), which, UNSURE)
