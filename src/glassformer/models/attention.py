"""Scaled dot-product attention, softmax(QKᵀ/√D)V, and the multi-head layers around it.

Letters: B batch, T query positions, S key positions, C model width, H heads, K key-value heads,
D head width (of queries and keys), E value width (D unless chosen otherwise).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from math import sqrt

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from glassformer.models.dropout import drop
from glassformer.models.fast import attention as fast_attention
from glassformer.models.mask import Mask, last_positions
from glassformer.models.position import Position
from glassformer.models.state import LayerState, Memory
from glassformer.models.tap import Tap, off


def attend_by_formula(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None = None, queries: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Attention as the books write it, returning the output (B, H, T, E) and the weights (B, H, T, S).

    Keys stand at 0 … S − 1; `queries` (T) or (B, T) are where the queries stand, the last T of these unless
    given. Hidden keys get −∞ before the softmax; a query that may see nothing gets weights of zero.
    """
    weights = attention_weights(q, k, mask, bias, queries)
    return weights @ shared(v, q), weights


def attention_weights(
    q: Tensor, k: Tensor, mask: Mask, bias: Tensor | None = None, queries: Tensor | None = None
) -> Tensor:
    """softmax(QKᵀ/√D), (B, H, T, S)."""
    scores = q @ shared(k, q).transpose(-2, -1) / sqrt(q.shape[-1])
    if bias is not None:
        scores = scores + bias
    visible = visible_keys(q, k, mask, queries)
    weights = scores.masked_fill(~visible, float("-inf")).softmax(dim=-1)
    return weights.masked_fill(~visible, 0.0)


def shared(x: Tensor, q: Tensor) -> Tensor:
    """Keys or values (B, K, S, ·) for each of the queries' heads, (B, H, S, ·)."""
    return x.repeat_interleave(q.shape[1] // x.shape[1], dim=1)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    queries: Tensor | None = None,
) -> Tensor:
    """The same on fused kernels, which never hold the T×S weights. Twin of `attend_by_formula`."""
    plain = bias is None and queries is None and not is_compiling()
    if plain and fast_attention.fits(q, k, v, mask, dropout):
        return fast_attention.attend(q, k, v, dropout)
    if q.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        # The kernel's backward pass takes over three times as long in bfloat16 on a CPU.
        with torch.autocast("cpu", enabled=False):
            return attend(q.float(), k.float(), v.float(), mask, bias, dropout, queries)
    if dropout and q.device.type == "cpu" and not is_compiling():
        # A CPU has no fused kernel with dropout, and PyTorch's written-out form draws its numbers slowly.
        return drop(attention_weights(q, k, mask, bias, queries), dropout) @ shared(v, q)
    T, S = q.shape[-2], k.shape[-2]
    grouped = q.shape[1] != k.shape[1]
    if bias is None and queries is None and mask.is_triangle(T, S):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout, enable_gqa=grouped)
    table: Tensor | None = None
    if bias is not None:
        table = bias.masked_fill(~visible_keys(q, k, mask, queries), float("-inf")).to(q.dtype)
    elif queries is not None or not mask.hides_nothing(T):
        table = visible_keys(q, k, mask, queries)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=table, dropout_p=dropout, enable_gqa=grouped)


def visible_keys(q: Tensor, k: Tensor, mask: Mask, queries: Tensor | None) -> Tensor:
    """True where a query may look."""
    last, keys = last_positions(q.shape[-2], k.shape[-2], q.device)
    return mask.table(last if queries is None else queries, keys)


@contextmanager
def growing_keys() -> Iterator[None]:
    """For steps of a generation, where every step has one key more than the last.

    cuDNN's attention makes a plan for each new number of keys, which takes longer than the step itself. It is
    left out inside this context alone: a switch for the whole process would change training's kernels.
    """
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        yield


class Mixer(nn.Module, ABC):
    """What moves information between positions: make q, k and v, attend, read out.

    x ──► project ──► q k v, H heads ──► attend ──► z ──► read out ──► out
    """

    position: Position
    dropout: float
    widths: tuple[int, int]  # of all heads' keys, H·D, and of their values, H·E

    @abstractmethod
    def project(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, H, T, D), keys (B, K, T, D) and values (B, K, T, E) of x at positions (1 or B, T)."""

    @abstractmethod
    def read_out(self, z: Tensor) -> Tensor:
        """What the heads found, (B, H, T, E), as an update of the stream, (B, T, C)."""

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """What to add to the scores, (1 or B, H, T, S), of queries at (1 or B, T) and keys at (S)."""
        return self.position.bias(queries, keys)

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask,
        bias: Tensor | None = None,
        dropout: float = 0.0,
        queries: Tensor | None = None,
    ) -> Tensor:
        """What the heads find, (B, H, T, E); as `attend` has it."""
        return attend(q, k, v, mask, bias, dropout, queries)

    def weights(
        self, q: Tensor, k: Tensor, mask: Mask, bias: Tensor | None = None, queries: Tensor | None = None
    ) -> Tensor:
        """The weights of that, (B, H, T, S), which `mix` need not hold."""
        return attention_weights(q, k, mask, bias, queries)

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        positions: Tensor | None = None,
        state: LayerState | None = None,
        tap: Tap = off,
    ) -> Tensor:
        """x (B, T, C) at positions (1 or B, T), 0 … T − 1 unless given."""
        if positions is None:
            positions = torch.arange(x.shape[1], device=x.device)[None]
        q, k, v = self.project(x, positions)
        q, k, v = tap("q", q), tap("k", k), tap("v", v)
        dropout = self.dropout if self.training else 0.0
        if state is None:  # the sequence is all there is
            z = self.mix(q, k, v, mask, self.bias(positions, positions[0]), dropout)
        else:  # the state holds what came before, and how
            z = state.attend(q, k, v, mask, self.bias, self.mix)
        return tap("attn_out", self.read_out(tap("z", z)))  # z (B, H, T, E)


class Attention(Mixer):
    """Multi-head self-attention, in its concat form.

        x ──► qkv ──► q k v, H heads ──► attend ──► z, concatenated ──► W_O ──► out

    W_O's columns fall into one slice per head, so the layer also is a sum over heads: Σᵢ zᵢ W_Oⁱ.
    With fewer key-value heads than heads, several queries share one key and value (grouped queries).
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        position: Position,
        kv_heads: int | None = None,
        head_width: int | None = None,
        value_width: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        qk_norm: nn.Module | None = None,
    ):
        super().__init__()
        self.heads = heads
        self.kv_heads = kv_heads or heads
        self.head_width = head_width or width // heads
        self.value_width = value_width or self.head_width
        self.position = position
        self.dropout = dropout
        self.qk_norm = qk_norm or nn.Identity()
        # One matrix for three projections: one large product is faster than three small ones.
        self.parts = (
            heads * self.head_width,
            self.kv_heads * self.head_width,
            self.kv_heads * self.value_width,
        )
        self.widths = heads * self.head_width, heads * self.value_width
        self.qkv = nn.Linear(width, sum(self.parts), bias=bias)
        self.out = nn.Linear(heads * self.value_width, width, bias=bias)

    def fused_parts(self) -> dict[Tensor, tuple[int, ...]]:
        return {self.qkv.weight: self.parts}

    def project(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.to_heads(self.qkv(x), positions)

    def to_heads(self, qkv: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """From x W, everything side by side (B, T, ·), to heads."""
        # Queries and keys are normalised and turned alike, so both are treated in one go.
        qk, v = qkv.split((self.parts[0] + self.parts[1], self.parts[2]), dim=-1)
        qk = self.position.rotate(self.qk_norm(split_heads(qk, self.heads + self.kv_heads)), positions)
        q, k = qk.split((self.heads, self.kv_heads), dim=1)
        return q, k, split_heads(v, self.kv_heads)

    def read_out(self, z: Tensor) -> Tensor:
        return self.out(join_heads(z))


class UnscaledAttention(Attention):
    """The same with scores q·k as they are: to see what the division by √D is for."""

    def to_heads(self, qkv: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().to_heads(qkv, positions)
        return q * sqrt(self.head_width), k, v  # what the division takes back


class CrossAttention(nn.Module):
    """Attention from one sequence into another: queries from x, keys and values from the memory.

    The two have no common positions, so none are used. In a generation the memory's keys and values are made
    once and kept in the state.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        head_width: int,
        bias: bool,
        dropout: float,
        qk_norm: nn.Module | None,
    ):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qk_norm = qk_norm or nn.Identity()
        self.widths = heads * head_width, heads * head_width
        self.q = nn.Linear(width, heads * head_width, bias=bias)
        self.kv = nn.Linear(width, 2 * heads * head_width, bias=bias)
        self.out = nn.Linear(heads * head_width, width, bias=bias)

    def fused_parts(self) -> dict[Tensor, tuple[int, ...]]:
        half = self.kv.out_features // 2
        return {self.kv.weight: (half, half)}

    def project(self, memory: Memory) -> tuple[Tensor, Tensor]:
        """Keys and values (B, H, S, D) of the memory."""
        k, v = split_heads(self.kv(memory.states), 2 * self.heads).chunk(2, dim=1)
        return self.qk_norm(k), v

    def forward(self, x: Tensor, memory: Memory, state: LayerState | None = None, tap: Tap = off) -> Tensor:
        k, v = self.project(memory) if state is None else state.of_memory(self.project, memory)
        q = tap("q", self.qk_norm(split_heads(self.q(x), self.heads)))  # (B, H, T, D)
        k, v = tap("k", k), tap("v", v)
        mask = Mask(padding_mask=memory.padding_mask)
        z = tap("z", attend(q, k, v, mask, dropout=self.dropout if self.training else 0.0))
        return tap("attn_out", self.out(join_heads(z)))


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, T, H·D) to (B, H, T, D)."""
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def join_heads(z: Tensor) -> Tensor:
    """(B, H, T, E) to (B, T, H·E)."""
    return z.transpose(1, 2).flatten(2)
