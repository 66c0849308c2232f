"""Distinct pieces, numbered: a hash table with open addressing over an arena of bytes.

    slots    a power of two; -1, or the number of the piece whose hash leads here (or to a slot before)
    records  per piece: its hash, where its bytes begin in the arena, how many, and a value of the caller's
    arena    the bytes of all pieces, one after the other
    used     how many pieces, how many bytes of the arena

A kernel cannot grow its arrays, so it stops when one is full; `grow` makes larger ones and the kernel goes
on.
"""

from typing import NamedTuple

import numba as nb
import numpy as np

from glassformer.tokenizers.fast.kernels.scan import (
    BLOCK,
    DONE,
    FULL,
    KEY_BYTES,
    PAUSED,
    STRETCH,
    STUCK,
    next_pieces,
)

KEY, START, LENGTH, VALUE = 0, 1, 2, 3


class Words(NamedTuple):
    slots: np.ndarray  # int32
    records: np.ndarray  # int64, (pieces, 4)
    arena: np.ndarray  # uint8
    used: np.ndarray  # int64: pieces, bytes


def new_words(pieces: int = 1 << 16, size: int = 1 << 20) -> Words:
    return Words(
        np.full(4 * pieces, -1, np.int32),
        np.empty((pieces, 4), np.int64),
        np.empty(size, np.uint8),
        np.zeros(2, np.int64),
    )


def grow(words: Words, longest: int) -> Words:
    """Twice the room, where it is short; `longest` bytes of the arena are free afterwards."""
    count, size = (int(n) for n in words.used)
    pieces, room = len(words.records), len(words.arena)
    while 2 * count > pieces:
        pieces *= 2
    while size + longest > room // 2:
        room *= 2
    larger = new_words(pieces, room)
    larger.records[:count] = words.records[:count]
    larger.arena[:size] = words.arena[:size]
    larger.used[:] = words.used
    refill(larger.slots, larger.records, count)
    return larger


@nb.njit(inline="always")
def home(key, mask):
    """The slot where the search for a key begins."""
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64(mixed >> np.uint64(32)) & mask


@nb.njit(cache=True, nogil=True)
def refill(slots, records, count):
    mask = len(slots) - 1
    for w in range(count):
        s = home(records[w, KEY], mask)
        while slots[s] >= 0:
            s = (s + 1) & mask
        slots[s] = w


@nb.njit(inline="always")
def find(words, text, start, length, key):
    """The slot where the piece is, or the free one where it belongs."""
    slots, records, arena = words.slots, words.records, words.arena
    mask = len(slots) - 1
    s = home(key, mask)
    while True:
        w = slots[s]
        if w < 0:
            return s
        if records[w, KEY] == key and records[w, LENGTH] == length:
            if length <= KEY_BYTES:
                return s
            at = records[w, START]
            same = True
            for k in range(length):
                if arena[at + k] != text[start + k]:
                    same = False
                    break
            if same:
                return s
        s = (s + 1) & mask


@nb.njit(inline="always")
def insert(words, s, text, start, length, key, value):
    """Put a new piece into the free slot `s`; there must be room."""
    w, at = words.used[0], words.used[1]
    words.slots[s] = w
    words.records[w, KEY], words.records[w, START] = key, at
    words.records[w, LENGTH], words.records[w, VALUE] = length, value
    for k in range(length):
        words.arena[at + k] = text[start + k]
    words.used[0], words.used[1] = w + 1, at + length


@nb.njit(inline="always")
def has_room(words, length):
    return words.used[0] < len(words.records) and words.used[1] + length <= len(words.arena)


@nb.njit(cache=True, nogil=True)
def count_texts(data, bounds, place, automaton, weight, words):
    """Add `weight` to the value of every piece of the texts data[bounds[k]:bounds[k + 1]].

    `place` says which text and byte come next; DONE, FULL (the words), STUCK in the pattern, or PAUSED after
    a stretch.
    """
    begun = place[1]
    ends, keys = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    while place[0] < len(bounds) - 1:
        i, stop = place[1], bounds[place[0] + 1]
        while i < stop:
            pieces = next_pieces(data, i, stop, automaton, ends, keys)
            if pieces < 0:
                return STUCK
            for p in range(pieces):
                end, key = ends[p], keys[p]
                s = find(words, data, i, end - i, key)
                w = words.slots[s]
                if w >= 0:
                    words.records[w, VALUE] += weight
                elif has_room(words, end - i):
                    insert(words, s, data, i, end - i, key, weight)
                else:
                    place[1] = i
                    return FULL
                i = end
            if i - begun >= STRETCH:
                place[1] = i
                return PAUSED
        place[0] += 1
        place[1] = stop
    return DONE


@nb.njit(cache=True, nogil=True)
def absorb(words, other, first, keep):
    """Add the pieces of another table from number `first` on; returns where it stopped for want of room."""
    for w in range(first, len(keep)):
        if not keep[w]:
            continue
        key, start, length = other.records[w, KEY], other.records[w, START], other.records[w, LENGTH]
        s = find(words, other.arena, start, length, key)
        if words.slots[s] >= 0:
            words.records[words.slots[s], VALUE] += other.records[w, VALUE]
        elif has_room(words, length):
            insert(words, s, other.arena, start, length, key, other.records[w, VALUE])
        else:
            return w
    return len(keep)
