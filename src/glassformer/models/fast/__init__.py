"""Twins of parts of a model, compiled for training on a CPU. A test holds each to its formula.

    attention.py  attention under a causal mask, forward and backward: when it fits, and who takes it
    causal.py     its loops
    tiles.py      products of eight rows, which the loops are made of

Only attention.py may be imported by whoever does not need it: the others import numba.
"""
