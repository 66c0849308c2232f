"""What draws are made of: Gumbel numbers, keys, what filters say, and what is too close to be told apart.

Twin of parts of noise.py and sampling.py.
"""

import triton
import triton.language as tl

from glassformer.generation.noise import FIRST as FIRST_FACTOR
from glassformer.generation.noise import GOLDEN as GOLDEN_STEP
from glassformer.generation.noise import SECOND as SECOND_FACTOR

FIRST, SECOND, GOLDEN = tl.constexpr(FIRST_FACTOR), tl.constexpr(SECOND_FACTOR), tl.constexpr(GOLDEN_STEP)
UNSURE, OPEN = tl.constexpr(-1), tl.constexpr(-2)  # not to be said here; not known yet
TINY = tl.constexpr(1e-37)  # what is less may be nothing in float32
CLOSE, CLOSE_SHARE = tl.constexpr(1e-6), tl.constexpr(4e-7)  # keys no further apart are not told apart
MIN_P_SLACK = tl.constexpr(1e-5)  # in the logarithm
TOP_P_SLACK, TOP_P_SLACK_EACH = tl.constexpr(1e-6), tl.constexpr(2e-8)  # in the share of better tokens
NOTHING = tl.constexpr(-float("inf"))


@triton.jit
def _mix(bits):
    bits = (bits ^ (bits >> 30)) * FIRST
    bits = (bits ^ (bits >> 27)) * SECOND
    return bits ^ (bits >> 31)


@triton.jit
def gumbel(key, token):
    """Twin of `noise.gumbel`: the number of a token in a row with this key, in double precision."""
    bits = _mix(key + (token + 1).to(tl.uint64) * GOLDEN)
    uniform = ((bits >> 12).to(tl.float64) + 0.5) * 2.220446049250313e-16  # 2⁻⁵²
    return -tl.log(-tl.log(uniform))


@triton.jit
def tempered(logit, by, MULTIPLIES: tl.constexpr):
    """A score ÷ temperature, to the last bit as PyTorch computes it on this device."""
    return logit * by if MULTIPLIES else logit / by


@triton.jit
def keyed(score, token, seed_keys, ats, row):
    """Scores with the noise of their tokens, in this row at its place."""
    at = tl.load(ats + row).to(tl.uint64, bitcast=True)
    row_key = _mix(tl.load(seed_keys + row).to(tl.uint64, bitcast=True) + at)
    return (score.to(tl.float64) + gumbel(row_key, token)).to(tl.float32)


@triton.jit
def ordered(x):
    """float32 as int32, in the same order."""
    bits = x.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def number(bits):
    """What is `ordered` so."""
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def is_close(second_key, key):
    """Whether rounding may have changed their order, or there is no best key."""
    return (key == NOTHING) | (second_key > key - (CLOSE + CLOSE_SHARE * tl.abs(key)))


@triton.jit
def judged(score, top, more, share, k, p, slack, floor):
    """What the filters say of tokens that so many are better than, with this share: (taken, left out)."""
    share = tl.where(share == 0.0, tl.where(p > TINY, -1.0, 0.0), share)  # the best one is always within
    p = tl.where(p < 1.0, p, 2.0)
    likely = (score >= floor + MIN_P_SLACK) | (score == top)
    unlikely = (score < floor - MIN_P_SLACK) & (score != top)
    return (more < k) & (share < p - slack) & likely, (more >= k) | (share >= p + slack) | unlikely
