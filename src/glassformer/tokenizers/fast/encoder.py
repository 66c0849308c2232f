"""Ids of texts on all cores. Each worker remembers the pieces it has met, from call to call."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from glassformer.core.cores import cores
from glassformer.core.errors import TokenizerError
from glassformer.tokenizers.fast import compiled_loops
from glassformer.tokenizers.fast.feed import (
    BATCH,
    Batch,
    in_order,
    parts,
    to_encode,
    together,
    workers,
)
from glassformer.tokenizers.fast.kernels import apply, merge
from glassformer.tokenizers.patterns import Splitter

MOST_BYTES = 1 << 29  # of a part; places are numbered with 32 bits
LEAST_PART = 1 << 16  # bytes of a text that are worth a thread of their own
Ids = tuple[np.ndarray, np.ndarray]  # of all texts of a batch, and where those of each end


class Encoder:
    """Merges, ready to be applied."""

    def __init__(
        self,
        splitter: Splitter,
        merges: Sequence[tuple[int, int]],
        merged: Sequence[int],
        byte_ids: Sequence[int],
    ):
        """Pairs of ids in the order of their ranks, the id that each becomes, and the id of each byte."""
        assert splitter.automaton is not None
        self._splitter, self._automaton = splitter, splitter.automaton
        self._merges = merge.new_merges(
            np.array(merges, np.int64).reshape(-1, 2),
            np.array(merged, np.int64),
            np.array(byte_ids, np.int32),
        )
        self._ranks = len(merges)
        self._numbers = np.arange(1 + max([*merged, *byte_ids]), dtype=object)
        self._idle: list[tuple[apply.Memory, np.ndarray]] = []  # what a worker needs, for the next to take
        self._work(together([b"ab"]))
        compiled_loops.was_compiled()

    def encode(self, text: bytes, threads: int | None = None) -> np.ndarray:
        """The ids of one text."""
        threads = threads or cores()
        size = BATCH if threads == 1 else max(LEAST_PART, min(BATCH, len(text) // (2 * threads)))
        if len(text) <= size:
            return self._work(together([text]))[0]
        return np.concatenate([ids for ids, _ in self._in_order(parts(text, self._splitter, size), threads)])

    def encode_list(self, text: bytes, threads: int | None = None) -> list[int]:
        return self.to_list(self.encode(text, threads))

    def to_list(self, ids: np.ndarray) -> list[int]:
        """A list that shares one Python number per entry: half of `tolist`'s time, a fifth of its memory."""
        numbers: list[int] = []
        for start in range(0, len(ids), 1 << 16):
            numbers += self._numbers.take(ids[start : start + (1 << 16)], mode="clip").tolist()
        return numbers

    def stream(self, texts: Iterable[bytes], threads: int | None = None) -> Iterator[np.ndarray]:
        """The ids of each text, in order, a few batches at a time."""
        for ids, ends in self._in_order(to_encode(texts), threads or cores()):
            yield from np.split(ids, ends[:-1])

    def _in_order(self, batches: Iterable[Batch], threads: int) -> Iterator[Ids]:
        if threads == 1:
            yield from map(self._work, batches)
            return
        with workers(threads) as pool:
            work = partial(self._work, pause=pool.pause)
            yield from in_order(pool, work, batches, waiting=2 * threads)

    def _work(self, batch: Batch, pause: Callable[[], None] = lambda: None) -> Ids:
        """The ids of a batch. Now and then it returns to Python, for Ctrl-C; in a thread, for `pause`."""
        if len(batch.data) > MOST_BYTES:
            raise TokenizerError(f"{len(batch.data):,} bytes of text without a place to cut are too many")
        try:
            memory, room = self._idle.pop()
        except IndexError:
            memory, room = apply.new_memory(self._ranks), np.empty(BATCH, np.int32)
        if len(room) < len(batch.data):
            room = np.empty(len(batch.data), np.int32)
        place, ends = np.zeros(3, np.int64), np.empty(len(batch.bounds) - 1, np.int64)
        arrays = (place, merge.new_long(), self._automaton, self._merges, memory, room, ends)
        while (end := apply.encode_texts(batch.data, batch.bounds, *arrays)) != apply.DONE:
            if end == apply.STUCK:
                raise self._splitter.reads_too_far()
            if end == apply.FULL:
                apply.forget(memory)
            pause()
        ids = room[: place[2]].copy()
        self._idle.append((memory, room if len(room) <= 4 * BATCH else room[:BATCH].copy()))
        return ids, ends
