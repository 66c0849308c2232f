"""Pieces counted on all cores, merges learned from the counts.

Every worker counts into a table of its own. After each round of batches the tables are joined, and if the
distinct pieces have become too many, the rarest are dropped: memory stays bounded, and what is missing is
reported. Rounds are counted in batches, so the result does not depend on the number of threads.
"""

import ctypes
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from glassformer.core.cores import cores
from glassformer.core.errors import TokenizerError
from glassformer.tokenizers.fast import compiled_loops
from glassformer.tokenizers.fast.feed import Batch, in_order, to_count, workers
from glassformer.tokenizers.fast.kernels import learn as rows
from glassformer.tokenizers.fast.kernels import words as tables
from glassformer.tokenizers.fast.kernels.words import Words
from glassformer.tokenizers.patterns import Splitter

Progress = Callable[[int], None]
ROUND = 512  # batches
PIECE_BYTES = 40  # that a piece may have on average when there are as many as may be


@dataclass
class PieceCounts:
    """Distinct pieces, one after the other, with their lengths and counts."""

    pieces: np.ndarray  # uint8
    lengths: np.ndarray  # int32
    counts: np.ndarray  # int64
    dropped: int = 0  # what is missing in the counts, for want of memory


def count_pieces(
    texts: Iterable[tuple[bytes, int]],
    splitter: Splitter,
    most: int,
    threads: int | None = None,
    progress: Progress = lambda _: None,
) -> PieceCounts:
    """Count the pieces of (text, weight) pairs; `most` distinct ones are held, the most frequent."""
    assert splitter.automaton is not None
    automaton = splitter.automaton
    threads = threads or cores()
    batches = to_count(texts, splitter)
    words, dropped = tables.new_words(), 0
    worker_words: dict[int, Words] = {}  # the table of each worker, for a round

    def work(batch: Batch) -> None:
        own = worker_words.get(threading.get_ident()) or tables.new_words()
        place = np.array([0, batch.bounds[0]])
        arrays = (batch.data, batch.bounds, place, automaton, batch.weight)
        while (end := tables.count_texts(*arrays, own)) != tables.DONE:
            if end == tables.STUCK:
                raise splitter.reads_too_far()
            if end == tables.FULL:
                own = tables.grow(own, longest=int(batch.bounds[-1] - place[1]))
            pool.pause()
        worker_words[threading.get_ident()] = own
        progress(len(batch.data))

    with workers(threads) as pool:
        for first in batches:
            worker_words.clear()
            for _ in in_order(pool, work, chain([first], islice(batches, ROUND - 1)), waiting=2 * threads):
                pass
            for own in worker_words.values():
                words = _absorb(words, own) if words.used[0] else own
            words, rare = _prune(words, most)
            dropped += rare
    compiled_loops.was_compiled()
    count, size = (int(n) for n in words.used)
    lengths, counts = words.records[:count, tables.LENGTH], words.records[:count, tables.VALUE]
    result = PieceCounts(words.arena[:size].copy(), lengths.astype(np.int32), counts.copy(), dropped)
    del words, lengths, counts
    worker_words.clear()
    _return_memory()
    return result


def _return_memory() -> None:
    """Where the C library keeps what the workers' tables took, have it given back before learning begins."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _absorb(words: Words, other: Words, keep: np.ndarray | None = None) -> Words:
    """`words` with the pieces of another table."""
    keep = np.ones(other.used[0], np.bool_) if keep is None else keep
    first = 0
    while (first := tables.absorb(words, other, first, keep)) < len(keep):
        words = tables.grow(words, longest=int(other.records[first, tables.LENGTH]))
    return words


def _prune(words: Words, most: int) -> tuple[Words, int]:
    """The `most` frequent pieces, of equal ones those with the smaller key, and what that leaves out.

    Long pieces cost more: there is room for forty bytes of each.
    """
    records = words.records[: words.used[0]]
    if len(records) <= most and words.used[1] <= PIECE_BYTES * most:
        return words, 0
    counts, lengths = records[:, tables.VALUE], records[:, tables.LENGTH]
    order = np.lexsort((records[:, tables.KEY], -counts))[:most]
    keep = np.zeros(len(records), np.bool_)
    keep[order[np.cumsum(lengths[order]) <= PIECE_BYTES * most]] = True
    return _absorb(tables.new_words(), words, keep), int(counts[~keep].sum())


def counted(pieces: dict[bytes, int], dropped: int = 0) -> PieceCounts:
    """Pieces that were counted elsewhere."""
    lengths = np.array([len(p) for p in pieces], np.int32)
    data = np.frombuffer(b"".join(pieces), np.uint8)
    return PieceCounts(data, lengths, np.array(list(pieces.values()), np.int64), dropped)


def learn(
    counts: PieceCounts,
    entries: Sequence[bytes],
    max_merges: int,
    min_count: int,
    initial: Sequence[tuple[int, int]] = (),
    progress: Progress = lambda _: None,
) -> list[tuple[int, int]]:
    """`learn_merges` of bpe.py. Now and then it returns to Python, for Ctrl-C and the progress bar."""
    if 3 * (len(counts.pieces) + len(counts.lengths) + 1) > np.iinfo(np.int32).max:
        raise TokenizerError(
            "the distinct pieces of this text do not fit: learn from a part of it, or split it more finely"
        )
    byte_ids = np.zeros(256, np.int32)
    byte_ids[[entry[0] for entry in entries]] = np.arange(256)
    row = rows.new_row(
        counts.pieces, counts.lengths, counts.counts, byte_ids, max_merges, 1 if initial else min_count
    )
    for left, right in initial[:max_merges]:
        while not rows.merge_initial(row, left, right):
            row = rows.grow_row(row)
    more = rows.FULL
    while more != rows.NO_MORE and row.used[rows.MERGES] < max_merges:
        before = int(row.used[rows.MERGES])
        more = rows.merge_on(row, min(max_merges, before + 256), min_count)
        if more == rows.FULL:
            row = rows.grow_row(row)
        progress(int(row.used[rows.MERGES]) - before)
    return [(int(a), int(b)) for a, b in row.merges[: row.used[rows.MERGES]]]
