"""Random words, each said twice: text in which nothing helps but to look back and copy.

    Xq3fTz…Xq3fTz…
    m0PdLk…m0PdLk…

The first half of a line cannot be predicted; the second can, by a model that finds the letter before in what
it has read and takes what followed. Halves differ in length, so that position alone does not tell where.
"""

import string

import numpy as np

from glassformer.text.order import number

ALPHABET = string.ascii_letters + string.digits
DOCUMENTS, LINES = 400, 50
SHORTEST, LONGEST = 8, 40


def documents() -> list[tuple[str, str]]:
    """(name, text) of each; the same on every machine."""
    return [(f"repeats {d}", "".join(_line(d, i) for i in range(LINES))) for d in range(DOCUMENTS)]


def _line(document: int, line: int) -> str:
    random = np.random.Generator(np.random.PCG64(number(document, line)))
    size = SHORTEST + int(random.integers(LONGEST - SHORTEST + 1))
    half = "".join(ALPHABET[int(k)] for k in random.permutation(len(ALPHABET))[:size])
    return f"{half}{half}\n"
