"""Scaled dot-product attention, softmax(QKᵀ/√D)V, and the multi-head layer around it.

Letters: B batch, T query positions, S key positions, C model width, H heads, K key-value heads,
D head width (of queries and keys), E value width (D unless chosen otherwise).
"""

from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.models.cache import LayerCache
from glassformer.models.position import Position
from glassformer.models.tap import Tap, off


@dataclass(frozen=True)
class Mask:
    """Which keys a query may look at; every mask of the project is made by `table`.

    Queries are the last T of S positions, so with a cache the query of a new token sees all that came before.
    """

    causal: bool = False
    window: int | None = None  # a query sees itself and the window − 1 positions before it
    keys: Tensor | None = None  # (B, S), False hides that key from every query: padding, or a hidden position

    def hides_nothing(self, T: int) -> bool:
        return self.keys is None and self.window is None and (not self.causal or T == 1)

    def is_triangle(self, T: int, S: int) -> bool:
        """The plain causal mask over a whole sequence, which the fused kernels have built in."""
        return self.causal and self.keys is None and self.window is None and T == S

    def table(self, T: int, S: int, device: torch.device | None = None) -> Tensor:
        """True where a query may look: (T, S), or (B, 1, T, S) when keys are hidden per sequence."""
        query = torch.arange(S - T, S, device=device)[:, None]
        key = torch.arange(S, device=device)[None, :]
        seen = torch.ones(T, S, dtype=torch.bool, device=device)
        if self.causal:
            seen = seen & (key <= query)
        if self.window is not None:
            seen = seen & ((query - key).abs() < self.window)
        if self.keys is not None:
            seen = seen & self.keys[:, None, None, :]
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


class Attention(nn.Module):
    """Multi-head attention, in its concat form.

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
        self.qkv = nn.Linear(width, sum(self.parts), bias=bias)
        self.out = nn.Linear(heads * self.value_width, width, bias=bias)

    def forward(self, x: Tensor, mask: Mask, cache: LayerCache | None = None, tap: Tap = off) -> Tensor:
        B, T, _ = x.shape
        # Queries and keys are normalised and turned alike, so both are treated in one go.
        qk, v = self.qkv(x).split((self.parts[0] + self.parts[1], self.parts[2]), dim=-1)
        qk = qk.view(B, T, self.heads + self.kv_heads, self.head_width).transpose(1, 2)  # (B, H + K, T, D)
        v = v.view(B, T, self.kv_heads, self.value_width).transpose(1, 2)  # (B, K, T, E)
        start = cache.length if cache is not None else 0
        q, k = self.position.rotate(self.qk_norm(qk), start).split((self.heads, self.kv_heads), dim=1)
        q, k, v = tap("q", q), tap("k", k), tap("v", v)
        if cache is not None:
            k, v = cache.extend(k, v)  # (B, K, S, ·)
        bias = self.position.bias(T, k.shape[-2])
        z = tap("z", attend(q, k, v, mask, bias, self.dropout if self.training else 0.0))  # (B, H, T, E)
        z = z.transpose(1, 2).reshape(B, T, self.heads * self.value_width)
        return tap("attn_out", self.out(z))
