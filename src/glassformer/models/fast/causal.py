"""Attention under a causal mask, one sequence and one key-value head at a time; eight queries at once.

    forward    s = q kᵀ / √D       for the keys that one of the eight may see
               w = softmax(s)      each query by itself, zeros behind it; L = log Σ exp s is kept
               w = dropout(w)
               z = w v

    backward   w again, from L;  dw = dz vᵀ, where it was not dropped
               ds = w (dw − Σ w dw) / √D,  and Σ w dw = Σ z dz
               dq = ds k,  dk += dsᵀ q,  dv += dropout(w)ᵀ dz

Half of all pairs are never looked at, and no table of them is kept. A weight is dropped by a hash of the
seed, where it stands and nothing else, so the backward pass finds the same ones.

Letters: B batch, H heads, K key-value heads, T positions, D head width. N positions rounded up to columns.
"""

import math
from enum import IntEnum
from pathlib import Path

import numba as nb

from glassformer.core.lanes.functions import exp
from glassformer.core.lanes.sources import fingerprint
from glassformer.core.lanes.together import FIRST, NEXT, PARTS, begin, loop_of_plan, take
from glassformer.core.lanes.vector import (
    FIRST_FACTOR,
    GOLDEN,
    LOWEST,
    SECOND_FACTOR,
    WIDTH,
    before,
    fill,
    fma,
    get,
    get_int,
    inlined,
    kept,
    larger,
    largest,
    load,
    loop,
    put,
    store,
    total,
)
from glassformer.models.fast.tiles import COLUMNS, ROWS, add_turned, rows_times

BITS = 0xFFFFFFFF


class Plan(IntEnum):
    """The integers of a plan behind those that every plan begins with."""

    HEADS = FIRST
    KV_HEADS = FIRST + 1
    POSITIONS = FIRST + 2
    WIDTH = FIRST + 3
    SEED = FIRST + 4
    BOUND = FIRST + 5  # of the hashes below which a weight is dropped; 0: none is
    LSE = FIRST + 6  # L, (B, H, T)
    SCRATCH = FIRST + 7
    SCRATCH_SIZE = FIRST + 8  # numbers for each thread
    TENSORS = FIRST + 9  # then of each tensor its address and the distances of batch, head and position


Q, K, V, Z, DZ, DQ, DK, DV = range(8)  # the tensors, in that order
SIZE = Plan.TENSORS + 4 * 8


def scratch_size(T: int, D: int) -> int:
    """Numbers that a thread works with: keys and values turned, and eight rows of weights and gradients."""
    return (2 * D + 2 * ROWS) * (T + -T % COLUMNS)


@inlined
def start(plan, tensor, batch, head):
    """Where a head of a tensor begins."""
    at = Plan.TENSORS + 4 * tensor
    offset = batch * get_int(plan, at + 1) + head * get_int(plan, at + 2)
    return get_int(plan, at) + 4 * offset


@inlined
def distance(plan, tensor):
    """Between the positions of a tensor."""
    return get_int(plan, Plan.TENSORS + 4 * tensor + 3)


@loop
def transpose(out, N, x, X, T, D):
    """out (D, N) = xᵀ of x (T, D)."""
    for t in range(T):
        for d in range(D):
            put(out, d * N + t, get(x, t * X + d))


@loop
def row_key(seed, row):
    """A number for each row of weights, from which its hashes begin."""
    h = ((row * GOLDEN) ^ seed) & BITS
    h = ((h ^ (h >> 16)) * FIRST_FACTOR) & BITS
    h = ((h ^ (h >> 15)) * SECOND_FACTOR) & BITS
    return h ^ (h >> 16)


@loop
def weigh(row, n, i, scale):
    """Scores of query i become weights, with zeros from i + 1 up to n. Returns log Σ exp of the scores.

    A score that is no number, or infinite, makes all of them no numbers: `largest` and `exp` would hide it.
    """
    whole = (i + 1) - (i + 1) % WIDTH
    best, sound = fill(LOWEST), fill(0.0)
    for j in range(0, whole, WIDTH):
        best = larger(best, load(row, j))
        sound = fma(load(row, j), 0.0, sound)
    top, none = largest(best), total(sound)
    for j in range(whole, i + 1):
        top = max(top, get(row, j))
        none += get(row, j) * nb.float32(0.0)
    sums = fill(0.0)
    for j in range(0, whole, WIDTH):
        e = exp((load(row, j) - top) * scale)
        sums = sums + e
        store(row, j, e)
    if whole < n:
        e = before(exp((load(row, whole) - top) * scale), whole, i + 1)
        sums = sums + e
        store(row, whole, e)
    all_of_it = total(sums) + none
    part = nb.float32(1.0) / all_of_it
    for j in range(0, n, WIDTH):
        store(row, j, load(row, j) * part)
    return top * scale + nb.float32(math.log(all_of_it))


@loop
def attend_head(plan, batch, head, kv_head, scratch):
    """One head's z and L."""
    T, D = get_int(plan, Plan.POSITIONS), get_int(plan, Plan.WIDTH)
    N = T + -T % COLUMNS
    scale = nb.float32(1.0) / nb.float32(math.sqrt(D))
    seed, bound = get_int(plan, Plan.SEED), get_int(plan, Plan.BOUND)
    grown = nb.float32(1.0 / (1.0 - bound / (BITS + 1)))
    q, v, z = start(plan, Q, batch, head), start(plan, V, batch, kv_head), start(plan, Z, batch, head)
    q_, v_, z_ = distance(plan, Q), distance(plan, V), distance(plan, Z)
    first = (batch * get_int(plan, Plan.HEADS) + head) * T
    turned, scores = scratch, scratch + 8 * D * N  # behind the values, which only the way back turns
    for i in range(0, T, ROWS):
        n = i + ROWS
        for j in range(0, n, COLUMNS):
            rows_times(scores + 4 * j, N, q + 4 * i * q_, q_, D, turned + 4 * j, N)
        for r in range(ROWS):
            row = scores + 4 * r * N
            put(get_int(plan, Plan.LSE), first + i + r, weigh(row, n, i + r, scale))
            if bound:
                key = row_key(seed, first + i + r)
                for j in range(0, n, WIDTH):
                    store(row, j, kept(load(row, j), key, j, bound) * grown)
        for d in range(0, D, COLUMNS):
            rows_times(z + 4 * (i * z_ + d), z_, scores, N, n, v + 4 * d, v_)


@loop
def attend_head_back(plan, batch, head, kv_head, scratch):
    """One head's dq, and what it adds to dk and dv of its key-value head."""
    T, D = get_int(plan, Plan.POSITIONS), get_int(plan, Plan.WIDTH)
    N = T + -T % COLUMNS
    scale = nb.float32(1.0) / nb.float32(math.sqrt(D))
    seed, bound = get_int(plan, Plan.SEED), get_int(plan, Plan.BOUND)
    grown = nb.float32(1.0 / (1.0 - bound / (BITS + 1)))
    q, dq = start(plan, Q, batch, head), start(plan, DQ, batch, head)
    z, dz = start(plan, Z, batch, head), start(plan, DZ, batch, head)
    k, dk, dv = (
        start(plan, K, batch, kv_head),
        start(plan, DK, batch, kv_head),
        start(plan, DV, batch, kv_head),
    )
    q_, k_, z_, dz_ = distance(plan, Q), distance(plan, K), distance(plan, Z), distance(plan, DZ)
    dq_, dk_, dv_ = distance(plan, DQ), distance(plan, DK), distance(plan, DV)
    first = (batch * get_int(plan, Plan.HEADS) + head) * T
    keys, values = scratch, scratch + 4 * D * N
    weights = values + 4 * D * N
    gradients = weights + 4 * ROWS * N
    for i in range(0, T, ROWS):
        n = i + ROWS
        for j in range(0, n, COLUMNS):
            rows_times(weights + 4 * j, N, q + 4 * i * q_, q_, D, keys + 4 * j, N)
            rows_times(gradients + 4 * j, N, dz + 4 * i * dz_, dz_, D, values + 4 * j, N)
        for r in range(ROWS):
            row, gradient, t = weights + 4 * r * N, gradients + 4 * r * N, i + r
            a = fill(0.0)
            for d in range(0, D, WIDTH):
                a = fma(load(z, t * z_ + d), load(dz, t * dz_ + d), a)
            mean, whole = total(a), get(get_int(plan, Plan.LSE), first + t)
            key = row_key(seed, first + t)
            for j in range(0, n, WIDTH):
                w = before(exp(load(row, j) * scale - whole), j, t + 1)
                dw = load(gradient, j)
                if bound:
                    dw = kept(dw, key, j, bound) * grown
                    store(row, j, kept(w, key, j, bound) * grown)
                else:
                    store(row, j, w)
                store(gradient, j, w * (dw - mean) * scale)
        for d in range(0, D, COLUMNS):
            rows_times(dq + 4 * (i * dq_ + d), dq_, gradients, N, n, k + 4 * d, k_)
            add_turned(dk + 4 * d, dk_, gradients, N, n, q + 4 * (i * q_ + d), q_)
            add_turned(dv + 4 * d, dv_, weights, N, n, dz + 4 * (i * dz_ + d), dz_)


@loop
def clear(x, X, T, D):
    for t in range(T):
        for d in range(0, D, WIDTH):
            store(x, t * X + d, fill(0.0))


def compiled(sources):
    """Forward and backward as these sources make them (core/lanes/sources.py)."""

    @loop_of_plan
    def forward(plan):
        """The part of one thread."""
        scratch = get_int(plan, Plan.SCRATCH) + 4 * begin(plan) * get_int(plan, Plan.SCRATCH_SIZE)
        T, D, heads = get_int(plan, Plan.POSITIONS), get_int(plan, Plan.WIDTH), get_int(plan, Plan.KV_HEADS)
        group = get_int(plan, Plan.HEADS) // heads
        while sources:  # never 0: but now it holds on to them
            part = take(plan, NEXT)
            if part >= get_int(plan, PARTS):
                break
            batch, kv_head = part // heads, part % heads
            transpose(scratch, T + -T % COLUMNS, start(plan, K, batch, kv_head), distance(plan, K), T, D)
            for head in range(kv_head * group, (kv_head + 1) * group):
                attend_head(plan, batch, head, kv_head, scratch)

    @loop_of_plan
    def backward(plan):
        scratch = get_int(plan, Plan.SCRATCH) + 4 * begin(plan) * get_int(plan, Plan.SCRATCH_SIZE)
        T, D, heads = get_int(plan, Plan.POSITIONS), get_int(plan, Plan.WIDTH), get_int(plan, Plan.KV_HEADS)
        N, group = T + -T % COLUMNS, get_int(plan, Plan.HEADS) // heads
        while sources:
            part = take(plan, NEXT)
            if part >= get_int(plan, PARTS):
                break
            batch, kv_head = part // heads, part % heads
            transpose(scratch, N, start(plan, K, batch, kv_head), distance(plan, K), T, D)
            transpose(scratch + 4 * D * N, N, start(plan, V, batch, kv_head), distance(plan, V), T, D)
            clear(start(plan, DK, batch, kv_head), distance(plan, DK), T, D)
            clear(start(plan, DV, batch, kv_head), distance(plan, DV), T, D)
            for head in range(kv_head * group, (kv_head + 1) * group):
                attend_head_back(plan, batch, head, kv_head, scratch)

    return forward, backward


forward, backward = compiled(fingerprint(Path(__file__).parent))
