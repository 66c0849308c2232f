"""What words are spelled with, as numbers: runs of letters, each by its hash.

    happy   →   <ha hap app ppy py>   <hap happ appy ppy>   <happ happy appy>

Words that are alike have most of their runs in common (Bojanowski et al. 2017).

Letters: N words, M runs that a word may have.
"""

import zlib
from collections.abc import Sequence

import numpy as np

LENGTHS = range(3, 6)  # of runs


def runs_in(word: str) -> list[str]:
    """The runs of letters of a word with its ends marked, the short ones first."""
    marked = f"<{word}>"
    return [marked[i : i + n] for n in LENGTHS for i in range(len(marked) - n + 1)]


def number_runs(words: Sequence[str], buckets: int, most: int) -> np.ndarray:
    """For each word the numbers of its first runs from 1 to buckets − 1, and 0 behind them: (N, most)."""
    numbers = np.zeros((len(words), most), np.int32)
    for row, word in zip(numbers, words, strict=True):
        found = [1 + zlib.crc32(run.encode()) % (buckets - 1) for run in runs_in(word)[:most]]
        row[: len(found)] = found
    return numbers
