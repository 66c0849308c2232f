"""The randomness of a draw, as a function: the same (seed, position, token) gives the same number everywhere.

A token is drawn by giving each candidate its score plus a Gumbel number and taking the best, which draws
token i with probability softmax(scores)_i. The numbers are hashes of where they are used, so a text does not
depend on what is generated beside it, on what was drawn before, or on which program computes it:

    key     = mix(mix(seed) + position)         one 64-bit number for each row of a step
    bits    = mix(key + (token + 1) · φ)        one for each token
    uniform = (the upper 52 bits + ½) / 2⁵²     in (0, 1), and exact
    gumbel  = −ln(−ln(uniform))                 in double precision

`mix` is the finaliser of splitmix64. Here it is for tensors; fast/kernels/draw.py has it compiled.

Letters: B rows, N tokens.
"""

from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15  # 2⁶⁴ / the golden ratio, odd
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def key_of(seed: int, position: int) -> int:
    """What the tokens at a position of a text are hashed with, as a signed 64-bit number."""
    return _signed(_mix(seed_key(seed) + position))


def seed_key(seed: int) -> int:
    """The part of it that positions are added to, as a signed 64-bit number."""
    return _signed(_mix(seed))


def gumbel(keys: Tensor, tokens: Tensor) -> Tensor:
    """The numbers of tokens (B, N) or (N) in rows with these keys (B): (B, N), in double precision."""
    bits = keys[:, None] + (tokens + 1) * _signed(GOLDEN)  # int64 wraps around, as the hash wants it
    for shift, factor in ((30, FIRST), (27, SECOND)):
        bits = (bits ^ _right(bits, shift)) * _signed(factor)
    bits = bits ^ _right(bits, 31)
    uniform = (_right(bits, 12).double() + 0.5) * 2.0**-52
    return -(-uniform.log()).log()


def _right(x: Tensor, by: int) -> Tensor:
    """A shift to the right that brings in zeros."""
    return (x >> by) & ((1 << (64 - by)) - 1)


def _mix(x: int) -> int:
    x &= (1 << 64) - 1
    x = ((x ^ (x >> 30)) * FIRST) & ((1 << 64) - 1)
    x = ((x ^ (x >> 27)) * SECOND) & ((1 << 64) - 1)
    return x ^ (x >> 31)


def _signed(x: int) -> int:
    return x - (1 << 64) if x >> 63 else x
