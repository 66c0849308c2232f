"""The fast step of a generation on a CPU: the twin of the one forward pass, as one compiled program.

    fitting.py   which models it can compute
    weights.py   a model's weights as the program reads them: float32 in place, bfloat16, int8
    rounding.py  a model with the weights that a precision stands for
    team.py      the threads that walk through a model together
    choose.py    choices from scores, as sampling.py makes them
    sieve.py     a rough copy of a large unembedding, which rules most tokens out before they are scored
    step.py      `FastStep`, which the engine takes like any other step
    kernels/     the program, compiled by numba; no compiler is needed on the user's machine

Scores are those of the open pass up to rounding, and choices from given scores are those of sampling.py,
token for token. A text's scores are the same to the last bit alone, beside any others, token by token, in one
piece, and with any number of threads.
"""

from glassformer.generation.fast.fitting import fits

__all__ = ["fits"]
