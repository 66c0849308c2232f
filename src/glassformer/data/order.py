"""Random order as a pure function: where a sample stands in a shuffle, without a list of all samples."""

import numpy as np

_ROUNDS = 4


def _mix(x: np.ndarray) -> np.ndarray:
    """A good 64-bit hash (the finaliser of splitmix64), element by element."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def fold_seed(*parts: int) -> int:
    """One 64-bit number from several, for seeding: (seed, step, …)."""
    state = np.zeros(1, np.uint64)
    for part in parts:
        state = _mix(state + np.uint64(0x9E3779B97F4A7C15) + np.array([part], np.uint64))
    return int(state[0])


def shuffled(index: np.ndarray, n: int, key: int) -> np.ndarray:
    """Where each `index` in 0…n−1 goes under the permutation named by `key`.

    A Feistel network permutes the numbers of an even count of bits; what falls outside 0…n−1 is sent through
    again until it falls inside, which keeps it a permutation of 0…n−1. Memory does not grow with n.
    """
    half = max(1, (max(n - 1, 1).bit_length() + 1) // 2)
    low = np.uint64((1 << half) - 1)
    shift = np.uint64(half)
    keys = [np.uint64(fold_seed(key, r)) for r in range(_ROUNDS)]

    def once(x: np.ndarray) -> np.ndarray:
        left, right = x >> shift, x & low
        for k in keys:
            left, right = right, left ^ (_mix(right + k) & low)
        return (left << shift) | right

    with np.errstate(over="ignore"):
        x = once(np.asarray(index, np.uint64))
        while (outside := x >= n).any():
            x[outside] = once(x[outside])
    return x.astype(np.int64)
