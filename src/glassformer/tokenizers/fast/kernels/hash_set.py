"""A set of 128-bit numbers in one flat table: each goes to the first free place from its own on."""

import numba as nb
import numpy as np


@nb.njit(cache=True, nogil=True)
def add_keys(table, keys):
    """Put keys (n, 2) into the table, in which zeros are free places; returns how many were not there yet."""
    size, new = np.uint64(len(table)), 0
    for k in range(len(keys)):
        a, b = keys[k, 0], keys[k, 1]
        i = a % size
        while (table[i, 0] | table[i, 1]) != 0 and (table[i, 0] != a or table[i, 1] != b):
            i = (i + np.uint64(1)) % size
        if (table[i, 0] | table[i, 1]) == 0 and (a | b) != 0:
            table[i, 0], table[i, 1] = a, b
            new += 1
    return new
