"""Batches as a pure function of (seed, step): no iterator to save, any step can be asked for.

An epoch cuts the split into windows of `context` tokens, from an offset of its own, and visits each once in
a shuffled order. Sample number n of a run is therefore known without counting up to it.

Letters: B batch, T positions (the context).
"""

import numpy as np

from glassformer.text.order import number, shuffled
from glassformer.text.shards import Tokens


class Windows:
    """Windows of a token split for language modelling: inputs (B, T) and, one further on, targets (B, T)."""

    def __init__(self, tokens: Tokens, context: int, seed: int):
        self.tokens, self.context, self.seed = tokens, context, seed
        # Every offset from 0 to T−1 leaves room for this many windows and the last target.
        self.per_epoch = max(1, (len(tokens) - context) // context)

    def starts(self, first: int, count: int) -> np.ndarray:
        """Where samples number first … first+count−1 of the run begin in the split."""
        samples = np.arange(first, first + count)
        starts = np.empty(count, np.int64)
        for epoch in np.unique(samples // self.per_epoch):
            here = samples // self.per_epoch == epoch
            key = number(self.seed, int(epoch))
            room = len(self.tokens) - 1 - self.per_epoch * self.context
            offset = key % (min(room, self.context - 1) + 1)
            order = shuffled(samples[here] % self.per_epoch, self.per_epoch, key)
            starts[here] = offset + order * self.context
        return starts

    def read(self, first: int, count: int) -> np.ndarray:
        """Samples number first … first+count−1 as an array of ids, (count, T + 1)."""
        T = self.context
        return np.stack([self.tokens.read(s, s + T + 1) for s in self.starts(first, count)]).astype(np.int64)
