"""The ids of one piece by merges: `merge_steps` of bpe.py, over arrays.

The pair that was learned first is merged first, the leftmost of equals. Short pieces look through all their
pairs for it each time. Long ones sort the places of their pairs by rank, and are taken a tile at a time, so
that a megabyte without a blank is no trap.
"""
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportPossiblyUnboundVariable=false
# (numba knows the fields of a record, a type checker does not)

from typing import NamedTuple

import numba as nb
import numpy as np

from glassformer.tokenizers.fast.kernels.words import home

SHORT = 128  # bytes up to which looking through all pairs each time is faster
TILE = 1 << 14  # bytes of a long piece that are merged at once: the notes about them stay in a cache
NEVER = np.int64(1) << np.int64(62)
TOKEN = np.dtype([("id", "i4"), ("next", "i4"), ("prev", "i4"), ("rank", "i4")])  # of the pair begun here
PLACE = np.dtype([("token", "i4"), ("next", "i4")])
# A long piece under way, text[start:stop], whose ids go to out[at:]; the rest is told in `merge_long`.
LONG = np.dtype([(name, "i8") for name in ("start", "stop", "at", "here", "done", "reach", "tile")])


class Merges(NamedTuple):
    """A hash table of pairs of ids, and what is known of single ones."""

    table: np.ndarray  # int64: left · 2³² + right (or -1), and rank · 2³² + merged id
    bytes: np.ndarray  # int32
    sizes: np.ndarray  # int32 [id]: how many bytes each stands for


class Queue(NamedTuple):
    """Places that wait for their rank: a list for each, all empty between two pieces."""

    first: np.ndarray  # int32 [rank]: the newest entry of its list, or -1
    groups: np.ndarray  # uint8 [rank / 64]: is there an entry among these ranks?


def new_merges(merges: np.ndarray, merged: np.ndarray, byte_ids: np.ndarray) -> Merges:
    table = np.full((1 << max(4, (2 * len(merges)).bit_length()), 2), -1, np.int64)
    sizes = np.zeros(1 + max(byte_ids.max(), merged.max(initial=0)), np.int32)
    sizes[byte_ids] = 1
    fill_merges(table, merges, merged, sizes)
    return Merges(table, byte_ids, sizes)


@nb.njit(cache=True, nogil=True)
def fill_merges(table, merges, merged, sizes):
    for rank in range(len(merges)):
        pair = (np.int64(merges[rank, 0]) << 32) | np.int64(merges[rank, 1])
        s = home(pair, len(table) - 1)
        while table[s, 0] >= 0:
            s = (s + 1) & (len(table) - 1)
        table[s, 0], table[s, 1] = pair, (np.int64(rank) << 32) | np.int64(merged[rank])
        sizes[merged[rank]] = sizes[merges[rank, 0]] + sizes[merges[rank, 1]]


@nb.njit(inline="always")
def value_of(table, left, right):
    """Rank and id of what a pair merges into; NEVER if it does not."""
    pair = (np.int64(left) << 32) | np.int64(right)
    s = home(pair, len(table) - 1)
    while table[s, 0] != pair:
        if table[s, 0] < 0:
            return NEVER
        s = (s + 1) & (len(table) - 1)
    return table[s, 1]


@nb.njit(cache=True, nogil=True)
def merge_short(text, start, stop, merges, ids, value, out, at):
    """The ids of text[start:stop] into out[at:]; returns where they end. `ids` and `value` are for notes."""
    table, byte_ids = merges.table, merges.bytes
    count = stop - start
    for k in range(count):
        ids[k] = byte_ids[text[start + k]]
    for k in range(count - 1):
        value[k] = value_of(table, ids[k], ids[k + 1])
    while count > 1:
        best = 0
        for k in range(1, count - 1):
            if value[k] < value[best]:
                best = k
        if value[best] == NEVER:
            break
        ids[best] = np.int32(value[best] & 0xFFFFFFFF)
        count -= 1
        for k in range(best + 1, count):
            ids[k], value[k] = ids[k + 1], value[k + 1]
        value[count - 1] = NEVER
        if best + 1 < count:
            value[best] = value_of(table, ids[best], ids[best + 1])
        if best > 0:
            value[best - 1] = value_of(table, ids[best - 1], ids[best])
    for k in range(count):
        out[at + k] = ids[k]
    return at + count


def new_long() -> np.ndarray:
    """Of no piece yet."""
    return np.zeros(1, LONG)


@nb.njit(inline="always")
def begin_long(long, start, stop, at, tile):
    long[0].start, long[0].stop, long[0].at, long[0].tile = start, stop, at, tile
    long[0].here, long[0].done, long[0].reach = start, at, start


@nb.njit(cache=True, nogil=True)
def merge_long(text, merges, queue, out, long, most):
    """As `merge_short`, in linear time: a tile of the piece, then the next.

    Ids are those of a text exactly if each two neighbours are those of their own bytes. (Follow the merges
    of the text: the first one across a border would happen in the bytes of the two alone as well.) So a tile
    may end at any border of its ids if the two that meet there pass this test. Its last few are given up at
    once, for they did not know what follows; where the test fails, twice as much and one byte more.

    `reach` is the farthest end of a tile that has passed. A tile is at least twice as large as its way back
    to there. So it goes at least half its size farther if it passes; if it does not, the next begins before
    it, and at the beginning of the piece every tile passes: this comes to an end, however long single ids
    are. It is linear, too: the way back doubles with each failure, so about five tiles of one size fail at
    most, then ever larger ones, and the one that passes makes up for them all.

    After `most` bytes it returns -1, and goes on from there when it is called again.
    """
    start, stop, at, tile = long[0].start, long[0].stop, long[0].at, long[0].tile
    here, done, reach = long[0].here, long[0].done, long[0].reach  # out[at:done] are ids of text[start:here]
    room, spent = 0, 0
    while spent < most:
        while tile < 2 * (reach - here):
            tile *= 2
        if room < min(2 * tile, stop - start):
            room = min(2 * tile, stop - start)  # for a tile, and for two neighbours
            notes = (np.empty(room, TOKEN), np.empty(3 * room, PLACE))
            two = np.empty(room, np.int32)
        upto = min(here + tile, stop)
        end = merge_tile(text, here, upto, merges, queue, notes, out, done)
        spent += upto - here
        fits = True
        if done > at:
            left, right = out[done - 1], out[done]
            first, last = here - merges.sizes[left], here + merges.sizes[right]
            count = merge_tile(text, first, last, merges, queue, notes, two, 0)
            fits = count == 2 and two[0] == left
        if fits:
            if upto == stop:
                return end
            here, done, reach = upto, end, upto
            last = reach - (tile >> 5)
        else:
            last = reach - 2 * (reach - here) - 1
        while done > at and here > last:
            done -= 1
            here -= merges.sizes[out[done]]
    long[0].here, long[0].done, long[0].reach, long[0].tile = here, done, reach, tile
    return -1


@nb.njit(cache=True, nogil=True)
def merge_tile(text, start, stop, merges, queue, notes, out, at):
    """As `merge_short`: rank after rank, each at all its places.

    A merge makes pairs of later rank only, so one walk through the ranks meets them all. A place whose pair
    has changed in the meantime stays in its old list and is passed over.
    """
    table, byte_ids = merges.table, merges.bytes
    tokens, places = notes
    size, used = stop - start, 0
    for k in range(size):
        tokens[k].id, tokens[k].next, tokens[k].prev = byte_ids[text[start + k]], k + 1, k - 1
    tokens[size - 1].rank = -1
    for k in range(size - 2, -1, -1):
        value = value_of(table, tokens[k].id, tokens[k + 1].id)
        used = enlist(tokens, k, value, queue, places, used)
    here = np.empty(64, np.int32)
    for group in range(len(queue.groups)):
        if queue.groups[group] == 0:
            continue
        queue.groups[group] = 0
        for rank in range(group << 6, min((group + 1) << 6, len(queue.first))):
            count, entry = 0, queue.first[rank]
            queue.first[rank] = -1
            while entry >= 0:
                k = places[entry].token
                if tokens[k].rank == rank:
                    if count == len(here):
                        here = np.concatenate((here, here))
                    here[count] = k
                    count += 1
                entry = places[entry].next
            if count > 1 and tokens[here[0]].id == tokens[tokens[here[0]].next].id:
                here[:count].sort()  # a a a: the left two first
            for h in range(count):
                k = here[h]
                if tokens[k].rank != rank:
                    continue
                right, left = tokens[k].next, tokens[k].prev
                merged = np.int32(value_of(table, tokens[k].id, tokens[right].id) & 0xFFFFFFFF)
                tokens[right].rank = -1
                right = tokens[right].next
                tokens[k].id, tokens[k].next, tokens[k].rank = merged, right, -1
                if right < size:
                    tokens[right].prev = k
                    value = value_of(table, merged, tokens[right].id)
                    used = enlist(tokens, k, value, queue, places, used)
                if left >= 0:
                    value = value_of(table, tokens[left].id, merged)
                    used = enlist(tokens, left, value, queue, places, used)
    k = 0
    while k < size:
        out[at] = tokens[k].id
        at += 1
        k = tokens[k].next
    return at


@nb.njit(inline="always")
def enlist(tokens, k, value, queue, places, used):
    """Put place `k` into the list of the rank of its pair, if that merges at all."""
    tokens[k].rank = -1
    if value == NEVER:
        return used
    rank = np.int32(value >> 32)
    tokens[k].rank = rank
    places[used].token, places[used].next = k, queue.first[rank]
    queue.first[rank] = used
    queue.groups[rank >> 6] = 1
    return used + 1
