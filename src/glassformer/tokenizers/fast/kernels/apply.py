"""Ids of texts: pieces are found, merged, and remembered, so that each is merged once."""

from typing import NamedTuple

import numba as nb
import numpy as np

from glassformer.tokenizers.fast.kernels.merge import (
    SHORT,
    TILE,
    Queue,
    begin_long,
    merge_long,
    merge_short,
)
from glassformer.tokenizers.fast.kernels.scan import BLOCK, DONE, FULL, PAUSED, STRETCH, STUCK, next_pieces
from glassformer.tokenizers.fast.kernels.words import VALUE, Words, find, has_room, insert, new_words


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


@nb.njit(cache=True, nogil=True)
def encode_texts(data, bounds, place, long, automaton, merges, memory, out, sizes):
    """Ids of the texts data[bounds[k]:bounds[k + 1]] into `out`, which has room for one per byte.

    `place` says which text and byte come next and how many ids there are, and `long` how far the piece there
    is if it was begun; `sizes` becomes the number of ids up to and with each text. DONE when all are, FULL
    when the memory is, STUCK in the pattern, PAUSED after a stretch.
    """
    words, known, used, queue = memory
    slots, records, byte_ids = words.slots, words.records, merges.bytes
    ids, value = np.empty(SHORT, np.int32), np.empty(SHORT, np.int64)
    ends, keys = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    begun, at = place[1], place[2]
    while place[0] < len(bounds) - 1:
        i, stop = place[1], bounds[place[0] + 1]
        while i < stop:
            if long[0].stop > i:
                pieces, ends[0] = 1, long[0].stop
            else:
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
                    if long[0].stop <= i:
                        begin_long(long, i, end, at, TILE)
                    done = merge_long(data, merges, queue, out, long, STRETCH)
                    if done < 0:
                        place[1], place[2] = i, at
                        return PAUSED
                    at = done
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
            if i - begun >= STRETCH:
                place[1], place[2] = i, at
                return PAUSED
        sizes[place[0]] = at
        place[0] += 1
        place[1] = stop
    place[2] = at
    return DONE
