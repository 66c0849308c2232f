"""The functions of formulas.py by own kernels, products by cuBLASLt: the same names and arguments. Tensors
are contiguous.

How many warps and rows a program gets follows from sizes alone, never from a trial: else the order of sums,
and with it every bit, would follow the clock.

Letters: as in formulas.py.
"""

from functools import cache

import torch
from torch import Tensor

from glassformer.core.triton_kernels import next_power_of_2
from glassformer.models.gpu import attention_blocks, blaslt, formulas
from glassformer.models.gpu.formulas import CHANCES
from glassformer.models.gpu.kernels import attention, dropout, embedding, entropy, heads, hidden, vectors
from glassformer.models.gpu.kernels import norm as norms
from glassformer.models.gpu.narrow import SHARE_UNIT, TYPE, Pair, product
from glassformer.models.gpu.rehearsal import start
from glassformer.models.products import wide_product

ELEMENTS = 2048  # of a program that works on each by itself
NUMBERS = 4096  # of a program that works on whole rows
FEW_ENTRIES = 512  # of a table whose gradient is a product
WIDE = 2048  # hidden units from which on products that bend save more than they cost
KINDS = {
    "relu": hidden.RELU,
    "relu2": hidden.RELU2,
    "gelu": hidden.GELU,
    "gelu-tanh": hidden.GELU_TANH,
    "swiglu": hidden.SWIGLU,
}


def _programs(device: torch.device, most: int, each: int = 16) -> int:
    """For kernels that go from row to row: so many for each processor of a GPU, at most `most`."""
    if device.type != "cuda":
        return max(1, min(most, 4))
    return max(1, min(most, each * torch.cuda.get_device_properties(device).multi_processor_count))


def _chance(p: float) -> tuple[int, float]:
    """As kernels take it: how many of the hashes are left out, and what the others grow by."""
    return round(p * CHANCES), 1 / (1 - p)


@cache
def _no_seed(device: torch.device) -> Tensor:
    """For what drops nothing."""
    return torch.zeros((), dtype=torch.int64, device=device)


def embed(ids: Tensor, table: Tensor, places: Tensor | None, scale: float, dtype: torch.dtype) -> Tensor:
    n, C = ids.numel(), table.shape[1]
    lanes = next_power_of_2(C)
    rows = max(1, NUMBERS // lanes)
    x = torch.empty(n, C, dtype=dtype, device=table.device)
    sizes = (n, ids.shape[1], C, lanes, rows, places is not None)
    start(embedding.embed, (-(-n // rows),), ids.contiguous(), table, places, x, scale, *sizes)
    return x


def embed_back(dx: Tensor, ids: Tensor, gradient: Tensor, scale: float) -> None:
    """Of a small table by a product with ones and zeros; of a large one by each row's positions, sorted."""
    (V, C), flat = gradient.shape, ids.flatten()
    if V <= FEW_ENTRIES and dx.dtype == torch.bfloat16:
        entries = torch.arange(V + -V % 8, device=dx.device)
        chosen = (flat[:, None] == entries).to(dx.dtype)
        gradient.add_(wide_product(chosen.t(), dx)[:V], alpha=scale)
        return
    values, order = torch.sort(flat.int(), stable=True)
    entries = torch.arange(V + 1, dtype=torch.int32, device=dx.device)
    starts = torch.searchsorted(values, entries, out_int32=True)
    columns = min(1024, next_power_of_2(C))
    programs = (V if dx.is_cuda else 4, -(-C // columns))
    start(
        embedding.embed_back, programs, dx, starts, order, gradient, scale, V, C, columns, 4, 16, num_warps=4
    )


def tame(vector: Tensor, factor: Tensor, broken: Tensor) -> None:
    n = vector.numel()
    start(vectors.tame, (-(-n // ELEMENTS),), vector, factor, broken, n, ELEMENTS)


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
    n, at_once = weights.numel(), ELEMENTS // 2
    shares = [share for beta in betas for share in (beta, 1 - beta)]
    start(vectors.adamw, (-(-n // at_once),),
        weights, gradient, first, second, lr, corrections, factor, broken, decay, *shares, eps, n, at_once,
    )  # fmt: skip


def narrow_into(x: Tensor, unit: Tensor, numbers: Tensor) -> None:
    n = x.numel()
    start(vectors.narrow, (-(-n // ELEMENTS),), x, unit, numbers, n, ELEMENTS)


def drop(x: Tensor, seed: Tensor, site: int, p: float) -> Tensor:
    if not p:
        return x
    y, n = torch.empty_like(x), x.numel()
    start(dropout.drop, (-(-n // ELEMENTS),), x, y, seed, site, *_chance(p), n, ELEMENTS)
    return y


def joins_products(device: torch.device) -> bool:
    """Whether cuBLASLt is there; without a GPU, in Triton's interpreter, products are formulas."""
    return device.type != "cuda" or blaslt.missing() is None


def product_onto(x: Tensor, w: Tensor, onto: Tensor | None) -> Tensor:
    y = blaslt.product_onto(x, w, onto) if x.is_cuda else None
    return formulas.product_onto(x, w, onto) if y is None else y


def gelu_product(x: Tensor, w: Tensor, narrow: Pair | None = None) -> tuple[Tensor, Tensor]:
    if x.is_cuda and len(w) >= WIDE and (both := blaslt.gelu_product(x, w, narrow)) is not None:
        return both
    before = x @ w.t() if narrow is None else product(narrow, None, x.dtype)
    return before, activate(before, "gelu-tanh", _no_seed(x.device), 0, 0.0)


def gelu_product_back(dy: Tensor, w: Tensor, before: Tensor) -> Tensor:
    if dy.is_cuda and before.shape[1] >= WIDE:
        dx = blaslt.gelu_product_back(dy, w, before)
        if dx is not None:
            return dx
    return activate_back(dy @ w, before, "gelu-tanh", _no_seed(dy.device), 0, 0.0)


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
    n, C = u.shape
    lanes = next_power_of_2(C)
    rows = max(1, NUMBERS // lanes)
    s = u if x is None and not p else torch.empty_like(u)
    y = torch.empty_like(u)
    mean, rstd = torch.empty(2, n, dtype=torch.float32, device=u.device)
    numbers = None if unit is None else torch.empty_like(u, dtype=TYPE)
    flags = (x is not None, p > 0, centred, shift is not None)
    start(norms.norm, (-(-n // rows),),
        x, u, gain, shift, s, y, mean, rstd, seed, site, *_chance(p), eps, n, unit, numbers, C, lanes, rows,
        *flags,
    )  # fmt: skip
    return s, y, mean, rstd, numbers


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
    n, C = s.shape
    lanes, programs = next_power_of_2(C), _programs(s.device, n, each=32 if C > 512 else 16)
    dx = torch.empty_like(s)
    du = torch.empty_like(s) if p else dx
    gains, shifts = torch.empty(2, programs, C, dtype=torch.float32, device=s.device)
    flags = (ds is not None, p > 0, centred, shifted)
    warps = max(1, min(8, lanes // 1024))
    start(norms.norm_back, (programs,),
        dy, ds, s, gain, mean, rstd, dx, du, gains, shifts, seed, site, *_chance(p), n, C, lanes, *flags,
        num_warps=warps,
    )  # fmt: skip
    return dx, du, gains, shifts if shifted else None


def turn(
    qkv: Tensor,
    head_count: int,
    head_width: int,
    gain: Tensor | None,
    eps: float,
    centred: bool,
    cos: Tensor | None,
    sin: Tensor | None,
) -> Tensor:
    B, T, stride = qkv.shape
    qk = qkv.new_empty(B, T, head_count * head_width)
    n, at_once = B * T * head_count, max(1, NUMBERS // head_width)
    flags = (head_width, at_once, gain is not None, centred, cos is not None)
    start(heads.turn, (-(-n // at_once),), qkv, qk, gain, cos, sin, eps, n, T, head_count, stride, *flags)
    return qk


def turn_back(
    above: Tensor,
    qkv: Tensor,
    into: Tensor,
    head_count: int,
    head_width: int,
    gain: Tensor | None,
    eps: float,
    centred: bool,
    cos: Tensor | None,
    sin: Tensor | None,
) -> Tensor | None:
    B, T, stride = qkv.shape
    n, at_once = B * T * head_count, max(1, NUMBERS // head_width // 2)
    programs = _programs(qkv.device, -(-n // at_once))
    gains = torch.empty(programs, head_width, dtype=torch.float32, device=qkv.device)
    flags = (head_width, at_once, gain is not None, centred, cos is not None)
    start(heads.turn_back, (programs,),
        above, qkv, into, gain, cos, sin, gains, eps, n, T, head_count, stride, *flags,
    )  # fmt: skip
    return None if gain is None else gains


def _attention_sizes(q: Tensor, k: Tensor, v: Tensor) -> tuple[tuple[object, ...], tuple[int, ...]]:
    T, H, D = q.shape[1:]
    scale = D**-0.5 * attention.LOG2E.value
    assert q.stride(1) == k.stride(1) and q.stride(2) == k.stride(2) == v.stride(2) == D
    return (scale, T, q.stride(1), v.stride(1)), (H, H // k.shape[2], D)


def _even(T: int, blocks: attention_blocks.Blocks) -> bool:
    return T % max(blocks.M, blocks.N) == 0


def attend(q: Tensor, k: Tensor, v: Tensor, seed: Tensor, site: int, p: float) -> tuple[Tensor, Tensor]:
    B, T, H, D = q.shape
    z = q.new_empty(B, T, H, D)
    lse = torch.empty(B, H, T, dtype=torch.float32, device=q.device)
    sizes, constants = _attention_sizes(q, k, v)
    blocks = attention_blocks.forward(T, D)
    start(attention.attend, (B * H, -(-T // blocks.M)),
        q, k, v, z, lse, seed, site, *_chance(p), *sizes, *constants,
        blocks.M, blocks.N, _even(T, blocks), p > 0, **blocks.options,
    )  # fmt: skip
    return z, lse


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
    B, T, H, D = q.shape
    delta = torch.empty_like(lse)
    sizes, constants = _attention_sizes(q, k, v)
    assert (dq.stride(), dk.stride(), dv.stride()) == (q.stride(), k.stride(), v.stride())
    blocks = attention_blocks.queries(T, D)
    start(attention.attend_dq, (B * H, -(-T // blocks.M)),
        q, k, v, z, lse, dz, delta, dq, seed, site, *_chance(p), *sizes, *constants,
        blocks.M, blocks.N, _even(T, blocks), p > 0, **blocks.options,
    )  # fmt: skip
    blocks = attention_blocks.keys(T, D)
    start(attention.attend_dkv, (B * k.shape[2], -(-T // blocks.N)),
        q, k, v, lse, dz, delta, dk, dv, seed, site, *_chance(p), *sizes, *constants,
        blocks.M, blocks.N, _even(T, blocks), p > 0, **blocks.options,
    )  # fmt: skip


def activate(a: Tensor, kind: str, seed: Tensor, site: int, p: float) -> Tensor:
    M = a.shape[-1] // (2 if kind == "swiglu" else 1)
    out = a.new_empty(*a.shape[:-1], M)
    n = out.numel()
    start(
        hidden.activate,
        (-(-n // ELEMENTS),),
        a,
        out,
        seed,
        site,
        *_chance(p),
        n,
        M,
        ELEMENTS,
        KINDS[kind],
        p > 0,
    )
    return out


def activate_back(above: Tensor, a: Tensor, kind: str, seed: Tensor, site: int, p: float) -> Tensor:
    da, n, M = torch.empty_like(a), above.numel(), above.shape[-1]
    start(
        hidden.activate_back,
        (-(-n // ELEMENTS),),
        above,
        a,
        da,
        seed,
        site,
        *_chance(p),
        n,
        M,
        ELEMENTS,
        KINDS[kind],
        p > 0,
    )
    return da


def into_gradient(
    scores: Tensor, targets: Tensor, entries: int, smoothing: float, narrow: Tensor | None = None
) -> Tensor:
    """Each row's loss (n) in float32; scores (n, ≥ entries) become the gradient of it, `narrow` the shares of
    the softmax in 8 bits. Twin of objectives/loss.py's `with_gradient`; a negative target is not scored.
    """
    n, stride = scores.shape
    losses = torch.empty(n, dtype=torch.float32, device=scores.device)
    lanes, tiles, warps, each = min(2048, next_power_of_2(stride)), 5, 8, 3
    if stride <= lanes:  # a row at once; else few are under way, and the second look finds it in the cache
        tiles, warps, each = 1, max(1, min(8, lanes // 256)), 16
    start(entropy.entropy, (_programs(scores.device, n, each),),
        scores, targets, losses, smoothing, n, narrow, stride, entries, lanes, tiles, smoothing > 0,
        1 / SHARE_UNIT, num_warps=warps,
    )  # fmt: skip
    return losses
