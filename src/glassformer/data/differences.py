"""How unlike the splits are: what one simple model, counted on the training text, needs for each of them.

The model knows each byte and the one before it, whatever the tokenizer. A byte of training is scored by the
counts without itself, so that training text counts as text that was not seen, like the others. Where a split
needs clearly more or less than another, it is of another kind: another language, a list, a licence.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from glassformer.data.shards import Tokens
from glassformer.tokenizers.tokenizer import Tokenizer

MOST_TOKENS = 1 << 18  # of each split that are looked at, in stretches spread evenly
STRETCH = 1024  # tokens that are read together
PIECE = 256  # bytes that wander together
PRIOR = 8.0  # as how many occurrences of the byte before the frequencies of single bytes count
STRONG = 0.08  # difference, as a share of the smaller, from which on splits are called unlike
SURE = 3.0  # standard errors that it must be at least


@dataclass(frozen=True)
class Difficulty:
    """Bits per byte of a split, and its standard error."""

    bits: float
    error: float


def difficulties(splits: dict[str, Tokens], tokenizer: Tokenizer) -> dict[str, Difficulty]:
    """Of training, validation and test, as far as there is enough of them."""
    texts = {name: _sample(tokens, tokenizer) for name, tokens in splits.items()}
    texts = {name: pieces for name, pieces in texts.items() if len(pieces) > 1}
    if "train" not in texts:
        return {}
    counts = np.bincount(_pairs(texts["train"]).ravel(), minlength=1 << 16).astype(np.float64)
    single = counts.reshape(256, 256).sum(0)  # of the second byte of each pair
    before = counts.reshape(256, 256).sum(1)
    found: dict[str, Difficulty] = {}
    for name, pieces in texts.items():
        own = 1.0 if name == "train" else 0.0  # the occurrence that is scored
        pairs = _pairs(pieces)
        share = (single[pairs & 255] - own + 1) / (single.sum() - own + 256)
        p = (counts[pairs] - own + PRIOR * share) / (before[pairs >> 8] - own + PRIOR)
        bits = -np.log2(p).mean(1)
        found[name] = Difficulty(float(bits.mean()), float(bits.std() / math.sqrt(len(bits) - 1)))
    return found


def unlike(found: dict[str, Difficulty]) -> list[tuple[str, str]]:
    """The pairs of splits that differ strongly, and more than chance makes them; the easier one first."""
    return [
        (easy, hard)
        for a, b in combinations(found, 2)
        for easy, hard in [sorted((a, b), key=lambda name: found[name].bits)]
        if found[hard].bits - found[easy].bits
        > max(STRONG * found[easy].bits, SURE * math.hypot(found[easy].error, found[hard].error))
    ]


def _sample(tokens: Tokens, tokenizer: Tokenizer) -> np.ndarray:
    """Text of a split as bytes in pieces, (N, PIECE): all of it, or stretches of it spread evenly."""
    text = b"".join(tokenizer.token_bytes(i) for ids in _stretches(tokens) for i in ids.tolist())
    count = len(text) // PIECE
    return np.frombuffer(text[: count * PIECE], np.uint8).reshape(count, PIECE).astype(np.int64)


def _stretches(tokens: Tokens) -> Iterator[np.ndarray]:
    count = max(1, len(tokens) // STRETCH)
    most = min(count, MOST_TOKENS // STRETCH)
    for i in range(most):
        at = i * count // most * STRETCH
        yield tokens.read(at, len(tokens) if most == count and i == most - 1 else at + STRETCH)


def _pairs(pieces: np.ndarray) -> np.ndarray:
    """Each byte with the one before it, as one number."""
    return pieces[:, :-1] << 8 | pieces[:, 1:]
