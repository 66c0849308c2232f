"""Random words, each said three times: text in which nothing helps but to look back and copy.

    Xq3fTzXq3fTzXq3fTz
    m0PdLkYsm0PdLkYsm0PdLkYs

The first time a word cannot be predicted; after that it can, by a model that finds the last letter in what it
has read and takes what followed. Words differ in length, so that position alone does not tell where, and no
letter is twice in a word, so that there is one place to find.
"""

import string

import numpy as np

from glassformer.data.order import fold_seed

ALPHABET = string.ascii_letters + string.digits
DOCUMENTS, LINES = 400, 50
SHORTEST, LONGEST = 6, 20
TIMES = 3


def documents() -> list[tuple[str, str]]:
    """(name, text) of each; the same on every machine."""
    return [(f"repeats {d}", "".join(_line(d, i) for i in range(LINES))) for d in range(DOCUMENTS)]


def _line(document: int, line: int) -> str:
    random = np.random.Generator(np.random.PCG64(fold_seed(document, line)))
    size = SHORTEST + int(random.integers(LONGEST - SHORTEST + 1))
    word = "".join(ALPHABET[int(k)] for k in random.permutation(len(ALPHABET))[:size])
    return f"{word * TIMES}\n"
