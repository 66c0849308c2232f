"""The kernels of a step on a GPU, written in Triton; each stands beside its formula in tests/kernels.

    stream.py      the residual stream: its first value, what layers add to it, its norm
    products.py    rows times matrices, in two kinds: row by row, and in tiles for tensor cores
    heads.py       queries, keys and values: their norm, their turn, and where they are kept
    attention.py   one head of one row over the pages of its text
    draw.py        the draw of a token, and on to the next step
    few.py         the same from few tokens;  keys.py  what draws are made of
    functions.py   what several kernels use

All sizes are known when a kernel is compiled. A parameter that a model does not have is None, which is known
then too, so nothing is left of it.
"""
