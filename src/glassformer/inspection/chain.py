"""The gradients of attention and of the feed-forward net, written out: ∂L/∂θ by the chain rule.

    out = Σᵢ zⁱ Oⁱ                 ∂L/∂O = zᵀ g                 ∂L/∂z = g Oᵀ          g = ∂L/∂out
    z = A v                        ∂L/∂v = Aᵀ ∂z                ∂L/∂A = ∂z vᵀ
    A = softmax(S)                 ∂L/∂S = A ⊙ (∂A − Σ_s A ⊙ ∂A)
    S = q kᵀ / √D                  ∂L/∂q = ∂S k / √D            ∂L/∂k = ∂Sᵀ q / √D
    q, k, v = x W                  ∂L/∂W = xᵀ ∂(q, k, v)        ∂L/∂x = ∂(q, k, v) Wᵀ

and of the feed-forward net:

    out = h W_down + b             ∂L/∂W_down = hᵀ g            ∂L/∂h = g W_downᵀ
    h = φ(a),  a = x W_up + b      ∂L/∂a = φ′(a) ⊙ ∂L/∂h        ∂L/∂W_up = xᵀ ∂L/∂a

Keys and values that several heads share collect the gradients of all of them. Where queries and keys are
normalised or turned on their way from x, that step is taken backwards by autograd; all else is above.
Twin of what autograd gives for the fused kernels.

Letters: B batch, T positions, C model width, M hidden width, H heads, K key-value heads, D head width,
E value width.
"""

from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor

from glassformer.core.errors import UsageError
from glassformer.inspection.maps import attention_of, pattern
from glassformer.inspection.trace import Trace
from glassformer.models.attention import Attention, join_heads
from glassformer.models.layers import MLP, GatedMLP


@dataclass
class AttentionGradients:
    """Of the values on the way, and of the parameters by their names in the layer."""

    q: Tensor
    k: Tensor
    v: Tensor
    z: Tensor
    parameters: dict[str, Tensor]


def by_chain_rule(trace: Trace, layer: int, x: Tensor, g: Tensor, part: str = "") -> AttentionGradients:
    """From the layer's input x (B, T, C) and g, the gradient of what it writes.

    The input is what it reads: after its norm and, where there is one, its shift.
    """
    attention = attention_of(trace, layer, part)
    if not isinstance(attention, Attention):
        raise UsageError("the chain rule is written out for full attention")
    q, k, v, z = (trace[f"{part}{layer}.{name}"] for name in "qkvz")
    weights = pattern(trace, layer, part=part).to(q.dtype)  # (B, H, T, S)
    group = q.shape[1] // k.shape[1]
    keys, values = (t.repeat_interleave(group, dim=1) for t in (k, v))

    W_O = attention.out.weight.detach().view(-1, *z.shape[1::2])  # (C, H, E)
    dz = torch.einsum("btc,che->bhte", g, W_O)
    dv = weights.transpose(-2, -1) @ dz
    dA = dz @ values.transpose(-2, -1)
    dS = weights * (dA - (weights * dA).sum(dim=-1, keepdim=True))
    dq = dS @ keys / sqrt(q.shape[-1])
    dk = dS.transpose(-2, -1) @ q / sqrt(q.shape[-1])
    dk, dv = (t.unflatten(1, (-1, group)).sum(dim=2) for t in (dk, dv))

    d_projected = _before_norm_and_turn(attention, x, dq, dk, dv)  # (B, T, all of q, k and v)
    flat, d_out = d_projected.flatten(0, 1), g.flatten(0, 1)
    parameters = {"qkv.weight": flat.T @ x.flatten(0, 1), "out.weight": d_out.T @ join_heads(z).flatten(0, 1)}
    if attention.qkv.bias is not None:
        parameters |= {"qkv.bias": flat.sum(dim=0), "out.bias": d_out.sum(dim=0)}
    return AttentionGradients(dq, dk, dv, dz, parameters)


def _before_norm_and_turn(attention: Attention, x: Tensor, dq: Tensor, dk: Tensor, dv: Tensor) -> Tensor:
    """The gradient of x W + b: heads side by side, with the norm and the turning undone."""
    positions = torch.arange(x.shape[1], device=x.device)[None]
    with torch.enable_grad():
        qkv = attention.qkv(x).detach().requires_grad_()
        (d_qkv,) = torch.autograd.grad(attention.to_heads(qkv, positions), qkv, (dq, dk, dv))
    return d_qkv


def mlp_by_chain_rule(mlp: MLP | GatedMLP, x: Tensor, g: Tensor) -> dict[str, Tensor]:
    """∂L/∂θ of a feed-forward net from its input x (B, T, C) (after its norm) and g, the gradient of what it
    writes; φ′ alone is autograd's."""
    x, g = x.flatten(0, 1), g.flatten(0, 1)
    with torch.enable_grad():
        a = mlp.up(x).detach().requires_grad_()  # (B·T, M), a gated net's with its gate beside it
        h = mlp.hidden_units(a)
        d_h = g @ mlp.down.weight.detach()
        (d_a,) = torch.autograd.grad(h, a, d_h)
    gradients = {"up.weight": d_a.T @ x, "down.weight": g.T @ h.detach()}
    if mlp.up.bias is not None:
        gradients |= {"up.bias": d_a.sum(dim=0), "down.bias": g.sum(dim=0)}
    return gradients
