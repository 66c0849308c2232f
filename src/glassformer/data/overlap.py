"""How much of what is held out stands in the training text too, word for word, in runs of some length.

Copies that a split by content cannot see (a page with another heading, a quotation, a licence) show here. A
run is so many tokens that they are about RUN_BYTES of text; both sides are hashed, and of a large corpus a
sample is compared: the same runs on both sides, since which are in it follows from their hash.
"""

import math

import numpy as np

from glassformer.data.shards import Tokens

RUN_BYTES = 64
PLENTY = 1 << 21  # tokens from which on a sample of the runs is enough
SAMPLE = 16  # one run in so many is in it
MOST_TOKENS = 1 << 23  # of training text that are looked at, spread evenly
CHUNK = 1 << 20  # tokens hashed at once
_NONE = np.zeros(0, np.uint64)
FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, its bits spread evenly


def shared_with_train(splits: dict[str, Tokens], unknown: int | None = None) -> dict[str, float]:
    """For validation and test, the share of their runs that are in the training text; none if it has no run.

    Runs that hold the id `unknown` are passed over: it stands for more than one text.
    """
    train = splits.get("train")
    held_out = {name: tokens for name, tokens in splits.items() if name in ("valid", "test")}
    if train is None or not held_out:
        return {}
    length = max(2, math.ceil(RUN_BYTES / max(train.bytes_per_token, 1e-9)))
    sample = np.uint64(SAMPLE if len(train) > PLENTY else 1)

    def runs(tokens: Tokens, start: int) -> np.ndarray:
        ids = tokens.read(start, min(start + CHUNK, len(tokens)))
        hashes = run_hashes(ids, length)
        keep = np.ones(len(hashes), bool) if sample == 1 else (hashes >> np.uint64(32)) % sample == 0
        if unknown is not None and len(hashes):
            count = np.cumsum(np.concatenate([[0], ids == unknown]))
            keep &= count[length:] == count[:-length]
        return hashes[keep]

    parts = {
        name: np.concatenate([runs(tokens, start) for start in range(0, len(tokens), CHUNK)] or [_NONE])
        for name, tokens in held_out.items()
    }
    known = np.unique(np.concatenate(list(parts.values())))
    found = np.zeros(len(known), bool)
    for start in _starts(len(train)) if len(known) else ():
        hashes = runs(train, start)
        places = np.searchsorted(known, hashes) % len(known)
        found[places[known[places] == hashes]] = True
    return {
        name: float(found[np.searchsorted(known, hashes)].mean())
        for name, hashes in parts.items()
        if len(hashes)
    }


def _starts(size: int) -> list[int]:
    """Where chunks of the training text begin: all of them, or as many as may be looked at, spread evenly."""
    chunks = math.ceil(size / CHUNK)
    most = min(chunks, MOST_TOKENS // CHUNK)
    return [i * chunks // most * CHUNK for i in range(most)]


def run_hashes(ids: np.ndarray, length: int) -> np.ndarray:
    """A hash of each run of `length` ids: polynomials modulo 2^64, made of those of runs half as long."""
    if len(ids) < length:
        return _NONE
    with np.errstate(over="ignore"):
        base = (ids.astype(np.uint64) + np.uint64(1)) * FACTOR
        base ^= base >> np.uint64(29)
        size, left = 1, length
        hashes, done = np.zeros(len(ids) + 1, np.uint64), 0
        while left:
            if left & 1:
                count = len(ids) + 1 - done - size
                hashes = hashes[:count] * _power(size) + base[done : done + count]
                done += size
            left >>= 1
            if left:
                base = base[:-size] * _power(size) + base[size:]
                size *= 2
    return hashes


def _power(exponent: int) -> np.uint64:
    return np.uint64(pow(int(FACTOR) | 1, exponent, 1 << 64))
