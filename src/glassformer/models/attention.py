"""Scaled dot-product attention, softmax(QKᵀ/√D)V, and the multi-head layers around it.

Letters: B batch, T query positions, S key positions, C model width, H heads, K key-value heads,
D head width (of queries and keys), E value width (D unless chosen otherwise).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from glassformer.models.position import Position
from glassformer.models.state import LayerCache, Memory
from glassformer.models.tap import Tap, off


@dataclass(frozen=True)
class Mask:
    """Which keys a query may look at; every mask of the project is made by `table`.

    Queries are the last T of S positions, so with a cache the query of a new token sees all that came before.
    To hide one position from all, make its entry of `padding_mask` False: it gets −∞ before the softmax.
    """

    causal: bool = False
    window: int | None = None  # a query sees itself and the window − 1 positions before it
    padding_mask: Tensor | None = (
        None  # (B, S), False hides that key from every query: padding, or a hidden position
    )
    pairs: Tensor | None = None  # (T, S) or (B, T, S), False where a query may not look: any mask at all

    def hides_nothing(self, T: int) -> bool:
        return self._plain and (not self.causal or T == 1)

    def is_triangle(self, T: int, S: int) -> bool:
        """The plain causal mask over a whole sequence, which the fused kernels have built in."""
        return self.causal and self._plain and T == S

    @property
    def _plain(self) -> bool:
        return self.padding_mask is None and self.window is None and self.pairs is None

    def table(self, T: int, S: int, device: torch.device | None = None) -> Tensor:
        """True where a query may look: (T, S), or (B, 1, T, S) when it differs between sequences."""
        query = torch.arange(S - T, S, device=device)[:, None]
        key = torch.arange(S, device=device)[None, :]
        seen = torch.ones(T, S, dtype=torch.bool, device=device)
        if self.causal:
            seen = seen & (key <= query)
        if self.window is not None:
            seen = seen & ((query - key).abs() < self.window)
        if self.padding_mask is not None:
            seen = seen & self.padding_mask[:, None, None, :]
        if self.pairs is not None:
            seen = seen & (self.pairs if self.pairs.ndim == 2 else self.pairs[:, None])
        return seen


def attend_by_formula(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Attention as the books write it, returning the output (B, H, T, E) and the weights (B, H, T, S).

    Hidden keys get −∞ before the softmax, so that the visible ones still sum to one; zeros after it would
    not. A query that may see nothing gets weights of zero.
    """
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    scores = q @ k.transpose(-2, -1) / sqrt(q.shape[-1])  # (B, H, T, S)
    if bias is not None:
        scores = scores + bias
    seen = mask.table(q.shape[-2], k.shape[-2], q.device)
    weights = scores.masked_fill(~seen, float("-inf")).softmax(dim=-1)
    weights = weights.masked_fill(~seen, 0.0)
    return weights @ v, weights


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None = None, dropout: float = 0.0
) -> Tensor:
    """The same on PyTorch's fused kernels, which never hold the T×S weights. Twin of `attend_by_formula`."""
    T, S = q.shape[-2], k.shape[-2]
    grouped = q.shape[1] != k.shape[1]
    if bias is None and mask.is_triangle(T, S):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout, enable_gqa=grouped)
    table: Tensor | None = None
    if bias is not None:
        table = bias.masked_fill(~mask.table(T, S, q.device), float("-inf")).to(q.dtype)
    elif not mask.hides_nothing(T):
        table = mask.table(T, S, q.device)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=table, dropout_p=dropout, enable_gqa=grouped)


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
    def project(self, x: Tensor, start: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, H, T, D), keys (B, K, T, D) and values (B, K, T, E); `start`: where x begins."""

    @abstractmethod
    def read_out(self, z: Tensor) -> Tensor:
        """What the heads found, (B, H, T, E), as an update of the stream, (B, T, C)."""

    def bias(self, T: int, S: int) -> Tensor | None:
        return self.position.bias(T, S)

    def forward(self, x: Tensor, mask: Mask, cache: LayerCache | None = None, tap: Tap = off) -> Tensor:
        T = x.shape[1]
        q, k, v = self.project(x, cache.length if cache is not None else 0)
        q, k, v = tap("q", q), tap("k", k), tap("v", v)
        if cache is not None:
            k, v = cache.extend(k, v)  # (B, K, S, ·)
        bias = self.bias(T, k.shape[-2])
        z = tap("z", attend(q, k, v, mask, bias, self.dropout if self.training else 0.0))  # (B, H, T, E)
        return tap("attn_out", self.read_out(z))


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

    def project(self, x: Tensor, start: int) -> tuple[Tensor, Tensor, Tensor]:
        return self.to_heads(self.qkv(x), start)

    def to_heads(self, qkv: Tensor, start: int) -> tuple[Tensor, Tensor, Tensor]:
        """From x W, everything side by side (B, T, ·), to heads."""
        # Queries and keys are normalised and turned alike, so both are treated in one go.
        qk, v = qkv.split((self.parts[0] + self.parts[1], self.parts[2]), dim=-1)
        qk = self.position.rotate(self.qk_norm(split_heads(qk, self.heads + self.kv_heads)), start)
        q, k = qk.split((self.heads, self.kv_heads), dim=1)
        return q, k, split_heads(v, self.kv_heads)

    def read_out(self, z: Tensor) -> Tensor:
        return self.out(join_heads(z))


class CrossAttention(nn.Module):
    """Attention from one sequence into another: queries from x, keys and values from the memory.

    The two have no common positions, so none are used. In a generation the memory's keys and values are made
    once and kept in the cache.
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

    def project(self, memory: Memory, cache: LayerCache | None) -> tuple[Tensor, Tensor]:
        if cache is not None and cache.memory is not None:
            return cache.memory
        k, v = split_heads(self.kv(memory.states), 2 * self.heads).chunk(2, dim=1)
        made = self.qk_norm(k), v
        if cache is not None:
            cache.memory = made
        return made

    def forward(self, x: Tensor, memory: Memory, cache: LayerCache | None = None, tap: Tap = off) -> Tensor:
        k, v = self.project(memory, cache)
        q = tap("q", self.qk_norm(split_heads(self.q(x), self.heads)))
        k, v = tap("k", k), tap("v", v)
        z = tap(
            "z",
            attend(
                q, k, v, Mask(padding_mask=memory.padding_mask), None, self.dropout if self.training else 0.0
            ),
        )
        return tap("attn_out", self.out(join_heads(z)))


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, T, H·D) to (B, H, T, D)."""
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def join_heads(z: Tensor) -> Tensor:
    """(B, H, T, E) to (B, T, H·E)."""
    return z.transpose(1, 2).flatten(2)
