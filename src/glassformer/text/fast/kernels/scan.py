"""Where does the next piece end? An automaton (text/automaton.py) run over UTF-8."""

import numba as nb
import numpy as np

KEY_BYTES = 8
BLOCK = 1024
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
        follows = np.int64(text[i + k])
        if follows & 0xC0 != 0x80:
            return 0xDC00 + lead, 1
        code = (code << 6) | (follows & 0x3F)
    if (size == 3 and (code < 0x800 or 0xD800 <= code < 0xE000)) or (
        size == 4 and not 0x10000 <= code < 0x110000
    ):
        return 0xDC00 + lead, 1
    return code, size


@nb.njit(inline="always")
def next_piece(text, start, stop, automaton):
    """End and key of the piece at `start`: the last place where a match ended before the automaton died."""
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
        for k in range(start, end):
            key = (key ^ np.uint64(text[k])) * STEP
    return end, np.int64(key)


@nb.njit(cache=True, nogil=True)
def next_pieces(text, start, stop, automaton, ends, keys):
    """The next pieces, as many as `ends` and `keys` hold; returns their number.

    Finding pieces and looking them up in two passes over a block is twice as fast as one after the other: a
    processor that mispredicts the end of a piece would throw the waiting lookups away.
    """
    count, i = 0, start
    while i < stop and count < len(ends):
        i, key = next_piece(text, i, stop, automaton)
        ends[count], keys[count] = i, key
        count += 1
    return count
