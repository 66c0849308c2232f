"""The n-gram language model with interpolated Kneser-Ney smoothing: the baseline of every language model.

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

    keys: np.ndarray  # sorted; a k-gram's number is its index here
    count: np.ndarray
    total: np.ndarray  # by history: c(h·)
    types: np.ndarray  # by history: N(h·)
    discount: float

    def find(self, keys: np.ndarray) -> np.ndarray:
        """The number of each k-gram, −1 for one that does not occur."""
        index = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[index] == keys, index, -1)


class NGram:
    def __init__(self, ids: np.ndarray, vocab: int, order: int):
        """Count all n-grams of a text up to `order`."""
        ids = np.asarray(ids, np.int64)
        self.vocab, self.order = vocab, order
        # Of each order: keys, raw counts, where each occurs first.
        grams: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        numbers = [np.zeros(len(ids) + 1, np.int64)]  # of the 0-gram: all the same
        for _ in range(order):
            history = numbers[-1][:-1]  # the number of the (k − 1)-gram that ends just before each position
            full = np.flatnonzero(history >= 0)  # positions with so many tokens before them
            keys, first, inverse, raw = np.unique(
                history[full] * vocab + ids[full], return_index=True, return_inverse=True, return_counts=True
            )
            number = np.full(len(ids) + 1, -1, np.int64)
            number[1:][full] = inverse
            numbers.append(number)
            grams.append((keys, raw, full[first]))
        self.orders: list[_Order] = []
        for k in range(1, order + 1):
            keys, count, _ = grams[k - 1]
            if k < order:  # the different tokens before it: each longer gram is one
                suffix = numbers[k][1:][grams[k][2]]
                count = np.maximum(np.bincount(suffix, minlength=len(keys)), 1)
            history = keys // vocab
            histories = int(history.max()) + 1
            once, twice = int((count == 1).sum()), int((count == 2).sum())
            self.orders.append(
                _Order(
                    keys,
                    count,
                    np.bincount(history, weights=count, minlength=histories),
                    np.bincount(history, minlength=histories),
                    once / (once + 2 * twice) if once and twice else 0.5,
                )
            )

    def probabilities(self, ids: np.ndarray) -> np.ndarray:
        """P of every token of a text given the order − 1 before it (fewer at the start)."""
        ids = np.asarray(ids, np.int64)
        p = np.full(len(ids), 1.0 / self.vocab)
        history = np.zeros(len(ids), np.int64)  # the number of the history of each token; −1: does not occur
        for grams in self.orders:
            mask = (history >= 0) & (history < len(grams.total))  # tokens whose history says something
            mask[mask] = grams.total[history[mask]] > 0
            h = history[mask]
            number = np.full(len(ids), -1, np.int64)
            number[mask] = grams.find(h * self.vocab + ids[mask])
            count = np.where(number[mask] >= 0, grams.count[np.maximum(number[mask], 0)], 0)
            p[mask] = np.maximum(count - grams.discount, 0.0) + grams.discount * grams.types[h] * p[mask]
            p[mask] /= grams.total[h]
            history = np.concatenate([[-1], number[:-1]])
        return p


def usual_order(vocab: int) -> int:
    """Longer for characters and bytes, whose n-grams repeat."""
    return 6 if vocab <= 300 else 5 if vocab <= 2048 else 4
