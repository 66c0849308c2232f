"""Twins of parts of a model, compiled for training on a CPU. A test holds each to its formula.

    attention.py  attention under a causal mask, forward and backward: when it fits, and who takes it
    causal.py     its loops
    tiles.py      products of eight rows, which the loops are made of
    loss.py       scores of next tokens into their gradient: when it fits;  entropy.py its loops
    wanted.py     whether training goes by them just now

attention.py and loss.py load the rest, and with it numba, when something is trained.
"""
