"""Texts in batches of about a megabyte, and the threads that take them.

Memory holds a few batches, whatever the size of the corpus. A long text is cut into parts where the pattern
begins a new piece anyway.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np

from glassformer.tokenizers.patterns import Splitter

T = TypeVar("T")
U = TypeVar("U")
BATCH = 1 << 20  # bytes


@dataclass
class Batch:
    """Texts one after the other: text k is data[bounds[k]:bounds[k + 1]]."""

    data: np.ndarray  # uint8
    bounds: np.ndarray  # int64
    weight: int = 1  # of each text, where they are counted


def together(texts: list[bytes], weight: int = 1) -> Batch:
    bounds = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    return Batch(np.frombuffer(b"".join(texts), np.uint8), bounds, weight)


def parts(text: bytes, splitter: Splitter, size: int, weight: int = 1) -> Iterator[Batch]:
    """One text in several batches, without a copy."""
    whole = np.frombuffer(text, np.uint8)
    for start, stop in pairwise(splitter.cuts(text, size)):
        yield Batch(whole[start:stop], np.array([0, stop - start]), weight)


def to_count(texts: Iterable[tuple[bytes, int]], splitter: Splitter) -> Iterator[Batch]:
    """(text, weight) pairs: short texts together, long ones in parts."""
    pending: list[bytes] = []
    size, weight = 0, 1
    for text, w in texts:
        if pending and (size + len(text) > BATCH or w != weight):
            yield together(pending, weight)
            pending, size = [], 0
        weight = w
        if len(text) > 2 * BATCH:
            yield from parts(text, splitter, BATCH, weight)
        else:
            pending.append(text)
            size += len(text)
    if pending:
        yield together(pending, weight)


def to_encode(texts: Iterable[bytes]) -> Iterator[Batch]:
    """Whole texts, several to a batch if they are short."""
    pending: list[bytes] = []
    size = 0
    for text in texts:
        pending.append(text)
        size += len(text)
        if size >= BATCH:
            yield together(pending)
            pending, size = [], 0
    if pending:
        yield together(pending)


class Workers(ThreadPoolExecutor):
    """Threads, and whether anybody still waits for what they do."""

    ended = False

    def pause(self) -> None:
        """What long work calls now and then: it ends here if it is not waited for any more."""
        if self.ended:
            raise CancelledError


@contextmanager
def workers(threads: int) -> Iterator[Workers]:
    """Threads that are gone afterwards, also after Ctrl-C, which the main thread alone is told of: what still
    waits is not begun, what is under way ends at its next pause."""
    pool = Workers(threads)
    try:
        yield pool
    finally:
        pool.ended = True
        pool.shutdown(cancel_futures=True)


def in_order(
    pool: ThreadPoolExecutor, work: Callable[[T], U], items: Iterable[T], waiting: int
) -> Iterator[U]:
    """work(item) for each, on the pool, in order. Items are drawn here, a few ahead of the results."""
    futures: deque[Future[U]] = deque()
    for item in items:
        futures.append(pool.submit(work, item))
        if len(futures) > waiting:
            yield futures.popleft().result()
    while futures:
        yield futures.popleft().result()
