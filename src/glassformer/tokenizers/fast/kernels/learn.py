"""Merges from counted pieces: `learn_merges` of bpe.py, over flat arrays.

All distinct pieces lie in one row of tokens, an end mark after each:

    tokens   l o w . l o w e r .     a token stands where its first byte did, and knows the pair it begins
             └─┘ pair 3              (or, before an end mark, its id); its size is noted at its first and
                                     its last byte, to find neighbours

    pairs    left, right, how often, and its places: positions in the order of the row
    heap     the most frequent pair on top; among equals the one with smaller ids

To merge a pair is to walk its places. Each place makes up to two new pairs, with the neighbour before and
the one after, and unmakes two old ones, whose counts go down. A place that was unmade stays where it is
listed: its token begins another pair by then, and is passed over. The heap is lazy in the same way: a count
that has gone down in the meantime is put right when it comes to the top.

New pairs contain the new token, so all their places are found within one merge. They are noted as they
come, then laid down pair by pair: walking a list of numbers, a processor fetches what comes next while it
waits for memory, and walking a chain it cannot.
"""
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false
# (numba knows the fields of a record, a type checker does not)

from typing import NamedTuple

import numba as nb
import numpy as np

from glassformer.tokenizers.fast.kernels.heap import ENTRY, rise, sink

TOKEN = np.dtype([("begins", "i4"), ("size", "i4"), ("piece", "i4")])  # a pair, or ~id
PAIR = np.dtype([("count", "i8"), ("left", "i4"), ("right", "i4"), ("first", "i4"), ("size", "i4")])
PLACE = np.dtype([("token", "i4"), ("pair", "i4")])
ROOM = 1 << 21  # pairs, to begin with; what is not used takes no memory
MARK = np.int32(2**31 - 1)  # the id of an end mark
NONE = -1


class Row(NamedTuple):
    """All that learning changes. A kernel stops when an array is full, and `grow_row` makes it larger."""

    tokens: np.ndarray
    weights: np.ndarray  # of each piece: how often it occurs
    pairs: np.ndarray
    places: np.ndarray
    new_places: np.ndarray  # the places of the pairs that a merge makes
    heap: np.ndarray
    with_left: np.ndarray  # [id] the pair (id, new token), while a merge goes on
    with_right: np.ndarray  # [id] the pair (new token, id)
    merges: np.ndarray  # (most, 2)
    used: np.ndarray  # numbers of pairs, places, heap entries, merges


PAIRS, PLACES, HEAP, MERGES = 0, 1, 2, 3
DONE, NO_MORE, FULL = 1, 0, -1


def new_row(
    pieces: np.ndarray, lengths: np.ndarray, weights: np.ndarray, ids: np.ndarray, most: int, least: int
) -> Row:
    """`pieces` are bytes one after the other, `ids` the id of each byte; at most `most` merges."""
    size = len(pieces) + len(lengths) + 1
    room = ROOM
    row = Row(
        np.empty(size, TOKEN),
        weights,
        np.empty(room, PAIR),
        np.empty(3 * size, np.int32),  # a merge takes a token away and makes two places at most
        np.empty(2 * size, PLACE),
        np.empty(room, ENTRY),
        np.full(256 + most, NONE, np.int32),
        np.full(256 + most, NONE, np.int32),
        np.empty((most, 2), np.int32),
        np.zeros(4, np.int64),
    )
    fill_row(row, pieces, lengths, ids, least)
    return row


def grow_row(row: Row) -> Row:
    """Room for all pairs that the next merge can make."""
    most = most_pairs(int(row.used[MERGES]))

    def larger(array: np.ndarray, used: int) -> np.ndarray:
        size = len(array)
        while used + most > size:
            size *= 2
        if size == len(array):
            return array
        copy = np.empty(size, array.dtype)
        copy[:used] = array[:used]
        return copy

    return row._replace(
        pairs=larger(row.pairs, int(row.used[PAIRS])), heap=larger(row.heap, int(row.used[HEAP]))
    )


@nb.njit(inline="always")
def most_pairs(merges):
    """That one more merge can make: with each token before it, and with each after."""
    return 2 * (256 + merges) + 2


@nb.njit(cache=True, nogil=True)
def fill_row(row, pieces, lengths, ids, least):
    """Lay the pieces out, and count their pairs."""
    tokens, pairs, used = row.tokens, row.pairs, row.used
    lay_token(tokens, 0, MARK, 0)
    t, at = 1, 0
    for w in range(len(lengths)):
        for k in range(at, at + lengths[w]):
            lay_token(tokens, t, ids[pieces[k]], w)
            t += 1
        lay_token(tokens, t, MARK, w)
        t += 1
        at += lengths[w]
    number = np.full(65536, NONE, np.int32)
    for t in range(1, len(tokens) - 1):
        left, right = ~tokens[t].begins, ~tokens[t + 1].begins
        if left != MARK and right != MARK:
            key = left * 256 + right
            if number[key] == NONE:
                number[key] = new_pair(pairs, used, left, right)
            begin_pair(tokens, pairs, row.weights[tokens[t].piece], number[key], t)
    open_pairs(row, 0, least)
    for t in range(len(tokens)):
        list_place(row, t, tokens[t].begins, least)


@nb.njit(inline="always")
def lay_token(tokens, t, number, piece):
    tokens[t].begins, tokens[t].piece, tokens[t].size = ~number, piece, 1


@nb.njit(inline="always")
def id_at(tokens, pairs, t):
    p = tokens[t].begins
    return pairs[p].left if p >= 0 else ~p


@nb.njit(inline="always")
def new_pair(pairs, used, left, right):
    p = used[PAIRS]
    used[PAIRS] = p + 1
    pairs[p].count, pairs[p].left, pairs[p].right, pairs[p].size = 0, left, right, 0
    return np.int32(p)


@nb.njit(inline="always")
def begin_pair(tokens, pairs, weight, p, t):
    """The token at `t` begins pair `p` from now on."""
    pairs[p].count += weight
    pairs[p].size += 1
    tokens[t].begins = p


@nb.njit(cache=True, nogil=True)
def open_pairs(row, fresh, least):
    """Room for the places of all pairs from `fresh` on, which are counted, and an entry on the heap.

    Counts only go down, so a pair that is too rare already needs neither.
    """
    pairs, used = row.pairs, row.used
    for p in range(fresh, used[PAIRS]):
        pairs[p].first = used[PLACES]
        if pairs[p].count >= least:
            used[PLACES] += pairs[p].size
            rise(row.heap, used[HEAP], pairs[p].count, pairs[p].left, pairs[p].right, p)
            used[HEAP] += 1
        pairs[p].size = 0


@nb.njit(inline="always")
def list_place(row, t, p, least):
    """The token at `t` is a place of pair `p`, if it is still so."""
    if p >= 0 and row.tokens[t].begins == p and row.pairs[p].count >= least:
        row.places[row.pairs[p].first + row.pairs[p].size] = t
        row.pairs[p].size += 1


@nb.njit(cache=True, nogil=True)
def pop_best(row, least):
    """The most frequent pair, or NONE."""
    heap = row.heap
    while row.used[HEAP] > 0:
        p = heap[0].pair
        pair = row.pairs[p]
        if heap[0].count < least:
            return NONE
        if heap[0].count == pair.count:
            row.used[HEAP] -= 1
            tail = heap[row.used[HEAP]]
            sink(heap, row.used[HEAP], tail.count, tail.left, tail.right, tail.pair)
            return p
        if pair.count >= least:
            sink(heap, row.used[HEAP], pair.count, pair.left, pair.right, p)
        else:
            row.used[HEAP] -= 1
            tail = heap[row.used[HEAP]]
            sink(heap, row.used[HEAP], tail.count, tail.left, tail.right, tail.pair)
    return NONE


@nb.njit(inline="always")
def has_room(row):
    most = most_pairs(row.used[MERGES])
    return row.used[PAIRS] + most <= len(row.pairs) and row.used[HEAP] + most <= len(row.heap)


@nb.njit(cache=True, nogil=True)
def merge_on(row, upto, least):
    """Merge until there are `upto` merges (DONE), no pair is frequent enough (NO_MORE), or it is FULL."""
    while row.used[MERGES] < upto:
        if not has_room(row):
            return FULL
        p = pop_best(row, least)
        if p == NONE:
            return NO_MORE
        merge_pair(row, p, row.pairs[p].left, row.pairs[p].right, least)
    return DONE


@nb.njit(cache=True, nogil=True)
def merge_initial(row, left, right):
    """Merge this pair next, whether it occurs or not; False if there is no room."""
    if not has_room(row):
        return False
    pair = NONE
    for p in range(row.used[PAIRS]):
        if row.pairs[p].left == left and row.pairs[p].right == right:
            pair = p
            break
    merge_pair(row, pair, left, right, 1)
    return True


@nb.njit(cache=True, nogil=True)
def merge_pair(row, p, left, right, least):
    """Replace pair `p`, which is (left, right), by a new token at all its places."""
    tokens, weights, pairs, places, new_places, _, with_left, with_right, merges, used = row
    new = np.int32(256 + used[MERGES])
    merges[used[MERGES], 0], merges[used[MERGES], 1] = left, right
    used[MERGES] += 1
    if p == NONE:
        return
    fresh, count = used[PAIRS], 0
    for at in range(pairs[p].first, pairs[p].first + pairs[p].size):
        t = places[at]
        if tokens[t].begins != p:
            continue
        second = t + tokens[t].size
        after, behind = second + tokens[second].size, t - tokens[t - 1].size
        left, right = id_at(tokens, pairs, behind), id_at(tokens, pairs, after)
        weight = weights[tokens[t].piece]
        tokens[t].begins = ~new
        tokens[t].size = tokens[after - 1].size = after - t
        if right != MARK:
            pairs[tokens[second].begins].count -= weight
            tokens[second].begins = NONE
            if with_right[right] == NONE:
                with_right[right] = new_pair(pairs, used, new, right)
            begin_pair(tokens, pairs, weight, with_right[right], t)
            new_places[count].token, new_places[count].pair = t, with_right[right]
            count += 1
        if left != MARK:
            pairs[tokens[behind].begins].count -= weight
            if with_left[left] == NONE:
                with_left[left] = new_pair(pairs, used, left, new)
            begin_pair(tokens, pairs, weight, with_left[left], behind)
            new_places[count].token, new_places[count].pair = behind, with_left[left]
            count += 1
    pairs[p].count = 0
    for q in range(fresh, used[PAIRS]):
        with_left[pairs[q].left] = with_right[pairs[q].right] = NONE
    open_pairs(row, fresh, least)
    for k in range(count):
        list_place(row, new_places[k].token, new_places[k].pair, least)
