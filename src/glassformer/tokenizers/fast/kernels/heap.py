"""A heap of pairs: the most frequent on top, among equals the one with the smaller ids."""
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false
# (numba knows the fields of a record, a type checker does not)

import numba as nb
import numpy as np

ENTRY = np.dtype([("count", "i8"), ("left", "i4"), ("right", "i4"), ("pair", "i4"), ("_", "i4")])


@nb.njit(inline="always")
def before(count, left, right, entry):
    """Does a pair come before another: the larger count, then the smaller ids."""
    if count != entry.count:
        return count > entry.count
    if left != entry.left:
        return left < entry.left
    return right < entry.right


@nb.njit(inline="always")
def put(heap, i, count, left, right, p):
    heap[i].count, heap[i].left, heap[i].right, heap[i].pair = count, left, right, p


@nb.njit(cache=True, nogil=True)
def rise(heap, i, count, left, right, p):
    """Put an entry at the end, at `i`, and let it rise to where it belongs."""
    while i > 0 and before(count, left, right, heap[(i - 1) >> 1]):
        up = heap[(i - 1) >> 1]
        put(heap, i, up.count, up.left, up.right, up.pair)
        i = (i - 1) >> 1
    put(heap, i, count, left, right, p)


@nb.njit(cache=True, nogil=True)
def sink(heap, size, count, left, right, p):
    """Put an entry in the place of the top one, and let it sink to where it belongs."""
    i = 0
    while 2 * i + 1 < size:
        child = 2 * i + 1
        other = heap[child]
        if child + 1 < size and before(
            heap[child + 1].count, heap[child + 1].left, heap[child + 1].right, other
        ):
            child += 1
            other = heap[child]
        if before(count, left, right, other):
            break
        put(heap, i, other.count, other.left, other.right, other.pair)
        i = child
    put(heap, i, count, left, right, p)
