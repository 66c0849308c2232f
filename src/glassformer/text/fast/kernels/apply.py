"""Ids of pieces by merges: `merge_steps` of bpe.py, over arrays, with every piece seen before remembered.

Within a piece the pair that was learned first is merged first, the leftmost of equals. Short pieces look
through all their pairs for it each time. Long ones sort the places of their pairs by rank, so that a
megabyte without a blank is no trap.
"""
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false
# (numba knows the fields of a record, a type checker does not)

from typing import NamedTuple

import numba as nb
import numpy as np

from glassformer.text.fast.kernels.scan import BLOCK, DONE, FULL, STUCK, next_pieces
from glassformer.text.fast.kernels.words import VALUE, Words, find, has_room, home, insert, new_words

SHORT = 128  # bytes up to which looking through all pairs each time is faster
NEVER = np.int64(1) << np.int64(62)
TOKEN = np.dtype([("id", "i4"), ("next", "i4"), ("prev", "i4"), ("rank", "i4")])  # of the pair begun here
PLACE = np.dtype([("token", "i4"), ("next", "i4")])


class Merges(NamedTuple):
    """A hash table of pairs of ids, and the ids of single bytes."""

    table: np.ndarray  # int64: left · 2³² + right (or -1), and rank · 2³² + merged id
    bytes: np.ndarray  # int32


class Queue(NamedTuple):
    """Places that wait for their rank: a list for each, all empty between two pieces."""

    first: np.ndarray  # int32 [rank]: the newest entry of its list, or -1
    groups: np.ndarray  # uint8 [rank / 64]: is there an entry among these ranks?


class Memory(NamedTuple):
    """Pieces met before. The value of each is its id, or ~v if it has several, which begin at `ids[v]`: their
    number, then they."""

    words: Words
    ids: np.ndarray  # int32
    used: np.ndarray  # int64: how many of ids
    queue: Queue


def new_memory(ranks: int, pieces: int = 1 << 18) -> Memory:
    return Memory(
        new_words(pieces, 16 * pieces),
        np.empty(16 * pieces, np.int32),
        np.zeros(1, np.int64),
        Queue(np.full(ranks, -1, np.int32), np.zeros(ranks // 64 + 1, np.uint8)),
    )


def forget(memory: Memory) -> None:
    memory.words.slots[:] = -1
    memory.words.used[:] = 0
    memory.used[:] = 0


def new_merges(merges: np.ndarray, merged: np.ndarray, byte_ids: np.ndarray) -> Merges:
    table = np.full((1 << max(4, (2 * len(merges)).bit_length()), 2), -1, np.int64)
    fill_merges(table, merges, merged)
    return Merges(table, byte_ids)


@nb.njit(cache=True, nogil=True)
def fill_merges(table, merges, merged):
    for rank in range(len(merges)):
        pair = (np.int64(merges[rank, 0]) << 32) | np.int64(merges[rank, 1])
        s = home(pair, len(table) - 1)
        while table[s, 0] >= 0:
            s = (s + 1) & (len(table) - 1)
        table[s, 0], table[s, 1] = pair, (np.int64(rank) << 32) | np.int64(merged[rank])


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
    table, byte_ids = merges
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


@nb.njit(cache=True, nogil=True)
def merge_long(text, start, stop, merges, queue, out, at):
    """As `merge_short`, in linear time: rank after rank, each at all its places.

    A merge makes pairs of later rank only, so one walk through the ranks meets them all. A place whose pair
    has changed in the meantime stays in its old list and is passed over.
    """
    table, byte_ids = merges
    size = stop - start
    tokens, places, used = np.empty(size, TOKEN), np.empty(3 * size, PLACE), 0
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


@nb.njit(cache=True, nogil=True)
def encode_texts(data, bounds, place, automaton, merges, memory, out, sizes):
    """Ids of the texts data[bounds[k]:bounds[k + 1]] into `out`, which has room for one per byte.

    `place` says which text and byte come next and how many ids there are; `sizes` becomes the number of ids
    up to and with each text. DONE when all are, FULL when the memory is, STUCK in the pattern.
    """
    words, known, used, queue = memory
    slots, records, byte_ids = words.slots, words.records, merges.bytes
    ids, value = np.empty(SHORT, np.int32), np.empty(SHORT, np.int64)
    ends, keys = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    at = place[2]
    while place[0] < len(bounds) - 1:
        i, stop = place[1], bounds[place[0] + 1]
        while i < stop:
            pieces = next_pieces(data, i, stop, automaton, ends, keys)
            if pieces < 0:
                return STUCK
            for p in range(pieces):
                end = ends[p]
                length = end - i
                if length == 1:
                    out[at] = byte_ids[data[i]]
                    at += 1
                elif length > SHORT:
                    at = merge_long(data, i, end, merges, queue, out, at)
                else:
                    s = find(words, data, i, length, keys[p])
                    w = slots[s]
                    if w < 0:
                        if not has_room(words, length) or used[0] + length >= len(known):
                            place[1], place[2] = i, at
                            return FULL
                        w, first = words.used[0], used[0]
                        done = merge_short(data, i, end, merges, ids, value, known, first + 1)
                        known[first] = done - first - 1
                        insert(
                            words,
                            s,
                            data,
                            i,
                            length,
                            keys[p],
                            known[done - 1] if done == first + 2 else ~first,
                        )
                        used[0] = done
                    found = records[w, VALUE]
                    if found >= 0:
                        out[at] = found
                        at += 1
                    else:
                        for k in range(~found + 1, ~found + 1 + known[~found]):
                            out[at] = known[k]
                            at += 1
                i = end
        sizes[place[0]] = at
        place[0] += 1
        place[1] = stop
    place[2] = at
    return DONE
