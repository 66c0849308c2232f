"""One walk through a model: rows of (token, position, page table) in, scores and choices out.

    embed     the rows' vectors                             by the thread that begins the walk
    per layer
      1       norm, queries, keys, values; into the pages   a head of one of these is a part
      2       attention                                     a row and a head
      3       W_O, onto the stream                          some outputs
      4       norm, up, activation                          some hidden units
      5       down, onto the stream                         some outputs
    scores    last norm, unembedding                        some tokens
    choice    the draw                                      a row

From 1 on each line is a stretch (share.py), with what a part of it is. Norms are cheap, so each thread works
them out for itself, at the beginning of the stretch that reads them. The stream is read from one place and
written to another: a thread that is late must not see it half changed.

Letters: R rows, C model width, H heads, K key-value heads, D head width, E value width, M hidden width,
V vocabulary, N outputs.
"""
# pyright: reportIndexIssue=false, reportArgumentType=false
# (numba takes a member of an IntEnum for the number it is)

import numba as nb

from glassformer.generation.fast.kernels.attention import attend, turn
from glassformer.generation.fast.kernels.draw import draw_row
from glassformer.generation.fast.kernels.functions import SWIGLU, activate
from glassformer.generation.fast.kernels.norm import norm
from glassformer.generation.fast.kernels.plan import Layer, Plan, Real
from glassformer.generation.fast.kernels.products import BFLOAT16, FLOAT32, linear
from glassformer.generation.fast.kernels.share import BEGUN, await_walk, publish, take
from glassformer.generation.fast.kernels.vector import WIDTH, fma, get, get_int, load_part, store_part

PART = 1 << 17  # bytes of weights that make a part of a stretch
PARTS = 4  # that each thread gets, where there is enough to do
LAYER_STRETCHES = 5


@nb.njit(nogil=True)
def part_size(plan, N, C):
    """How many of N outputs of C columns make a part: a multiple of eight, which products.py takes at once."""
    kind = plan[Plan.KIND]
    size = 4 if kind == FLOAT32 else 2 if kind == BFLOAT16 else 1
    outputs = min(PART // (size * C), N // (PARTS * plan[Plan.TEAM]))
    return max(8, outputs - outputs % 8)


@nb.njit(nogil=True)
def place(plan, row, position):
    """Where a position of a row lies in pools with one entry for each."""
    page = plan[Plan.PAGE]
    number = get_int(plan[Plan.PAGE_TABLES], row * plan[Plan.PAGE_TABLE_SIZE] + position // page)
    return number * page + position % page


@nb.njit(nogil=True)
def shift(plan, out, x, weight, reach, pool):
    """x (R, C) and multiples of what stood just before it: in earlier rows of the piece, or in the pool."""
    C = plan[Plan.WIDTH]
    for r in range(plan[Plan.ROWS]):
        position, behind = get_int(plan[Plan.POSITIONS], r), get_int(plan[Plan.BEHIND], r)
        norm(out + 4 * r * C, x + 4 * r * C, C, 0, 0, 0, nb.float32(0.0))
        for k in range(1, min(reach, position) + 1):
            if k <= behind:
                past = x + 4 * (r - k) * C
            else:
                past = pool + 4 * C * place(plan, r, position - k)
            for c in range(0, C, WIDTH):
                y = fma(
                    load_part(weight + 4 * (k - 1) * C, c, C),
                    load_part(past, c, C),
                    load_part(out + 4 * r * C, c, C),
                )
                store_part(out + 4 * r * C, c, C, y)


@nb.njit(nogil=True)
def remember(plan, x, pool):
    """The rows of x (R, C) into a pool with one entry for each position."""
    C = plan[Plan.WIDTH]
    for r in range(plan[Plan.ROWS]):
        entry = pool + 4 * C * place(plan, r, get_int(plan[Plan.POSITIONS], r))
        norm(entry, x + 4 * r * C, C, 0, 0, 0, nb.float32(0.0))


@nb.njit(nogil=True)
def embed(plan, reals):
    """The stream's start: token embeddings, scaled, plus positions, shifted."""
    C, tokens, positions = plan[Plan.WIDTH], plan[Plan.TOKENS], plan[Plan.POSITIONS]
    scale = reals[plan[Plan.LAYERS], Real.EMBEDDING_SCALE]
    shifts = plan[Plan.EMBEDDING_SHIFT] != 0
    out = plan[Plan.MIDDLE] if shifts else plan[Plan.STREAM]
    for r in range(plan[Plan.ROWS]):
        entry = plan[Plan.EMBEDDING] + 4 * C * get_int(tokens, r)
        position = plan[Plan.POSITION] + 4 * C * get_int(positions, r)
        for c in range(0, C, WIDTH):
            x = load_part(entry, c, C) * scale
            if plan[Plan.POSITION] != 0:
                x = x + load_part(position, c, C)
            store_part(out + 4 * r * C, c, C, x)
    if shifts:
        remember(plan, out, plan[Plan.PAST_EMBEDDINGS])
        shift(
            plan,
            plan[Plan.STREAM],
            out,
            plan[Plan.EMBEDDING_SHIFT],
            plan[Plan.EMBEDDING_REACH],
            plan[Plan.PAST_EMBEDDINGS],
        )


@nb.njit(nogil=True)
def normed(plan, out, x, gamma, beta, eps):
    """The norm of all rows (R, C)."""
    C = plan[Plan.WIDTH]
    for r in range(plan[Plan.ROWS]):
        norm(out + 4 * r * C, x + 4 * r * C, C, plan[Plan.NORM], gamma, beta, eps)


@nb.njit(nogil=True)
def read_heads(plan, layer, reals, l, unit, x):
    """One head of queries, keys or values, of x (R, C): normalised, turned, and into the pages."""
    C, H, K = plan[Plan.WIDTH], plan[Plan.HEADS], plan[Plan.KV_HEADS]
    D, E, R = plan[Plan.HEAD_WIDTH], plan[Plan.VALUE_WIDTH], plan[Plan.ROWS]
    page = plan[Plan.PAGE]
    is_value = unit >= H + K
    head = unit - H - K if is_value else unit - H
    size = E if is_value else D
    first = (H + K) * D + head * E if is_value else unit * D
    N = (H + K) * D + K * E
    out = plan[Plan.QKV]
    linear(
        out, N, x, C, R, plan[Plan.KIND], layer[Layer.QKV], layer[Layer.QKV_SCALE], layer[Layer.QKV_BIAS],
        C, first, first + size,
    )  # fmt: skip
    pool = plan[Plan.VALUES] if is_value else plan[Plan.KEYS]
    for r in range(R):
        mine = out + 4 * (r * N + first)
        position = get_int(plan[Plan.POSITIONS], r)
        if not is_value:
            if layer[Layer.QK_GAMMA] != 0:
                norm(mine, mine, D, plan[Plan.NORM], layer[Layer.QK_GAMMA], 0, reals[l, Real.QK_EPS])
            if plan[Plan.COS] != 0:
                angles = 4 * position * (D // 2)
                turn(mine, plan[Plan.COS] + angles, plan[Plan.SIN] + angles, D)
        if head >= 0:
            number = get_int(plan[Plan.PAGE_TABLES], r * plan[Plan.PAGE_TABLE_SIZE] + position // page)
            entry = ((l * plan[Plan.PAGES] + number) * K + head) * page + position % page
            norm(pool + 4 * size * entry, mine, size, 0, 0, 0, nb.float32(0.0))


@nb.njit(nogil=True)
def look_back(plan, reals, l, r, head, scores):
    """What one head finds for one row, into z."""
    H, K, D, E = plan[Plan.HEADS], plan[Plan.KV_HEADS], plan[Plan.HEAD_WIDTH], plan[Plan.VALUE_WIDTH]
    page, position = plan[Plan.PAGE], get_int(plan[Plan.POSITIONS], r)
    table = plan[Plan.PAGE_TABLES] + 8 * r * plan[Plan.PAGE_TABLE_SIZE]
    q = plan[Plan.QKV] + 4 * (r * ((H + K) * D + K * E) + head * D)
    kv_head = l * plan[Plan.PAGES] * K + head // (H // K)
    first = max(0, position + 1 - plan[Plan.WINDOW]) if plan[Plan.WINDOW] else 0
    slope = get(plan[Plan.SLOPES], head) if plan[Plan.SLOPES] else nb.float32(0.0)
    attend(
        plan[Plan.Z] + 4 * (r * H + head) * E,
        q,
        plan[Plan.KEYS] + 4 * kv_head * page * D,
        plan[Plan.VALUES] + 4 * kv_head * page * E,
        table, page, first, position, D, E, K * page * D, K * page * E, reals[l, Real.SCALE], slope, scores,
    )  # fmt: skip


@nb.njit(nogil=True)
def join(plan, out, old, first, last):
    """Outputs `first` to `last` of all rows onto the stream, in place: out (R, C) becomes old + out."""
    C = plan[Plan.WIDTH]
    if plan[Plan.JOINS]:
        for r in range(plan[Plan.ROWS]):
            row, base = out + 4 * r * C, old + 4 * r * C
            for c in range(first, last, WIDTH):
                store_part(row, c, last, load_part(base, c, last) + load_part(row, c, last))


@nb.njit(nogil=True)
def walk_layer(plan, layer, reals, l, me, stretch, private):
    C, H, K = plan[Plan.WIDTH], plan[Plan.HEADS], plan[Plan.KV_HEADS]
    E, M, R, kind = plan[Plan.VALUE_WIDTH], plan[Plan.HIDDEN], plan[Plan.ROWS], plan[Plan.KIND]
    team, board = plan[Plan.TEAM], plan[Plan.BOARD]
    stream, middle, units = plan[Plan.STREAM], plan[Plan.MIDDLE], plan[Plan.UNITS]
    x, shifted, scores = private, private + 4 * R * C, private + 8 * R * C
    eps = reals[l, Real.ATTENTION_EPS]
    past = 4 * l * plan[Plan.PAGES] * plan[Plan.PAGE] * C

    # 1 queries, keys and values
    read = x
    normed(plan, x, stream, layer[Layer.ATTENTION_GAMMA], layer[Layer.ATTENTION_BETA], eps)
    if layer[Layer.ATTENTION_SHIFT] != 0:
        read, pool = shifted, plan[Plan.PAST_ATTENTION] + past
        shift(plan, read, x, layer[Layer.ATTENTION_SHIFT], plan[Plan.LAYER_REACH], pool)
    parts = H + 2 * K
    part = take(board, stretch, me, team, parts)
    while part >= 0:
        if part == 0 and layer[Layer.ATTENTION_SHIFT] != 0:
            remember(plan, x, plan[Plan.PAST_ATTENTION] + past)
        read_heads(plan, layer, reals, l, part, read)
        part = take(board, stretch, me, team, parts)

    # 2 attention
    stretch += 1
    parts = R * H
    part = take(board, stretch, me, team, parts)
    while part >= 0:
        look_back(plan, reals, l, part // H, part % H, scores)
        part = take(board, stretch, me, team, parts)

    # 3 W_O
    stretch += 1
    if plan[Plan.RENEWS]:
        normed(plan, x, stream, layer[Layer.ATTENTION_GAMMA], layer[Layer.ATTENTION_BETA], eps)
    size = part_size(plan, C, H * E)
    parts = (C + size - 1) // size
    part = take(board, stretch, me, team, parts)
    while part >= 0:
        first, last = part * size, min(C, (part + 1) * size)
        linear(
            middle, C, plan[Plan.Z], H * E, R, kind, layer[Layer.OUT], layer[Layer.OUT_SCALE],
            layer[Layer.OUT_BIAS], H * E, first, last,
        )  # fmt: skip
        join(plan, middle, x if plan[Plan.RENEWS] else stream, first, last)
        part = take(board, stretch, me, team, parts)

    # 4 hidden units
    stretch += 1
    eps = reals[l, Real.MLP_EPS]
    read = x
    normed(plan, x, middle, layer[Layer.MLP_GAMMA], layer[Layer.MLP_BETA], eps)
    if layer[Layer.MLP_SHIFT] != 0:
        read, pool = shifted, plan[Plan.PAST_MLP] + past
        shift(plan, read, x, layer[Layer.MLP_SHIFT], plan[Plan.LAYER_REACH], pool)
    size = part_size(plan, M, C)
    parts = (M + size - 1) // size
    part = take(board, stretch, me, team, parts)
    while part >= 0:
        if part == 0 and layer[Layer.MLP_SHIFT] != 0:
            remember(plan, x, plan[Plan.PAST_MLP] + past)
        first, last = part * size, min(M, (part + 1) * size)
        raise_units(plan, layer, read, first, last)
        part = take(board, stretch, me, team, parts)

    # 5 back down
    stretch += 1
    if plan[Plan.RENEWS]:
        normed(plan, x, middle, layer[Layer.MLP_GAMMA], layer[Layer.MLP_BETA], eps)
    size = part_size(plan, C, M)
    parts = (C + size - 1) // size
    part = take(board, stretch, me, team, parts)
    while part >= 0:
        first, last = part * size, min(C, (part + 1) * size)
        linear(
            stream, C, units, M, R, kind, layer[Layer.DOWN], layer[Layer.DOWN_SCALE],
            layer[Layer.DOWN_BIAS], M, first, last,
        )  # fmt: skip
        join(plan, stream, x if plan[Plan.RENEWS] else middle, first, last)
        part = take(board, stretch, me, team, parts)


@nb.njit(nogil=True)
def raise_units(plan, layer, x, first, last):
    """Hidden units `first` to `last` of x (R, C). With SwiGLU the gate's rows come first, then the linear part's."""
    C, M, R, kind, units = (
        plan[Plan.WIDTH],
        plan[Plan.HIDDEN],
        plan[Plan.ROWS],
        plan[Plan.KIND],
        plan[Plan.UNITS],
    )
    linear(
        units, M, x, C, R, kind, layer[Layer.UP], layer[Layer.UP_SCALE], layer[Layer.UP_BIAS], C, first, last,
    )  # fmt: skip
    if plan[Plan.ACTIVATION] == SWIGLU:
        size = 4 if kind == FLOAT32 else 2 if kind == BFLOAT16 else 1
        scale, bias = layer[Layer.UP_SCALE], layer[Layer.UP_BIAS]
        linear(
            plan[Plan.LINEAR], M, x, C, R, kind, layer[Layer.UP] + size * M * C,
            scale + 4 * M if scale else 0, bias + 4 * M if bias else 0, C, first, last,
        )  # fmt: skip
    for r in range(R):
        start = 4 * (r * M + first)
        activate(units + start, plan[Plan.LINEAR] + start, last - first, plan[Plan.ACTIVATION])


@nb.njit(nogil=True)
def score(plan, reals, me, stretch, x):
    """Scores of the rows that are asked for; x has room for their vectors."""
    C, V, count = plan[Plan.WIDTH], plan[Plan.VOCAB], plan[Plan.SCORED]
    team, board, L = plan[Plan.TEAM], plan[Plan.BOARD], plan[Plan.LAYERS]
    for i in range(count):
        row = plan[Plan.STREAM] + 4 * C * get_int(plan[Plan.SCORED_ROWS], i)
        norm(
            x + 4 * C * i, row, C, plan[Plan.NORM], plan[Plan.FINAL_GAMMA], plan[Plan.FINAL_BETA],
            reals[L, Real.FINAL_EPS],
        )  # fmt: skip
    size = part_size(plan, V, C)
    parts = (V + size - 1) // size
    part = take(board, stretch, me, team, parts)
    while part >= 0:
        linear(
            plan[Plan.SCORES], V, x, C, count, plan[Plan.KIND], plan[Plan.UNEMBEDDING],
            plan[Plan.UNEMBEDDING_SCALE], 0, C, part * size, min(V, (part + 1) * size),
        )  # fmt: skip
        part = take(board, stretch, me, team, parts)


@nb.njit(nogil=True)
def choose(plan, me, stretch):
    """A token for each scored row."""
    parts = plan[Plan.SCORED]
    part = take(plan[Plan.BOARD], stretch, me, plan[Plan.TEAM], parts)
    while part >= 0:
        draw_row(plan, part, me)
        part = take(plan[Plan.BOARD], stretch, me, plan[Plan.TEAM], parts)


@nb.njit("int64(int64[::1], int64[:, ::1], float32[:, ::1], int64, int64, int64)", nogil=True, cache=True)
def walk(plan, layers, reals, me, after, spins):
    """Thread 0: one walk, behind `after` stretches. Others: every walk that begins behind `after` stretches,
    until none has begun for a while. Returns the number of stretches so far."""
    board, L = plan[Plan.BOARD], plan[Plan.LAYERS]
    private = plan[Plan.PRIVATE] + 4 * me * plan[Plan.PRIVATE_SIZE]
    while True:
        if me == 0:
            if plan[Plan.READS]:
                embed(plan, reals)
            publish(board, BEGUN, after)
        else:
            begun = await_walk(board, after, spins)
            if begun < 0:
                return after
            after = begun
        stretch = after
        if plan[Plan.READS]:
            for l in range(L):
                walk_layer(plan, layers[l], reals, l, me, stretch, private)
                stretch += LAYER_STRETCHES
            if plan[Plan.SCORED]:
                score(plan, reals, me, stretch, private)
                stretch += 1
        if plan[Plan.DRAWS]:
            choose(plan, me, stretch)
            stretch += 1
        if me == 0:
            return stretch
