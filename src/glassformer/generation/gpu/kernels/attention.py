"""Attention of one position over the pages of its text.

A head of a row is divided into spans of positions, each a program of its own, so that a long text is read by
many at once; the last of them that is ready joins what they found, in their order. So which sums are made
depends on the position alone, and neither on neighbours nor on how many tokens came at once.

Letters: R rows, H heads, K key-value heads, D head width, E value width, P positions of a page.
"""

import triton
import triton.language as tl

from glassformer.generation.gpu.kernels.functions import wait


@triton.jit
def attend_kernel(
    q,
    keys,
    values,
    tokens_at,
    tables,
    slopes,
    z,
    found,
    arrived,
    H: tl.constexpr,
    K: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    BD: tl.constexpr,
    BE: tl.constexpr,
    P: tl.constexpr,
    TABLE: tl.constexpr,
    WINDOW: tl.constexpr,
    SPAN: tl.constexpr,
    SPANS: tl.constexpr,
    ALONE: tl.constexpr = False,
    EARLY: tl.constexpr = False,
):
    """z (R, H, E) = softmax(q kᵀ) v of scaled queries q (R, H, D), over the positions up to each row's own.

    `slopes` (H) lower scores by distance; with a WINDOW only that many positions are seen. `found`
    (R, H, SPANS, E + 2) is where spans leave their sums, `arrived` (R, H) counts them and is zero in between.
    Of a text whose row walks ALONE only the newest key and value are of this step: all others are loaded
    before the wait.
    """
    row, head, span = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    newest = tl.load(tokens_at + row)
    end, least, start = newest + 1, newest * 0, span * SPAN
    if WINDOW > 0:
        least = tl.maximum(end - WINDOW, 0)
    if (start >= end) | (start + SPAN <= least):
        wait(EARLY)
    else:
        d, e, lane = tl.arange(0, BD), tl.arange(0, BE), tl.arange(0, SPAN)
        slope = 0.0 if slopes is None else tl.load(slopes + head)
        table, group = tables + row * TABLE, head // (H // K)
        if not ALONE:
            wait(EARLY)
        at = start + lane
        seen = (at >= least) & (at < end)
        known = seen & (at < newest) if ALONE else seen
        place = ((tl.load(table + at // P, known, 0).to(tl.int64) * K + group) * P + at % P)[:, None]
        k = tl.load(keys + place * D + d[None, :], known[:, None] & (d < D)[None, :], 0.0)
        v = tl.load(values + place * E + e[None, :], known[:, None] & (e < E)[None, :], 0.0)
        if ALONE:
            own = (tl.load(table + newest // P).to(tl.int64) * K + group) * P + newest % P
            here = newest < start + SPAN
            wait(EARLY)
            # Not from a cache that may have been filled before the wait
            own_key = tl.load(keys + own * D + d, here & (d < D), 0.0, cache_modifier=".cg")
            own_value = tl.load(values + own * E + e, here & (e < E), 0.0, cache_modifier=".cg")
            k = tl.where((at == newest)[:, None], own_key[None, :], k)
            v = tl.where((at == newest)[:, None], own_value[None, :], v)
        query = tl.load(q + (row * H + head) * D + d, d < D, 0.0)
        score = tl.sum(k.to(tl.float32) * query[None, :], 1)
        if slopes is not None:
            score -= slope * (newest - at).to(tl.float32)
        score = tl.where(seen, score, -float("inf"))
        top = tl.max(score)
        weight = tl.exp(score - top)
        amount, mixed = tl.sum(weight), tl.sum(weight[:, None] * v.to(tl.float32), 0)
        out = z + (row * H + head) * E + e
        if SPANS == 1:
            tl.store(out, mixed / amount, e < E)
        else:
            first, last = least // SPAN, (end - 1) // SPAN
            mine = found + (row * H + head) * (SPANS * (E + 2))
            tl.store(mine + span * (E + 2) + e, mixed, e < E)
            tl.store(mine + span * (E + 2) + E, top)
            tl.store(mine + span * (E + 2) + E + 1, amount)
            tl.debug_barrier()  # all of it is there before the count says so
            if tl.atomic_add(arrived + row * H + head, 1, sem="acq_rel") == last - first:
                s = tl.arange(0, triton.next_power_of_2(SPANS))
                came = (s >= first) & (s <= last)
                there = mine + s * (E + 2)
                tops = tl.load(there + E, came, -float("inf"), cache_modifier=".cg")
                amounts = tl.load(there + E + 1, came, 0.0, cache_modifier=".cg")
                both = came[:, None] & (e < E)[None, :]
                all_sums = tl.load(there[:, None] + e[None, :], both, 0.0, cache_modifier=".cg")
                shares = tl.exp(tops - tl.max(tops))
                joined = tl.sum(shares[:, None] * all_sums, 0) / tl.sum(shares * amounts)
                tl.store(out, joined, e < E)
                tl.store(arrived + row * H + head, 0)
