"""The pieces of a fused training pass, each with its gradient.

What lies between products is done by `Operations`: the formulas, or the kernels (launch.py). Products are in
the type of the pass; the gradients of weights and norms come out in float32, like the weights themselves.

Letters: B batch, T positions, C model width, H heads, K key-value heads, D head width, n rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from glassformer.core.triton_kernels import missing
from glassformer.models.gpu import formulas
from glassformer.models.gpu.narrow import Pair, product
from glassformer.models.gpu.slots import Slots

Gradients = tuple[Tensor | None, ...]


def operations(device: torch.device) -> ModuleType:
    """The kernels where they can be used, else the formulas."""
    if missing(device) is not None:
        return formulas
    from glassformer.models.gpu import launch

    return launch


@dataclass(frozen=True)
class Chance:
    """Dropout at one site of the pass."""

    seed: Tensor
    site: int
    p: float

    def __iter__(self) -> Iterator[Any]:
        return iter((self.seed, self.site, self.p))


@dataclass(frozen=True)
class NormKind:
    eps: float
    centred: bool  # LayerNorm; else RMSNorm


@dataclass(frozen=True)
class Heads:
    """How a layer's queries and keys are made: of H heads and K key-value heads, D wide."""

    H: int
    K: int
    D: int
    norm: NormKind | None
    cos: Tensor | None  # (T, D), where they are turned by their positions
    sin: Tensor | None

    @property
    def as_they_are(self) -> bool:
        return self.norm is None and self.cos is None


class Embedding(Function):
    """ids (B, T) to rows (n, C) in the type of the pass; see `formulas.embed`."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        ids: Tensor,
        table: Tensor,
        places: Tensor | None,
        scale: float,
        dtype: torch.dtype,
        ops: ModuleType,
    ) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.how = table, None if places is None else places.shape, scale, ops
        return ops.embed(ids, table, None if places is None else places[: ids.shape[1]], scale, dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *above: Tensor) -> Gradients:  # type: ignore[override]
        (ids,) = ctx.saved_tensors
        table, of_places, scale, ops = ctx.how
        dx, T = above[0].contiguous(), ids.shape[1]
        dtable = dplaces = None
        if ctx.needs_input_grad[1]:
            dtable = torch.zeros_like(table) if table.grad is None else None
            ops.embed_back(dx, ids, table.grad if dtable is None else dtable, scale)
        if ctx.needs_input_grad[2]:
            dplaces = dx.new_zeros(of_places, dtype=torch.float32)
            torch.sum(dx.unflatten(0, (-1, T)), 0, dtype=torch.float32, out=dplaces[:T])
        return None, dtable, dplaces, None, None, None


class JoinedNorm(Function):
    """(update, stream) to (new stream, its norm, that in 8 bits if asked for); see `formulas.norm`."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        u: Tensor,
        x: Tensor | None,
        gain: Tensor,
        shift: Tensor | None,
        kind: NormKind,
        chance: Chance,
        ops: ModuleType,
        slots: Slots,
        unit: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        s, y, mean, rstd, numbers = ops.norm(u, x, gain, shift, kind.eps, kind.centred, *chance, unit)
        ctx.save_for_backward(s, mean, rstd)
        ctx.set_materialize_grads(False)
        ctx.how = x is not None, gain, shift, kind, chance, ops, slots
        if numbers is not None:
            ctx.mark_non_differentiable(numbers)
        return s, y, numbers

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *above: Tensor | None) -> Gradients:  # type: ignore[override]
        s, mean, rstd = ctx.saved_tensors
        joined, gain, shift, kind, chance, ops, slots = ctx.how
        ds, dy, _ = above
        assert dy is not None
        ds = None if ds is None else ds.contiguous()
        how = (kind.centred, shift is not None, *chance)
        dx, du, gains, shifts = ops.norm_back(dy.contiguous(), ds, s, gain, mean, rstd, *how)
        dgain = slots.put_sum(gain, gains) if ctx.needs_input_grad[2] else None
        dshift = slots.put_sum(shift, shifts) if ctx.needs_input_grad[3] else None
        return du, dx if joined else None, dgain, dshift, None, None, None, None, None


class Linear(Function):
    """x Wᵀ + b, by copies of W and b in the type of x, or of x and W in 8 bits; gradients are W's and b's.

    The gradient of a weight that has a place for it goes right there (slots.py), and autograd adds nothing.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        copy: Tensor,
        bias_copy: Tensor | None,
        slots: Slots,
        narrow: Pair | None,
    ) -> Tensor:
        ctx.save_for_backward(x, copy)
        ctx.how = weight, bias is not None, slots
        if narrow is not None:
            return product(narrow, bias_copy, x.dtype)
        return x @ copy.t() if bias_copy is None else torch.addmm(bias_copy, x, copy.t())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *above: Tensor) -> Gradients:  # type: ignore[override]
        x, copy = ctx.saved_tensors
        weight, biased, slots = ctx.how
        dy = above[0].contiguous()
        dweight = slots.put(weight, dy, x) if ctx.needs_input_grad[1] else None
        dbias = dy.sum(dim=0, dtype=torch.float32) if biased else None
        return dy @ copy, dweight, dbias, None, None, None, None


class LinearOnto(Function):
    """x Wᵀ on top of the stream, in one product."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        copy: Tensor,
        stream: Tensor,
        ops: ModuleType,
        slots: Slots,
    ) -> Tensor:
        ctx.save_for_backward(x, copy)
        ctx.how = weight, slots
        return ops.product_onto(x, copy, stream)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *above: Tensor) -> Gradients:  # type: ignore[override]
        x, copy = ctx.saved_tensors
        weight, slots = ctx.how
        dy = above[0].contiguous()
        dweight = slots.put(weight, dy, x) if ctx.needs_input_grad[1] else None
        return dy @ copy, dweight, None, dy, None, None


class GeluNet(Function):
    """gelu(h Uᵀ) Dᵀ, on top of the stream if it is given: the activation and its derivative are done inside
    the products before and behind it."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        h: Tensor,
        up: Tensor,
        down: Tensor,
        up_copy: Tensor,
        down_copy: Tensor,
        stream: Tensor | None,
        ops: ModuleType,
        slots: Slots,
        narrow: Pair | None,
    ) -> Tensor:
        before, after = ops.gelu_product(h, up_copy, narrow)
        ctx.save_for_backward(h, before, after, up_copy, down_copy)
        ctx.how = up, down, stream is not None, ops, slots
        return ops.product_onto(after, down_copy, stream)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *above: Tensor) -> Gradients:  # type: ignore[override]
        h, before, after, up_copy, down_copy = ctx.saved_tensors
        up, down, joined, ops, slots = ctx.how
        dy = above[0].contiguous()
        ddown = slots.put(down, dy, after) if ctx.needs_input_grad[2] else None
        dbefore = ops.gelu_product_back(dy, down_copy, before)
        dup = slots.put(up, dbefore, h) if ctx.needs_input_grad[1] else None
        return dbefore @ up_copy, dup, ddown, None, None, dy if joined else None, None, None, None


class CausalAttention(Function):
    """From the product (B, T, (H + 2 K) · D), all side by side, to what the heads find (B, T, H · D)."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        qkv: Tensor,
        gain: Tensor | None,
        heads: Heads,
        chance: Chance,
        ops: ModuleType,
        slots: Slots,
    ) -> Tensor:
        qk = qkv
        if not heads.as_they_are:
            qk = ops.turn(qkv, heads.H + heads.K, heads.D, *_norm_and_turn(heads, gain))
        z, lse = ops.attend(*_parts(qk, qkv, heads), *chance)
        ctx.save_for_backward(qkv, qk, z, lse)
        ctx.how = gain, heads, chance, ops, slots
        return z.flatten(2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *above: Tensor) -> Gradients:  # type: ignore[override]
        qkv, qk, z, lse = ctx.saved_tensors
        gain, heads, chance, ops, slots = ctx.how
        dqkv = torch.empty_like(qkv)
        dqk = dqkv if heads.as_they_are else torch.empty_like(qk)
        dz = above[0].contiguous().view_as(z)
        ops.attend_back(*_parts(qk, qkv, heads), z, lse, dz, *_parts(dqk, dqkv, heads), *chance)
        dgain = None
        if not heads.as_they_are:
            how = _norm_and_turn(heads, gain)
            gains = ops.turn_back(dqk, qkv, dqkv, heads.H + heads.K, heads.D, *how)
            dgain = slots.put_sum(gain, gains) if ctx.needs_input_grad[1] else None
        return dqkv, dgain, None, None, None, None


def _norm_and_turn(heads: Heads, gain: Tensor | None) -> tuple[Any, ...]:
    kind = heads.norm or NormKind(0.0, False)
    return gain, kind.eps, kind.centred, heads.cos, heads.sin


def _parts(qk: Tensor, qkv: Tensor, heads: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """Queries (B, T, H, D) and keys (B, T, K, D) of the first, values (B, T, K, D) of the second."""
    q, k = qk.unflatten(-1, (-1, heads.D))[:, :, : heads.H + heads.K].split((heads.H, heads.K), dim=2)
    return q, k, qkv.unflatten(-1, (-1, heads.D))[:, :, heads.H + heads.K :]


class Activate(Function):
    """Hidden units of the feed-forward net, with dropout."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, kind: str, chance: Chance, ops: ModuleType) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(a)
        ctx.how = kind, chance, ops
        return ops.activate(a, kind, *chance)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *above: Tensor) -> Gradients:  # type: ignore[override]
        (a,) = ctx.saved_tensors
        kind, chance, ops = ctx.how
        return ops.activate_back(above[0].contiguous(), a, kind, *chance), None, None, None


class Drop(Function):
    """Dropout by itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, chance: Chance, ops: ModuleType) -> Tensor:  # type: ignore[override]
        ctx.how = chance, ops
        return ops.drop(x, *chance)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *above: Tensor) -> Gradients:  # type: ignore[override]
        chance, ops = ctx.how
        return ops.drop(above[0].contiguous(), *chance), None, None


def drop(x: Tensor, chance: Chance, ops: ModuleType) -> Tensor:
    return Drop.apply(x, chance, ops) if chance.p else x
