"""Attention under a causal mask for training on a CPU, with and without dropout.

Twin of `attend` in ../attention.py, where it is called: in float32, for whole sequences. What it does not fit
takes PyTorch's kernels, as does everything that is no step of training. With AVX-512 it is several times as
fast as they are; with less, about as fast, but there is no fused kernel with dropout on a CPU.
"""

from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from glassformer.models.fast.wanted import are_there, are_wanted
from glassformer.models.mask import Mask

LEAST = 1 << 17  # products of one head of one sequence, below which other things take the time
HASHES = 1 << 32
ROWS, COLUMNS = 8, 32  # of a tile (tiles.py)


def attend(q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
    """softmax(QKᵀ/√D)V of queries (B, H, T, D), keys and values (B, K, T, D) that fit."""
    bound = min(round(dropout * HASHES), HASHES - 1)
    seed = int(torch.empty((), dtype=torch.int64, device="cpu").random_()) % HASHES if bound else 0
    with torch.autocast("cpu", enabled=False):
        return _Causal.apply(q.float(), k.float(), v.float(), seed, bound)


def fits(q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout: float) -> bool:
    """Whether the loops are wanted, and made for these, under this mask."""
    if not are_wanted() or q.device.type != "cpu":
        return False
    T, D = q.shape[-2:]
    whole = mask.is_triangle(T, k.shape[-2]) and T % ROWS == 0 and T * T * D >= LEAST
    types = {x.dtype for x in (q, k, v)} <= {torch.float32, torch.bfloat16}
    pays = dropout > 0 or has_wide_registers()
    alike = k.shape == v.shape == (q.shape[0], k.shape[1], T, D) and q.shape[1] % k.shape[1] == 0
    return whole and alike and types and pays and D % COLUMNS == 0 and are_there()


@cache
def has_wide_registers() -> bool:
    """Whether a tile's sums stay in the processor."""
    return torch.backends.cpu.get_cpu_capability() == "AVX512"


class _Causal(Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, seed: int, bound: int) -> Tensor:
        from glassformer.models.fast import causal

        q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
        B, H, T, D = q.shape
        z = q.new_empty(B, T, H, D).transpose(1, 2)  # as W_O reads it
        lse = q.new_empty(B, H, T)
        _run(causal.forward, lse, seed, bound, q, k, v, z)
        ctx.save_for_backward(q, k, v, z, lse)
        ctx.dropout = seed, bound
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        from glassformer.models.fast import causal

        q, k, v, z, lse = ctx.saved_tensors
        dz = above[0] if above[0].stride(-1) == 1 else above[0].contiguous()
        plain = torch.contiguous_format
        dq, dk, dv = (torch.empty_like(x, memory_format=plain) for x in (q, k, v))
        _run(causal.backward, lse, *ctx.dropout, q, k, v, z, dz, dq, dk, dv)
        return dq, dk, dv, None, None


def _run(function: Any, lse: Tensor, seed: int, bound: int, *tensors: Tensor) -> None:
    """Call one of the loops; tensors are in the order of causal.py."""
    from glassformer.core.lanes import together
    from glassformer.models.fast import causal

    q, k = tensors[:2]
    (B, H, T, D), K = q.shape, k.shape[1]
    size = causal.scratch_size(T, D)
    scratch = torch.empty(together.threads() * size, dtype=torch.float32, device="cpu")
    plan = np.zeros(causal.SIZE, np.int64)
    names = causal.Plan
    plan[together.PARTS] = B * K
    plan[names.HEADS : names.SCRATCH_SIZE + 1] = (
        H,
        K,
        T,
        D,
        seed,
        bound,
        lse.data_ptr(),
        scratch.data_ptr(),
        size,
    )
    for i, x in enumerate(tensors):
        at = names.TENSORS + 4 * i
        plan[at : at + 4] = x.data_ptr(), *x.stride()[:3]
    together.run(function, plan)
