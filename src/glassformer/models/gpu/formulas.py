"""What lies between the products of a training pass, as the books write it; by kernels in launch.py.

Where a function has a gradient, a function `…_back` beside it gives it. Sums are in float32; what is returned
is in the type that came in.

Dropout here is a function of (seed of the step, site, place) and of nothing else: a hash of the three, of
which a share p is left out. So a pass can be repeated to the bit, on any device, in any order, and nothing
about it has to be kept for the way back.

Letters: B batch, T positions, C width of a row, H heads, K key-value heads, D head width, M hidden units,
V vocabulary, n rows (all positions of a batch).
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.models.gpu.narrow import Pair, narrowed, product

WORD = (1 << 32) - 1
GOLDEN, STRIDE = 0x9E3779B1, 0x3C6EF372
MIXERS = 0x7FEB352D, 0x846CA68B
CHANCES = 1 << 24  # that a hash is counted in


def kept(shape: tuple[int, ...], seed: Tensor, site: int, p: float) -> Tensor:
    """True with chance 1 − p, for each place of a tensor of this shape."""
    at = torch.arange(math.prod(shape), device=seed.device).view(shape)
    x = (at * GOLDEN & WORD) ^ ((seed + site * STRIDE) & WORD)
    x = (x ^ (x >> 16)) * MIXERS[0] & WORD  # what overflows 64 bits is not in the lower 32
    x = (x ^ (x >> 15)) * MIXERS[1] & WORD
    return ((x ^ (x >> 16)) >> 8) >= round(p * CHANCES)


def drop(x: Tensor, seed: Tensor, site: int, p: float) -> Tensor:
    """Dropout; its own gradient, applied to what comes from above."""
    if not p:
        return x
    return torch.where(kept(tuple(x.shape), seed, site, p), x.float() / (1 - p), 0.0).to(x.dtype)


# Embeddings


def embed(ids: Tensor, table: Tensor, places: Tensor | None, scale: float, dtype: torch.dtype) -> Tensor:
    """Rows (n, C) of the table for ids (B, T), · scale, + the places (T, C) of their positions."""
    x = table[ids] * scale
    if places is not None:
        x = x + places
    return x.flatten(0, 1).to(dtype)


def embed_back(dx: Tensor, ids: Tensor, gradient: Tensor, scale: float) -> None:
    """Add the gradient dx (n, C) of the rows of ids (B, T) to that of the table (V, C)."""
    gradient.index_add_(0, ids.flatten(), dx.float() * scale)


# Products with something behind them


def joins_products(device: torch.device) -> bool:
    """Whether the three below save anything over their pieces. (Formulas save nothing, but can all.)"""
    return True


def product_onto(x: Tensor, w: Tensor, onto: Tensor | None) -> Tensor:
    """x (n, K) wᵀ (N, K) on top of what is there (n, N)."""
    return x @ w.t() if onto is None else torch.addmm(onto, x, w.t())


def gelu_product(x: Tensor, w: Tensor, narrow: Pair | None = None) -> tuple[Tensor, Tensor]:
    """x wᵀ, of both in 8 bits if they are given so, and its gelu (by tanh)."""
    before = x @ w.t() if narrow is None else product(narrow, None, x.dtype)
    return before, _hidden(before.float(), "gelu-tanh").to(x.dtype)


def gelu_product_back(dy: Tensor, w: Tensor, before: Tensor) -> Tensor:
    """dy (n, N) w (N, K), times the derivative of gelu at `before` (n, K)."""
    return activate_back(dy @ w, before, "gelu-tanh", dy.new_zeros(()), 0, 0.0)


# Norm, with the residual connection before it


def norm(
    u: Tensor,
    x: Tensor | None,
    gain: Tensor,
    shift: Tensor | None,
    eps: float,
    centred: bool,
    seed: Tensor,
    site: int,
    p: float,
    unit: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """Of an update u (n, C) of the stream x: the stream s = x + dropout(u), and its norm y.

    Without x, s is u. `centred` is LayerNorm, else RMSNorm. Also each row's mean and 1 / deviation (n), and
    y in numbers of 8 bits if there is a unit for them (narrow.py).
    """
    s = drop(u, seed, site, p)
    if x is not None:
        s = (x.float() + s.float()).to(u.dtype)
    wide = s.float()
    mean = wide.mean(dim=-1) if centred else wide.new_zeros(len(wide))
    centre = wide - mean[:, None]
    rstd = (centre.square().mean(dim=-1) + eps).rsqrt()
    y = centre * rstd[:, None] * gain
    if shift is not None:
        y = y + shift
    y = y.to(u.dtype)
    return s, y, mean, rstd, None if unit is None else narrowed(y, unit)


def norm_back(
    dy: Tensor,
    ds: Tensor | None,
    s: Tensor,
    gain: Tensor,
    mean: Tensor,
    rstd: Tensor,
    centred: bool,
    shifted: bool,
    seed: Tensor,
    site: int,
    p: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients of the stream and of its update (n, C), and of gain and, if it is `shifted`, shift, both as
    rows (·, C) that are still to be added up.

    What arrives from above is dy at the norm and ds at the stream itself, which passes on unchanged.
    """
    unit = (s.float() - mean[:, None]) * rstd[:, None]
    dx = _unit_back(dy.float() * gain, unit, rstd, centred)
    if ds is not None:
        dx = dx + ds.float()
    dx = dx.to(s.dtype)
    return dx, drop(dx, seed, site, p), dy.float() * unit, dy.float() if shifted else None


def _unit_back(above: Tensor, unit: Tensor, rstd: Tensor, centred: bool) -> Tensor:
    """Through x ↦ (x − mean) · rstd, whose result is `unit`."""
    back = above - unit * (above * unit).mean(dim=-1, keepdim=True)
    if centred:
        back = back - above.mean(dim=-1, keepdim=True)
    return back * rstd[..., None]


# Queries and keys


def turn(
    qkv: Tensor,
    heads: int,
    head_width: int,
    gain: Tensor | None,
    eps: float,
    centred: bool,
    cos: Tensor | None,
    sin: Tensor | None,
) -> Tensor:
    """The first `heads` heads (queries, then keys) of qkv (B, T, ·): normalised if there is a gain (D), and
    turned if there are tables (T, D), of which that of the sine has its sign. (B, T, heads · D).
    """
    x = qkv[..., : heads * head_width].float().unflatten(-1, (heads, head_width))
    if gain is not None:
        x = _unit(x, eps, centred)[0] * gain
    if cos is not None and sin is not None:
        x = x * cos[:, None] + x.roll(head_width // 2, dims=-1) * sin[:, None]
    return x.flatten(2).to(qkv.dtype)


def turn_back(
    above: Tensor,
    qkv: Tensor,
    into: Tensor,
    heads: int,
    head_width: int,
    gain: Tensor | None,
    eps: float,
    centred: bool,
    cos: Tensor | None,
    sin: Tensor | None,
) -> Tensor | None:
    """From the gradient of `turn` to that of the heads it read, written `into` a tensor like qkv; returned is
    the gain's, as rows (·, D) that are still to be added up.
    """
    place = slice(0, heads * head_width)
    d = above.float().unflatten(-1, (heads, head_width))
    if cos is not None and sin is not None:
        d = d * cos[:, None] + (d * sin[:, None]).roll(head_width // 2, dims=-1)
    if gain is None:
        into[..., place] = d.flatten(2).to(into.dtype)
        return None
    unit, rstd = _unit(qkv[..., place].float().unflatten(-1, (heads, head_width)), eps, centred)
    into[..., place] = _unit_back(d * gain, unit, rstd, centred).flatten(2).to(into.dtype)
    return (d * unit).flatten(0, 2)


def _unit(x: Tensor, eps: float, centred: bool) -> tuple[Tensor, Tensor]:
    centre = x - x.mean(dim=-1, keepdim=True) if centred else x
    rstd = (centre.square().mean(dim=-1) + eps).rsqrt()
    return centre * rstd[..., None], rstd


# Attention under a causal mask


def attend(q: Tensor, k: Tensor, v: Tensor, seed: Tensor, site: int, p: float) -> tuple[Tensor, Tensor]:
    """Queries (B, T, H, D), keys and values (B, T, K, D) to what the heads find (B, T, H, D), and the
    logarithms, in base 2, of what each softmax divides by (B, H, T).
    """
    scores = _scores(q, k)
    weights = scores.softmax(dim=-1)
    lse = scores.logsumexp(dim=-1) / math.log(2)
    z = drop(weights, seed, site, p) @ _of_heads(v, q)
    return z.transpose(1, 2).contiguous().to(q.dtype), lse


def attend_back(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    z: Tensor,
    lse: Tensor,
    dz: Tensor,
    dq: Tensor,
    dk: Tensor,
    dv: Tensor,
    seed: Tensor,
    site: int,
    p: float,
) -> None:
    """From the gradient dz (B, T, H, D) to those of queries, keys and values, written into dq, dk, dv."""
    D, groups = q.shape[-1], q.shape[2] // k.shape[2]
    weights = (_scores(q, k) - lse[..., None] * math.log(2)).exp()
    above = dz.float().transpose(1, 2)  # (B, H, T, D)
    dropped = drop(above @ _of_heads(v, q).mT, seed, site, p)  # of the weights
    delta = (z.float() * dz.float()).sum(dim=-1).transpose(1, 2)  # (B, H, T)
    ds = weights * (dropped - delta[..., None]) / math.sqrt(D)
    dq.copy_((ds @ _of_heads(k, q)).transpose(1, 2))

    def of_groups(x: Tensor) -> Tensor:
        """Several queries share a key: (B, H, T, D) to (B, T, K, D)."""
        return x.unflatten(1, (-1, groups)).sum(dim=2).transpose(1, 2)

    dk.copy_(of_groups(ds.mT @ q.float().transpose(1, 2)))
    dv.copy_(of_groups(drop(weights, seed, site, p).mT @ above))


def _of_heads(x: Tensor, q: Tensor) -> Tensor:
    """Keys or values for each of the queries' heads, (B, H, T, D)."""
    return x.float().transpose(1, 2).repeat_interleave(q.shape[2] // x.shape[2], dim=1)


def _scores(q: Tensor, k: Tensor) -> Tensor:
    scores = q.float().transpose(1, 2) @ _of_heads(k, q).mT / math.sqrt(q.shape[-1])
    T = q.shape[1]
    return scores.masked_fill(torch.ones(T, T, dtype=torch.bool, device=q.device).triu(1), -math.inf)


# Hidden units


def activate(a: Tensor, kind: str, seed: Tensor, site: int, p: float) -> Tensor:
    """What comes out of the first matrix, a (n, M) or for swiglu (n, 2 M), to hidden units (n, M)."""
    return drop(_hidden(a.float(), kind).to(a.dtype), seed, site, p)


def activate_back(above: Tensor, a: Tensor, kind: str, seed: Tensor, site: int, p: float) -> Tensor:
    """The gradient by a."""
    with torch.enable_grad():
        wide = a.detach().float().requires_grad_()
        hidden = _hidden(wide, kind)
    (gradient,) = torch.autograd.grad(hidden, wide, drop(above, seed, site, p).float())
    return gradient.to(a.dtype)


def _hidden(a: Tensor, kind: str) -> Tensor:
    match kind:
        case "relu":
            return F.relu(a)
        case "relu2":
            return F.relu(a).square()
        case "gelu":
            return F.gelu(a)
        case "gelu-tanh":
            return F.gelu(a, approximate="tanh")
        case "swiglu":
            gate, linear = a.chunk(2, dim=-1)
            return F.silu(gate) * linear
    raise ValueError(kind)


# All gradients side by side


def tame(vector: Tensor, factor: Tensor, broken: Tensor) -> None:
    """vector · factor, or nothing where the step is broken (> 0), whatever stands there."""
    vector.mul_(factor).masked_fill_(broken > 0, 0.0)


def adamw(
    weights: Tensor,
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    lr: Tensor,
    betas: tuple[float, float],
    eps: float,
    decay: float,
    corrections: Tensor,
    factor: Tensor,
    broken: Tensor,
) -> None:
    """AdamW with the gradient · factor; nothing where the step is broken. Moments begin at zero and are too
    small at first: `corrections` says of both by how much, 1 − βᵗ.
    """
    g = gradient * factor
    m = betas[0] * first + (1 - betas[0]) * g
    v = betas[1] * second + (1 - betas[1]) * g * g
    step = (m / corrections[0]) / ((v / corrections[1]).sqrt() + eps)
    for place, new in ((weights, weights * (1 - lr * decay) - lr * step), (first, m), (second, v)):
        place.copy_(torch.where(broken > 0, place, new))


# Numbers of 8 bits


def narrow_into(x: Tensor, unit: Tensor, numbers: Tensor) -> None:
    """The first rows of `numbers` become x ÷ unit."""
    numbers[: len(x)] = narrowed(x, unit)
