"""The program that walks through a model, over addresses and integers, made machine code by numba.

    walk.py       embed, layers, scores, choice; the one that is called
    plan.py       the names of the integers that say what there is, and where
    share.py      how threads share a walk
    products.py   rows times matrices;  attention.py what one head does;  norm.py norms
    draw.py       the draw of a token
    sieve.py      scores of those tokens alone that can be chosen

What it is made of is in core/lanes. It knows nothing of PyTorch or of Python objects; the folder above calls
it. Only `walk` is compiled for a caller in Python, and kept between runs; the rest becomes part of it.
"""
