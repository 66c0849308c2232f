"""One walk through a model: rows of (token, position, page table) in, scores and choices out.

    embed     the rows' vectors                             by the thread that begins the walk
    per layer
      1       norm, queries, keys, values; into the pages   a head of one of these is a part
      2       attention                                     a row and a head
      3       W_O, onto the stream                          some outputs
      4       norm, up, activation                          some hidden units
      5       down, onto the stream                         some outputs
    scores    last norm, unembedding                        some tokens
              … or in three stretches, of those alone that can be chosen (sieve.py)
    choice    the draw                                      a row

From 1 on each line is a stretch (share.py), with what a part of it is. Norms are cheap, so each thread works
them out for itself, at the beginning of the stretch that reads them. The stream is read from one place and
written to another: a thread that is late must not see it half changed.

Letters: R rows, C model width, H heads, K key-value heads, D head width, E value width, M hidden width,
V vocabulary, N outputs.
"""

from pathlib import Path

import numba as nb

from glassformer.core.lanes.functions import SWIGLU, activate
from glassformer.core.lanes.sources import fingerprint
from glassformer.core.lanes.vector import (
    WIDTH,
    get,
    get_int,
    inlined,
    load_part,
    store_part,
)
from glassformer.generation import noise
from glassformer.generation.fast.kernels.attention import attend, turn
from glassformer.generation.fast.kernels.draw import draw_row
from glassformer.generation.fast.kernels.norm import copy, norm
from glassformer.generation.fast.kernels.plan import Layer, Plan, Real
from glassformer.generation.fast.kernels.products import BFLOAT16, FLOAT32, linear
from glassformer.generation.fast.kernels.share import BEGUN, await_walk, end_walk, publish, take
from glassformer.generation.fast.kernels.sieve import estimate, parts_found, sift, weigh

PART = 1 << 17  # bytes of weights that make a part of a stretch
PARTS = 4  # that each thread gets, where there is enough to do
LAYER_STRETCHES, SIFTING_STRETCHES = 5, 3


def compiled_walk(sources):
    """The walk as these sources make it (core/lanes/sources.py)."""

    @nb.njit(nogil=True, cache=True)
    def walk(plan, layers, reals, me, after, spins):
        """Thread 0: one walk, whose stretches are numbered from `after` + 1 on. Others: every walk with later
        numbers, until none has begun for a while. Returns the last number."""
        if sources == 0:
            return after  # never: but now it holds on to them
        board = plan[Plan.BOARD]
        private = plan[Plan.PRIVATE] + 4 * me * plan[Plan.PRIVATE_SIZE]
        while True:
            if me == 0:
                if plan[Plan.READS]:
                    embed(plan, reals)
                stretch = after + 1
                if plan[Plan.TEAM] > 1:
                    publish(board, BEGUN, stretch)
            else:
                stretch = await_walk(board, after, spins)
                if stretch < 0:
                    return after
                after = stretch
            if plan[Plan.READS]:
                for depth in range(plan[Plan.LAYERS]):
                    walk_layer(plan, layers[depth], reals, depth, me, stretch, private)
                    stretch += LAYER_STRETCHES
                if plan[Plan.SIFTS]:
                    score_some(plan, reals, me, stretch, private)
                    stretch += SIFTING_STRETCHES
                elif plan[Plan.SCORED]:
                    score(plan, reals, me, stretch, private)
                    stretch += 1
            if plan[Plan.DRAWS]:
                choose(plan, me, stretch)
            if me == 0:
                # As far after every walk, whatever it was asked: who is late may be wrong about that.
                after += 1 + LAYER_STRETCHES * plan[Plan.LAYERS] + SIFTING_STRETCHES + 1
                end_walk(board, after)
                return after

    return walk


@inlined
def embed(plan, reals):
    """The stream's start: token embeddings, scaled, plus positions, shifted."""
    C, tokens, positions = plan[Plan.WIDTH], plan[Plan.TOKENS], plan[Plan.POSITIONS]
    scale = reals[plan[Plan.LAYERS], Real.EMBEDDING_SCALE]
    weight, pool = plan[Plan.EMBEDDING_SHIFT], plan[Plan.PAST_EMBEDDINGS]
    out = plan[Plan.MIDDLE] if weight else plan[Plan.STREAM]
    for r in range(plan[Plan.ROWS]):
        entry = plan[Plan.EMBEDDING] + 4 * C * get_int(tokens, r)
        position = plan[Plan.POSITION] + 4 * C * get_int(positions, r)
        for c in range(0, C, WIDTH):
            x = load_part(entry, c, C) * scale
            if plan[Plan.POSITION]:
                x = x + load_part(position, c, C)
            store_part(out + 4 * r * C, c, C, x)
    if weight:
        remember(plan, out, pool)
        shift(plan, plan[Plan.STREAM], out, weight, plan[Plan.EMBEDDING_REACH], pool)


@inlined
def walk_layer(plan, layer, reals, depth, me, stretch, private):
    C, H, K = plan[Plan.WIDTH], plan[Plan.HEADS], plan[Plan.KV_HEADS]
    E, M, R, kind = plan[Plan.VALUE_WIDTH], plan[Plan.HIDDEN], plan[Plan.ROWS], plan[Plan.KIND]
    team, board, renews = plan[Plan.TEAM], plan[Plan.BOARD], plan[Plan.RENEWS]
    stream, middle, z, units = plan[Plan.STREAM], plan[Plan.MIDDLE], plan[Plan.Z], plan[Plan.UNITS]
    x, shifted, scores = private, private + 4 * R * C, private + 8 * R * C
    past = 4 * depth * plan[Plan.PAGES] * plan[Plan.PAGE] * C  # where this layer's part of such a pool begins

    # 1 queries, keys and values
    gamma, beta, eps = (
        layer[Layer.ATTENTION_GAMMA],
        layer[Layer.ATTENTION_BETA],
        reals[depth, Real.ATTENTION_EPS],
    )
    weight, pool, read = layer[Layer.ATTENTION_SHIFT], plan[Plan.PAST_ATTENTION] + past, x
    normed(plan, x, stream, gamma, beta, eps)
    if weight:
        shift(plan, shifted, x, weight, plan[Plan.LAYER_REACH], pool)
        read = shifted
    parts = H + 2 * K
    part = take(board, stretch, me, team, parts)
    while part >= 0:
        if part == 0 and weight:
            remember(plan, x, pool)
        read_head(plan, layer, reals, depth, part, read)
        part = take(board, stretch, me, team, parts)

    # 2 attention
    stretch += 1
    parts = R * H
    part = take(board, stretch, me, team, parts)
    while part >= 0:
        look_back(plan, reals, depth, part // H, part % H, scores)
        part = take(board, stretch, me, team, parts)

    # 3 W_O
    stretch += 1
    if renews:
        normed(plan, x, stream, gamma, beta, eps)
    matrix, scale, bias = layer[Layer.OUT], layer[Layer.OUT_SCALE], layer[Layer.OUT_BIAS]
    size = part_size(plan, C, H * E)
    parts = (C + size - 1) // size
    part = take(board, stretch, me, team, parts)
    while part >= 0:
        first, last = part * size, min(C, (part + 1) * size)
        linear(middle, C, z, H * E, R, kind, matrix, scale, bias, H * E, first, last)
        join(plan, middle, x if renews else stream, first, last)
        part = take(board, stretch, me, team, parts)

    # 4 hidden units
    stretch += 1
    gamma, beta, eps = layer[Layer.MLP_GAMMA], layer[Layer.MLP_BETA], reals[depth, Real.MLP_EPS]
    weight, pool, read = layer[Layer.MLP_SHIFT], plan[Plan.PAST_MLP] + past, x
    normed(plan, x, middle, gamma, beta, eps)
    if weight:
        shift(plan, shifted, x, weight, plan[Plan.LAYER_REACH], pool)
        read = shifted
    size = part_size(plan, M, C)
    parts = (M + size - 1) // size
    part = take(board, stretch, me, team, parts)
    while part >= 0:
        if part == 0 and weight:
            remember(plan, x, pool)
        first, last = part * size, min(M, (part + 1) * size)
        raise_units(plan, layer, read, first, last)
        part = take(board, stretch, me, team, parts)

    # 5 back down
    stretch += 1
    if renews:
        normed(plan, x, middle, gamma, beta, eps)
    matrix, scale, bias = layer[Layer.DOWN], layer[Layer.DOWN_SCALE], layer[Layer.DOWN_BIAS]
    size = part_size(plan, C, M)
    parts = (C + size - 1) // size
    part = take(board, stretch, me, team, parts)
    while part >= 0:
        first, last = part * size, min(C, (part + 1) * size)
        linear(stream, C, units, M, R, kind, matrix, scale, bias, M, first, last)
        join(plan, stream, x if renews else middle, first, last)
        part = take(board, stretch, me, team, parts)


@inlined
def score(plan, reals, me, stretch, x):
    """Scores of the rows that are asked for; x has room for their vectors."""
    C, V, count, kind = plan[Plan.WIDTH], plan[Plan.VOCAB], plan[Plan.SCORED], plan[Plan.KIND]
    team, board = plan[Plan.TEAM], plan[Plan.BOARD]
    last_norm(plan, reals, x)
    matrix, scale, bias = plan[Plan.UNEMBEDDING], plan[Plan.UNEMBEDDING_SCALE], plan[Plan.UNEMBEDDING_BIAS]
    size = part_size(plan, V, C)
    parts = (V + size - 1) // size
    part = take(board, stretch, me, team, parts)
    while part >= 0:
        first, last = part * size, min(V, (part + 1) * size)
        linear(plan[Plan.SCORES], V, x, C, count, kind, matrix, scale, bias, C, first, last)
        part = take(board, stretch, me, team, parts)


@inlined
def score_some(plan, reals, me, stretch, x):
    """Scores of what can be chosen of all rows, −∞ for the rest; x has room for the rows' vectors."""
    C, V, count = plan[Plan.WIDTH], plan[Plan.VOCAB], plan[Plan.SCORED]
    team, board = plan[Plan.TEAM], plan[Plan.BOARD]

    # 1 estimates
    last_norm(plan, reals, x)
    size = max(8, min(PART // C, V // (PARTS * team)) // 8 * 8)
    parts = (V + size - 1) // size
    part = take(board, stretch, me, team, parts)
    while part >= 0:
        estimate(plan, x, part * size, min(V, (part + 1) * size))
        part = take(board, stretch, me, team, parts)

    # 2 what they leave
    stretch += 1
    last_norm(plan, reals, x)
    part = take(board, stretch, me, team, count)
    while part >= 0:
        sift(plan, part, x + 4 * C * part, me)
        part = take(board, stretch, me, team, count)

    # 3 its scores
    stretch += 1
    last_norm(plan, reals, x)
    parts = 0
    for row in range(count):
        parts += parts_found(plan, row)
    part = take(board, stretch, me, team, parts)
    while part >= 0:
        row, mine = 0, part
        while mine >= parts_found(plan, row):
            mine -= parts_found(plan, row)
            row += 1
        weigh(plan, row, x + 4 * C * row, mine)
        part = take(board, stretch, me, team, parts)


@nb.njit(nogil=True)
def last_norm(plan, reals, x):
    """The vectors that scores are made from, of the rows that are asked for, into x."""
    C, eps = plan[Plan.WIDTH], reals[plan[Plan.LAYERS], Real.FINAL_EPS]
    for i in range(plan[Plan.SCORED]):
        row = plan[Plan.STREAM] + 4 * C * get_int(plan[Plan.SCORED_ROWS], i)
        norm(x + 4 * C * i, row, C, plan[Plan.NORM], plan[Plan.FINAL_GAMMA], plan[Plan.FINAL_BETA], eps)


@inlined
def choose(plan, me, stretch):
    """A token for each scored row."""
    parts = plan[Plan.SCORED]
    part = take(plan[Plan.BOARD], stretch, me, plan[Plan.TEAM], parts)
    while part >= 0:
        draw_row(plan, part, me)
        part = take(plan[Plan.BOARD], stretch, me, plan[Plan.TEAM], parts)


# Parts of stretches


@inlined
def part_size(plan, N, C):
    """How many of N outputs of C columns make a part: a multiple of eight, as products.py takes them."""
    kind = plan[Plan.KIND]
    size = 4 if kind == FLOAT32 else 2 if kind == BFLOAT16 else 1
    outputs = min(PART // (size * C), N // (PARTS * plan[Plan.TEAM]))
    return max(8, outputs - outputs % 8)


@inlined
def read_head(plan, layer, reals, depth, unit, x):
    """One head of queries, keys or values, of x (R, C): normalised, turned, and into the pages."""
    C, H, K = plan[Plan.WIDTH], plan[Plan.HEADS], plan[Plan.KV_HEADS]
    D, E, R, page = plan[Plan.HEAD_WIDTH], plan[Plan.VALUE_WIDTH], plan[Plan.ROWS], plan[Plan.PAGE]
    is_value = unit >= H + K
    head = unit - H - K if is_value else unit - H  # below 0 for queries
    size = E if is_value else D
    first = (H + K) * D + head * E if is_value else unit * D
    out, N, pool = plan[Plan.QKV], (H + K) * D + K * E, plan[Plan.VALUES] if is_value else plan[Plan.KEYS]
    matrix, scale, bias = layer[Layer.QKV], layer[Layer.QKV_SCALE], layer[Layer.QKV_BIAS]
    linear(out, N, x, C, R, plan[Plan.KIND], matrix, scale, bias, C, first, first + size)
    gamma, beta, eps = layer[Layer.QK_GAMMA], layer[Layer.QK_BETA], reals[depth, Real.QK_EPS]
    for r in range(R):
        mine = out + 4 * (r * N + first)
        position = get_int(plan[Plan.POSITIONS], r)
        if not is_value:
            if gamma:
                norm(mine, mine, D, plan[Plan.NORM], gamma, beta, eps)
            if plan[Plan.COS]:
                angles = 4 * position * (D // 2)
                turn(mine, plan[Plan.COS] + angles, plan[Plan.SIN] + angles, D)
        if head >= 0:
            number = get_int(plan[Plan.PAGE_TABLES], r * plan[Plan.PAGE_TABLE_SIZE] + position // page)
            entry = ((depth * plan[Plan.PAGES] + number) * K + head) * page + position % page
            copy(pool + 4 * size * entry, mine, size)


@inlined
def look_back(plan, reals, depth, r, head, scores):
    """What one head finds for one row, into z."""
    H, K, D, E = plan[Plan.HEADS], plan[Plan.KV_HEADS], plan[Plan.HEAD_WIDTH], plan[Plan.VALUE_WIDTH]
    page, position = plan[Plan.PAGE], get_int(plan[Plan.POSITIONS], r)
    z, q = plan[Plan.Z] + 4 * (r * H + head) * E, plan[Plan.QKV] + 4 * (r * ((H + K) * D + K * E) + head * D)
    first_page = (depth * plan[Plan.PAGES] * K + head // (H // K)) * page  # of this head's keys and values
    keys, values = plan[Plan.KEYS] + 4 * first_page * D, plan[Plan.VALUES] + 4 * first_page * E
    table = plan[Plan.PAGE_TABLES] + 8 * r * plan[Plan.PAGE_TABLE_SIZE]
    first = max(0, position + 1 - plan[Plan.WINDOW]) if plan[Plan.WINDOW] else 0
    scale, slope = reals[depth, Real.SCALE], nb.float32(0.0)
    if plan[Plan.SLOPES]:
        slope = get(plan[Plan.SLOPES], head)
    attend(z, q, keys, values, table, page, K, first, position, D, E, scale, slope, scores)


@inlined
def raise_units(plan, layer, x, first, last):
    """Hidden units `first` to `last` of x (R, C); with SwiGLU the gates' rows precede the linear parts'."""
    C, M, R, kind = plan[Plan.WIDTH], plan[Plan.HIDDEN], plan[Plan.ROWS], plan[Plan.KIND]
    units, linears = plan[Plan.UNITS], plan[Plan.LINEAR]
    matrix, scale, bias = layer[Layer.UP], layer[Layer.UP_SCALE], layer[Layer.UP_BIAS]
    linear(units, M, x, C, R, kind, matrix, scale, bias, C, first, last)
    if plan[Plan.ACTIVATION] == SWIGLU:
        matrix += M * C * (4 if kind == FLOAT32 else 2 if kind == BFLOAT16 else 1)
        scale, bias = scale + 4 * M if scale else 0, bias + 4 * M if bias else 0
        linear(linears, M, x, C, R, kind, matrix, scale, bias, C, first, last)
    for r in range(R):
        start = 4 * (r * M + first)
        activate(units + start, linears + start, last - first, plan[Plan.ACTIVATION])


@inlined
def join(plan, out, old, first, last):
    """Outputs `first` to `last` of all rows onto the stream, in place: out (R, C) becomes old + out."""
    C = plan[Plan.WIDTH]
    if plan[Plan.JOINS]:
        for r in range(plan[Plan.ROWS]):
            row, base = out + 4 * r * C, old + 4 * r * C
            for c in range(first, last, WIDTH):
                store_part(row, c, last, load_part(base, c, last) + load_part(row, c, last))


# All rows


@nb.njit(nogil=True)
def normed(plan, out, x, gamma, beta, eps):
    """The norm of x (R, C)."""
    C = plan[Plan.WIDTH]
    for r in range(plan[Plan.ROWS]):
        norm(out + 4 * r * C, x + 4 * r * C, C, plan[Plan.NORM], gamma, beta, eps)


@inlined
def place(plan, row, position):
    """Where a position of a row lies in pools with one entry for each."""
    page = plan[Plan.PAGE]
    number = get_int(plan[Plan.PAGE_TABLES], row * plan[Plan.PAGE_TABLE_SIZE] + position // page)
    return number * page + position % page


@nb.njit(nogil=True)
def remember(plan, x, pool):
    """The rows of x (R, C) into such a pool."""
    C = plan[Plan.WIDTH]
    for r in range(plan[Plan.ROWS]):
        copy(pool + 4 * C * place(plan, r, get_int(plan[Plan.POSITIONS], r)), x + 4 * r * C, C)


@nb.njit(nogil=True)
def shift(plan, out, x, weight, reach, pool):
    """x (R, C) and multiples of what stood just before it: in earlier rows of the piece, or in the pool."""
    C = plan[Plan.WIDTH]
    for r in range(plan[Plan.ROWS]):
        position, behind = get_int(plan[Plan.POSITIONS], r), get_int(plan[Plan.BEHIND], r)
        row = out + 4 * r * C
        copy(row, x + 4 * r * C, C)
        for k in range(1, min(reach, position) + 1):
            past, factor = x + 4 * (r - k) * C, weight + 4 * (k - 1) * C
            if k > behind:
                past = pool + 4 * C * place(plan, r, position - k)
            for c in range(0, C, WIDTH):
                product = load_part(factor, c, C) * load_part(past, c, C)
                store_part(row, c, C, load_part(row, c, C) + product)


walk = compiled_walk(fingerprint(Path(__file__).parent, noise.GOLDEN, noise.FIRST, noise.SECOND))
# Now, or from the cache: not when several threads call it for the first time.
walk.compile("int64(int64[::1], int64[:, ::1], float32[:, ::1], int64, int64, int64)")
