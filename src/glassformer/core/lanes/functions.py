"""Exponentials and activations of sixteen numbers at once, to about one unit in the last place.

Twins of what models/layers.py takes from PyTorch. GELU in the tanh approximation is x · σ(2y), since
½ (1 + tanh y) = σ(2y), so it and SiLU share a formula that loses nothing to cancellation.
"""

import math

import numba as nb

from glassformer.core.lanes.vector import (
    WIDTH,
    absolute,
    fma,
    inlined,
    larger,
    load_part,
    nearest,
    smaller,
    store_part,
    times_power,
    where_less,
    with_sign,
)

# Activations, as the walk knows them by number.
RELU, GELU, GELU_TANH, RELU2, SWIGLU = range(5)

LOG2_E = 1 / math.log(2)
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4  # ln 2 in two parts, so that n · ln 2 is nearly exact
SMALLEST, LARGEST = -87.0, 88.0  # e to these is still a normal float32
ROOT_HALF, ROOT_2_BY_PI = math.sqrt(0.5), math.sqrt(2 / math.pi)


@nb.njit(nogil=True)
def exp(x):
    """e to the x: 2ⁿ · eʳ with r within ½ ln 2 and eʳ as a polynomial; 0 for what would be tiny."""
    bounded = smaller(larger(x, SMALLEST), LARGEST)
    n = nearest(bounded * LOG2_E)
    r = fma(n, -LN2_HIGH, bounded)
    r = fma(n, -LN2_LOW, r)
    p = fma(1.9875691500e-4, r, 1.3981999507e-3)
    p = fma(p, r, 8.3334519073e-3)
    p = fma(p, r, 4.1665795894e-2)
    p = fma(p, r, 1.6666665459e-1)
    p = fma(p, r, 5.0000001201e-1)
    p = fma(p, r * r, r) + 1.0
    return where_less(x, SMALLEST, 0.0, times_power(p, n))


@inlined
def sigmoid(x):
    return 1.0 / (1.0 + exp(0.0 - x))


@nb.njit(nogil=True)
def erf(x):
    """A polynomial near 0; elsewhere 1 − eᵖ with another polynomial p. Both were fitted for float32."""
    t, s = absolute(x), x * x
    far = fma(-1.72853470e-5, t, 3.83197126e-4)
    far = fma(far, s, fma(-3.88396438e-3, t, 2.42546219e-2))
    far = fma(far, t, -1.06777877e-1)
    far = fma(far, t, -6.34846687e-1)
    far = fma(far, t, -1.28717512e-1)
    far = with_sign(1.0 - exp(fma(far, t, 0.0 - t)), x)
    near = fma(-5.96761703e-4, s, 4.99119423e-3)
    near = fma(near, s, -2.67681349e-2)
    near = fma(near, s, 1.12819925e-1)
    near = fma(near, s, -3.76125336e-1)
    near = fma(near, s, 1.28379166e-1)
    near = fma(near, x, x)
    return where_less(t, 0.927734375, near, far)


@inlined
def gelu(x):
    return x * 0.5 * (erf(x * ROOT_HALF) + 1.0)


@inlined
def gelu_tanh(x):
    return x * sigmoid(x * (fma(x * x, 0.044715, 1.0) * (2 * ROOT_2_BY_PI)))


@nb.njit(nogil=True)
def activate(x, linear, count, kind):
    """Numbers become hidden units, in place; with SwiGLU they are the gate of `linear`."""
    for i in range(0, count, WIDTH):
        a = load_part(x, i, count)
        if kind == GELU:
            a = gelu(a)
        elif kind == GELU_TANH:
            a = gelu_tanh(a)
        elif kind == SWIGLU:
            a = a * sigmoid(a) * load_part(linear, i, count)
        else:
            a = larger(a, 0.0)
            if kind == RELU2:
                a = a * a
        store_part(x, i, count, a)
