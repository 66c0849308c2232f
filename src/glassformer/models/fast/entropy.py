"""Cross-entropy of rows of scores, which become their gradient in place: the loops.

    p = softmax(s);   loss = −(1 − ε) log p[target] − ε · mean of log p;   ds = p − (1 − ε) onehot − ε / V

Each row passes three times through the nearest memory, and once to and fro through the farther one. A row
without a target has neither loss nor gradient. Scores are float32 or bfloat16, sums float32.

Letters: V vocabulary, a multiple of the lanes; ε label smoothing.
"""

import math
from enum import IntEnum
from pathlib import Path

import numba as nb

from glassformer.core.lanes.functions import exp
from glassformer.core.lanes.sources import fingerprint
from glassformer.core.lanes.together import FIRST, NEXT, PARTS, begin, loop_of_plan, take
from glassformer.core.lanes.vector import (
    LOWEST,
    WIDTH,
    fill,
    fma,
    get,
    get_int,
    inlined,
    larger,
    largest,
    load,
    load_bf16,
    loop,
    put,
    store,
    store_bf16,
    total,
)

AT_ONCE = 16  # rows that make a part


class Plan(IntEnum):
    """The integers of a plan behind those that every plan begins with."""

    ROWS = FIRST
    VOCAB = FIRST + 1
    BYTES = FIRST + 2  # of a score: 4 or 2
    SCORES = FIRST + 3
    TARGETS = FIRST + 4  # int64; below 0: none
    LOSSES = FIRST + 5
    SMOOTHING = FIRST + 6  # where ε lies
    SCRATCH = FIRST + 7  # V numbers for each thread


SIZE = Plan.SCRATCH + 1


def _make(load_scores, store_scores):
    @loop
    def loss_of_row(s, target, V, smoothing, row):
        """One row; `row` is room for V numbers."""
        if target < 0:
            for j in range(0, V, WIDTH):
                store_scores(s, j, fill(0.0))
            return nb.float32(0.0)
        best, sums, sound = fill(LOWEST), fill(0.0), fill(0.0)
        for j in range(0, V, WIDTH):
            x = load_scores(s, j)
            best, sums, sound = larger(best, x), sums + x, fma(x, 0.0, sound)
            store(row, j, x)
        top = largest(best)
        wanted = (nb.float32(1.0) - smoothing) * get(row, target)
        if smoothing > 0:
            wanted += smoothing * total(sums) / nb.float32(V)
        sums = fill(0.0)
        for j in range(0, V, WIDTH):
            e = exp(load(row, j) - top)
            sums = sums + e
            store(row, j, e)
        all_of_it = total(sums) + total(sound)  # `largest` and `exp` hide what is no number, or infinite
        part, spread = nb.float32(1.0) / all_of_it, smoothing / nb.float32(V)
        put(row, target, get(row, target) - (nb.float32(1.0) - smoothing) * all_of_it)
        for j in range(0, V, WIDTH):
            store_scores(s, j, load(row, j) * part - spread)
        return top + nb.float32(math.log(all_of_it)) - wanted

    return loss_of_row


loss_of_float32, loss_of_bfloat16 = _make(load, store), _make(load_bf16, store_bf16)


@inlined
def do_row(plan, row, scratch, smoothing):
    V, size = get_int(plan, Plan.VOCAB), get_int(plan, Plan.BYTES)
    s, target = get_int(plan, Plan.SCORES) + size * V * row, get_int(get_int(plan, Plan.TARGETS), row)
    if size == 4:
        loss = loss_of_float32(s, target, V, smoothing, scratch)
    else:
        loss = loss_of_bfloat16(s, target, V, smoothing, scratch)
    put(get_int(plan, Plan.LOSSES), row, loss)


def compiled(sources):
    """The loop as these sources make it (core/lanes/sources.py)."""

    @loop_of_plan
    def entropy(plan):
        """The part of one thread."""
        scratch = get_int(plan, Plan.SCRATCH) + 4 * begin(plan) * get_int(plan, Plan.VOCAB)
        smoothing = get(get_int(plan, Plan.SMOOTHING), 0)
        while sources:  # never 0: but now it holds on to them
            part = take(plan, NEXT)
            if part >= get_int(plan, PARTS):
                break
            for row in range(AT_ONCE * part, min(AT_ONCE * (part + 1), get_int(plan, Plan.ROWS))):
                do_row(plan, row, scratch, smoothing)

    return entropy


entropy = compiled(fingerprint(Path(__file__).parent))
