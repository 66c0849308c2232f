"""The n-gram language model with interpolated Kneser-Ney smoothing: the floor under every language model.

    P_k(w | h) = max(c(hw) − D, 0) / c(h·)  +  D · N(h·) / c(h·) · P_(k−1)(w | h without its first token)

c counts k-grams; below the highest order it counts in how many different places one occurs, that is, the
different tokens before it. N(h·) is how many different tokens follow h, and D = n₁ / (n₁ + 2 n₂), from
the k-grams counted once and twice. The lowest order falls back on the uniform distribution.

Letters: V vocabulary, k order.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class _Order:
    """All k-grams of one order: the key of one is (number of its first k − 1 tokens) · V + last token."""

    keys: np.ndarray  # sorted; a k-gram's number is its place here
    count: np.ndarray
    total: np.ndarray  # by context: c(h·)
    types: np.ndarray  # by context: N(h·)
    discount: float

    def find(self, keys: np.ndarray) -> np.ndarray:
        """The number of each k-gram, −1 for one that was never seen."""
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[place] == keys, place, -1)


class NGram:
    def __init__(self, ids: np.ndarray, vocab: int, order: int):
        """Count all n-grams of a text up to `order`."""
        ids = np.asarray(ids, np.int64)
        self.vocab, self.order = vocab, order
        grams: list[
            tuple[np.ndarray, np.ndarray, np.ndarray]
        ] = []  # keys, raw counts, where each was first seen
        numbers = [np.zeros(len(ids) + 1, np.int64)]  # of the 0-gram: all the same
        for _ in range(order):
            before = numbers[-1][:-1]  # the number of the (k − 1)-gram that ends just before each place
            numbered = before >= 0
            keys, first, back, raw = np.unique(
                before[numbered] * vocab + ids[numbered],
                return_index=True,
                return_inverse=True,
                return_counts=True,
            )
            now = np.full(len(ids) + 1, -1, np.int64)
            now[1:][numbered] = back
            numbers.append(now)
            grams.append((keys, raw, np.flatnonzero(numbered)[first]))
        self.orders: list[_Order] = []
        for k in range(1, order + 1):
            keys, count, _ = grams[k - 1]
            if k < order:  # the different tokens before it: each longer gram is one
                ending = numbers[k][1:][grams[k][2]]
                count = np.maximum(np.bincount(ending, minlength=len(keys)), 1)
            context = keys // vocab
            contexts = int(context.max()) + 1
            once, twice = int((count == 1).sum()), int((count == 2).sum())
            self.orders.append(
                _Order(
                    keys,
                    count,
                    np.bincount(context, weights=count, minlength=contexts),
                    np.bincount(context, minlength=contexts),
                    once / (once + 2 * twice) if once and twice else 0.5,
                )
            )

    def probabilities(self, ids: np.ndarray) -> np.ndarray:
        """P of every token of a text given the order − 1 before it (fewer at the start)."""
        ids = np.asarray(ids, np.int64)
        p = np.full(len(ids), 1.0 / self.vocab)
        before = np.zeros(len(ids), np.int64)  # the number of the context of each token; −1: never seen
        for grams in self.orders:
            known = (before >= 0) & (before < len(grams.total))
            known[known] = grams.total[before[known]] > 0
            h = before[known]
            number = np.full(len(ids), -1, np.int64)
            number[known] = grams.find(h * self.vocab + ids[known])
            count = np.where(number[known] >= 0, grams.count[np.maximum(number[known], 0)], 0)
            kept = np.maximum(count - grams.discount, 0.0)
            p[known] = (kept + grams.discount * grams.types[h] * p[known]) / grams.total[h]
            before = np.concatenate([[-1], number[:-1]])
        return p


def usual_order(vocab: int) -> int:
    """Longer for characters and bytes, whose n-grams repeat."""
    return 6 if vocab <= 300 else 5 if vocab <= 2048 else 4
