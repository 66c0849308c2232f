"""Where does the next piece end? An automaton (tokenizers/automaton.py) run over UTF-8."""

import numba as nb
import numpy as np

KEY_BYTES = 8
BLOCK = 1024
PATIENCE, SMALL = 16, 1 << 26  # how many times a text may be read, and characters more
STRETCH = 1 << 20  # bytes that a kernel takes before it returns to Python, where Ctrl-C is heard
# How a kernel ended: with all texts, for want of room, in a pattern, after a stretch.
DONE, FULL, STUCK, PAUSED = 1, 0, -1, 2
STEP = np.uint64(0xD6E8FEB86659FD93)


@nb.njit(inline="always")
def wide_character(text, i, stop):
    """Code point and length of the character at `i`, which is not ASCII.

    A byte that begins no character counts as one by itself, with the code point that Python's
    `surrogateescape` gives.
    """
    lead = np.int64(text[i])
    size = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    if lead < 0xC2 or lead > 0xF4 or i + size > stop:
        return 0xDC00 + lead, 1
    code = lead & (0x7F >> size)
    for k in range(1, size):
        tail = np.int64(text[i + k])
        if tail & 0xC0 != 0x80:
            return 0xDC00 + lead, 1
        code = (code << 6) | (tail & 0x3F)
    if (size == 3 and (code < 0x800 or 0xD800 <= code < 0xE000)) or (
        size == 4 and not 0x10000 <= code < 0x110000
    ):
        return 0xDC00 + lead, 1
    return code, size


@nb.njit(inline="always")
def next_piece(text, start, stop, automaton):
    """End and key of the piece at `start`: the last place where a match ended before the automaton died; and
    how far it read to know.

    The key of a short piece is its bytes, so equal keys mean equal pieces; that of a long one is a hash.
    If nothing matches, the end is `start`.
    """
    classes, table, state, end_class = automaton
    i = end = start
    running = key = np.uint64(0)
    while True:
        size = 1
        if i == stop:
            kind = np.int64(end_class)
        else:
            byte = text[i]
            if byte < 128:
                kind = np.int64(classes[byte])
            else:
                code, size = wide_character(text, i, stop)
                kind = np.int64(classes[code])
        entry = table[state + kind]
        if entry & 1:
            end, key = i, running
        state = entry >> 1
        if state == 0:
            break
        for k in range(i, i + size):
            running = (running << np.uint64(8)) | np.uint64(text[k])
        i += size
    if end - start > KEY_BYTES:
        key = hash_of(text, start, end)
    return end, np.int64(key), i


@nb.njit(inline="always")
def hash_of(text, start, end):
    key = np.uint64(end - start)
    for k in range(start, end):
        key = (key ^ np.uint64(text[k])) * STEP
    return key


@nb.njit(cache=True, nogil=True)
def gap(text, start, stop, automaton):
    """End and key of what no match begins with: up to where one begins; and what was read in vain."""
    end, wasted = start, 0
    while end < stop:
        _, size = wide_character(text, end, stop) if text[end] >= 128 else (np.int64(0), 1)
        end += size
        match, _, reached = next_piece(text, end, stop, automaton)
        if match > end or wasted > PATIENCE * (stop - start) + SMALL:
            break
        wasted += reached - end
    key = np.uint64(0)
    for k in range(start, end):
        key = (key << np.uint64(8)) | np.uint64(text[k])
    return end, np.int64(hash_of(text, start, end) if end - start > KEY_BYTES else key), wasted


@nb.njit(cache=True, nogil=True)
def next_pieces(text, start, stop, automaton, ends, keys):
    """The next pieces, as many as `ends` and `keys` hold or a stretch of text does; returns their number.

    Finding pieces and looking them up in two passes over a block is twice as fast as one after the other: a
    processor that mispredicts the end of a piece would throw the waiting lookups away.

    A pattern may read far ahead for what does not come, and again for the next piece: -1 when that gets out
    of hand.
    """
    count, i, wasted = 0, start, 0
    while i < stop and count < len(ends) and i - start < STRETCH:
        end, key, reached = next_piece(text, i, stop, automaton)
        wasted += reached - end
        if end == i:
            end, key, more = gap(text, i, stop, automaton)
            wasted += more
        if wasted > PATIENCE * (stop - start) + SMALL:
            return -1
        ends[count], keys[count] = end, key
        i = end
        count += 1
    return count
