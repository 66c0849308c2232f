"""Batches as a pure function of (seed, step): no iterator to save, any step can be asked for.

    Windows   text, cut into windows of `context` tokens from an offset of its own in every epoch, shuffled
    Mixed     windows of several texts, in given shares
    Streams   text, cut into as many streams as a batch has rows; each goes on where the last batch ended
    Buckets   examples of unequal lengths, shuffled, with those of like length side by side

Sample number n of a run is therefore known without counting up to it.

Letters: B batch, T positions (the context).
"""

from collections.abc import Sequence

import numpy as np

from glassformer.core.errors import DataError, UsageError
from glassformer.data.order import fold_seed, shuffled
from glassformer.data.shards import Blend, Tokens

PERIOD = 1000  # samples in which every source has its exact share


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
            key = fold_seed(self.seed, int(epoch))
            room = len(self.tokens) - 1 - self.per_epoch * self.context
            offset = key % (min(room, self.context - 1) + 1)
            order = shuffled(samples[here] % self.per_epoch, self.per_epoch, key)
            starts[here] = offset + order * self.context
        return starts

    def read(self, first: int, count: int) -> np.ndarray:
        """Samples number first … first+count−1 as an array of ids, (count, T + 1)."""
        T = self.context
        return np.stack([self.tokens.read(s, s + T + 1) for s in self.starts(first, count)]).astype(np.int64)


class Mixed:
    """Windows of several sources. In every PERIOD samples each source has its share, in an order of its own.

    Which source sample n comes from, and how many samples that source gave before, follow from (seed, n).
    """

    def __init__(self, blend: Blend, context: int, seed: int):
        self.seed, self.context = seed, context
        self.sources = [Windows(t, context, fold_seed(seed, i + 1)) for i, t in enumerate(blend.sources)]
        self.counts = shares_of(blend.shares)
        self.per_epoch = sum(windows.per_epoch for windows in self.sources)

    def places(self, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The source of samples number first … first+count−1, and which of that source's samples each is."""
        source_ids, index = np.empty(count, np.int64), np.empty(count, np.int64)
        ends = np.cumsum(self.counts)
        for period in range(first // PERIOD, (first + count - 1) // PERIOD + 1):
            order = shuffled(np.arange(PERIOD), PERIOD, fold_seed(self.seed, 0, period))
            sources = np.searchsorted(ends, order, side="right")
            before = np.empty(PERIOD, np.int64)
            for i, n in enumerate(self.counts):
                before[sources == i] = period * n + np.arange(n)
            own = slice(max(first - period * PERIOD, 0), min(first + count - period * PERIOD, PERIOD))
            target = slice(own.start + period * PERIOD - first, own.stop + period * PERIOD - first)
            source_ids[target], index[target] = sources[own], before[own]
        return source_ids, index

    def read(self, first: int, count: int) -> np.ndarray:
        """Samples number first … first+count−1 as an array of ids, (count, T + 1)."""
        ids = np.empty((count, self.context + 1), np.int64)
        source_ids, index = self.places(first, count)
        for i, windows in enumerate(self.sources):
            rows = source_ids == i
            if rows.any():  # samples of one source that follow each other have numbers that do
                ids[rows] = windows.read(int(index[rows][0]), int(rows.sum()))
        return ids


def shares_of(weights: Sequence[float]) -> list[int]:
    """How many of PERIOD samples each weight stands for: rounded so that they add up."""
    exact = np.array(weights) / sum(weights) * PERIOD
    counts = np.floor(exact).astype(int)
    by_remainder = np.argsort(counts - exact, kind="stable")
    counts[by_remainder[: PERIOD - counts.sum()]] += 1
    if counts.min() < 1:
        raise UsageError(
            f"data.mix: the weight {weights[int(counts.argmin())]:g} is less than one sample in {PERIOD:,}, "
            "which is the least. Give it more, or leave that source out."
        )
    return counts.tolist()


def windows_of(tokens: Tokens, context: int, seed: int) -> Windows | Mixed:
    """The windows of a text, or of several that are mixed."""
    return Mixed(tokens, context, seed) if isinstance(tokens, Blend) else Windows(tokens, context, seed)


class Streams:
    """Contiguous streams of a token split, for models that carry their state from batch to batch.

    Row r of every batch reads stream r, `context` tokens further on each time; when the streams have ended,
    an epoch is over and they start anew, from another offset.
    """

    def __init__(self, tokens: Tokens, context: int, rows: int, seed: int):
        self.tokens, self.context, self.rows, self.seed = tokens, context, rows, seed
        self.length = (len(tokens) - context) // rows  # room for the offset, and the last target
        if self.length < context:
            raise DataError(
                f"{rows} streams of {len(tokens)} tokens are shorter than model.context {context}: "
                "set a smaller training.batch or model.context, or give more text."
            )
        self.pieces = self.length // context  # of a stream, in an epoch

    def fresh(self, first: int) -> bool:
        """Whether the streams begin at sample number `first`, so that no state is carried into it."""
        return (first // self.rows) % self.pieces == 0

    def read(self, first: int, count: int) -> np.ndarray:
        """Samples number first … first+count−1 as an array of ids, (count, T + 1)."""
        samples = np.arange(first, first + count)
        batch, row = samples // self.rows, samples % self.rows
        offsets = [fold_seed(self.seed, int(epoch)) % self.context for epoch in batch // self.pieces]
        starts = np.array(offsets) + row * self.length + (batch % self.pieces) * self.context
        return np.stack([self.tokens.read(s, s + self.context + 1) for s in starts]).astype(np.int64)


class Buckets:
    """Which examples a batch holds: shuffled, yet of nearly one length, so that little of it is padding."""

    POOL = 64  # batches that are sorted by length among themselves

    def __init__(self, lengths: Sequence[int], batch: int, seed: int):
        self.lengths, self.batch, self.seed = np.asarray(lengths), batch, seed
        self.per_epoch = max(len(lengths) // batch * batch, min(len(lengths), batch))
        self._epoch, self._order = -1, np.zeros(0, np.int64)

    def rows(self, first: int, count: int) -> list[int]:
        """The examples that are samples number first … first+count−1 of the run."""
        samples = range(first, first + count)
        return [int(self._order_of(n // self.per_epoch)[n % self.per_epoch]) for n in samples]

    def _order_of(self, epoch: int) -> np.ndarray:
        if epoch != self._epoch:
            n, key = len(self.lengths), fold_seed(self.seed, epoch)
            order = np.empty(n, np.int64)
            order[shuffled(np.arange(n), n, key)] = np.arange(n)
            order = order[: self.per_epoch]
            pool = self.POOL * self.batch
            for i in range(0, len(order), pool):
                part = order[i : i + pool]
                order[i : i + pool] = part[np.argsort(self.lengths[part], kind="stable")]
            full = len(order) // self.batch
            batches = order[: full * self.batch].reshape(full, self.batch)
            shuffled_batches = (
                batches[shuffled(np.arange(full), full, fold_seed(key, 1))] if full else batches
            )
            self._epoch, self._order = (
                epoch,
                np.concatenate([shuffled_batches.ravel(), order[full * self.batch :]]),
            )
        return self._order


def drop_tokens(inputs: np.ndarray, mask: np.ndarray, share: float, mask_id: int, seed: int) -> np.ndarray:
    """Ids with a share of the real ones replaced by the id `mask_id`, at random; the first stays."""
    hidden = np.random.default_rng(seed).random(mask.shape) < share
    hidden[:, 0] = False
    return np.where(hidden & mask, mask_id, inputs)


def few_lengths(longest: int, most: int) -> int:
    """At least `longest`, and one of few numbers: multiples of 8 up to 128, from there eight in each octave;
    at most `most` unless it is longer itself.
    """
    step = max(8, (1 << (longest - 1).bit_length()) // 16)
    return max(longest, min(-(-longest // step) * step, most))


def pad(
    arrays: Sequence[np.ndarray], fill: int = 0, most: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Sequences of unequal length as one array, (B, T, …), and which of its places are real, (B, T).

    Given `most`, the longest there is anywhere, T is one of few lengths.
    """
    longest = max(len(a) for a in arrays)
    if most is not None:
        longest = few_lengths(longest, most)
    padded = np.full((len(arrays), longest, *arrays[0].shape[1:]), fill, arrays[0].dtype)
    mask = np.zeros((len(arrays), longest), bool)
    for i, a in enumerate(arrays):
        padded[i, : len(a)] = a
        mask[i, : len(a)] = True
    return padded, mask
