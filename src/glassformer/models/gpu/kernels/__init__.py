"""Kernels of a training pass, in Triton. formulas.py says what each computes; launch.py calls them.

    embedding.py  rows of a table into the stream, and back
    dropout.py    what is left out: a hash
    norm.py       the residual connection and the norm behind it
    heads.py      queries and keys, normalised and turned
    attention.py  attention under a causal mask
    hidden.py     the activation of the feed-forward net
    entropy.py    scores into their gradient
    vectors.py    all gradients side by side

None adds atomically: every sum has one order, so the same step gives the same bits. Capitals in a signature
are tensors (their first element) or numbers that are known when a kernel is compiled.
"""
