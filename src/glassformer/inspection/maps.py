"""Attention maps. The forward pass never builds them: they are derived from recorded queries and keys, with
the mask and the biases of the model, for just the heads and queries that are asked for.

    pattern         A, how much each query takes from each key
    value_weighted  A times how much there is to take: the length of what the head would write from that key
    rollout         A through all layers, the residual stream counted as a look at oneself

Letters: B batch, H heads, T query positions, S key positions, C model width, D head width, E value width.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from glassformer.core.errors import UsageError
from glassformer.inspection.trace import Trace, body_of, stack_of
from glassformer.models.attention import CrossAttention, Mixer, attend_by_formula
from glassformer.models.block import Block
from glassformer.models.mask import Mask
from glassformer.models.recurrent import RecurrentStack

Rows = slice | range | Sequence[int] | None


def pattern(
    trace: Trace,
    layer: int,
    heads: Sequence[int] | int | None = None,
    queries: Rows = None,
    part: str = "",
    cross: bool = False,
) -> Tensor:
    """The weights A (B, H, T, S) of a layer; `cross`: of the decoder's look into the source."""
    mixer, site = attention_of(trace, layer, part, cross), _site(trace, layer, part, cross)
    q, k = trace[f"{site}q"].float(), trace[f"{site}k"].float()
    chosen = [heads] if isinstance(heads, int) else heads
    indices = list(range(q.shape[1])) if chosen is None else list(chosen)
    if wrong := [h for h in indices if not 0 <= h < q.shape[1]]:
        raise UsageError(f"there is no head {wrong[0]} in layer {layer}: expected 0 to {q.shape[1] - 1}")
    groups = [h // (q.shape[1] // k.shape[1]) for h in indices]  # the key-value head of each
    q, k, mask = (
        q[:, indices],
        k[:, groups],
        Mask(padding_mask=trace.padding_mask) if cross else mask_of(trace, part),
    )
    rows = _rows(queries, q.shape[-2])
    pieces = [_some_rows(q, k, mask, mixer, indices, run) for run in _runs(rows)]
    weights, order = torch.cat(pieces, dim=2), sorted(rows)
    return weights if rows == order else weights[:, :, [order.index(r) for r in rows]]


def _some_rows(
    q: Tensor, k: Tensor, mask: Mask, mixer: Mixer | CrossAttention, heads: list[int], rows: range
) -> Tensor:
    """A run of neighbouring rows. Under a causal mask the keys behind the last of them are not looked at."""
    T, S = q.shape[-2], k.shape[-2]
    end = rows.stop if mask.causal and T == S else S
    padding = None if mask.padding_mask is None else mask.padding_mask[:, :end]
    queries, keys = torch.arange(rows.start, rows.stop, device=q.device), torch.arange(end, device=q.device)
    q, k, mask = q[:, :, rows.start : rows.stop], k[:, :, :end], replace(mask, padding_mask=padding)
    if isinstance(mixer, Mixer):
        bias = mixer.bias(queries[None], keys)
        weights = mixer.weights(q, k, mask, None if bias is None else bias[:, heads].float(), queries)
    else:
        weights = attend_by_formula(q, k, k, mask)[1]
    return nn.functional.pad(weights, (0, S - end))


def value_weighted(
    trace: Trace,
    layer: int,
    heads: Sequence[int] | None = None,
    queries: Rows = None,
    part: str = "",
    cross: bool = False,
) -> Tensor:
    """Each row of A in the proportions of what would be written, (B, H, T, S)."""
    weights, site = pattern(trace, layer, heads, queries, part, cross), _site(trace, layer, part, cross)
    v, H = trace[f"{site}v"].float(), trace[f"{site}q"].shape[1]
    contributions = head_contributions(
        attention_of(trace, layer, part, cross), v.repeat_interleave(H // v.shape[1], dim=1)
    )
    lengths = contributions.norm(dim=-1)  # (B, H, S)
    lengths = lengths if heads is None else lengths[:, list(heads)]
    products = weights * lengths[:, :, None]
    return products / products.sum(dim=-1, keepdim=True).clamp_min(1e-30)


def rollout(trace: Trace, upto: int | None = None, part: str = "") -> Tensor:
    """How much of each position is in each, (B, T, T): the product of (A + 1)/2, A the mean over heads."""
    layers = len(stack_of(trace, part).blocks) if upto is None else upto
    flow: Tensor | None = None
    for layer in range(layers):
        mean = pattern(trace, layer, part=part).mean(dim=1)
        step = (mean + torch.eye(mean.shape[-1], device=mean.device)) / 2
        flow = step if flow is None else step @ flow
    if flow is None:
        raise UsageError("rolling out needs at least one layer")
    return flow


def head_contributions(layer: Mixer | CrossAttention, z: Tensor) -> Tensor:
    """What each head alone writes into the stream, (B, H, T, C), from z (B, H, T, E): Oⁱ zⁱ.

    W_O's columns fall into one slice per head. A rung of the ladder without W_O writes each head's values to
    its own share of the stream: there the slices are those of the identity.
    """
    H, E = z.shape[1], z.shape[-1]
    out = getattr(layer, "out", None)
    matrix = out.weight if isinstance(out, nn.Linear) else torch.eye(H * E, device=z.device)  # (C, H·E)
    slices = matrix.to(z.dtype).view(-1, H, E)
    return torch.einsum("bhte,che->bhtc", z, slices)


def attention_of(trace: Trace, layer: int, part: str = "", cross: bool = False) -> Mixer | CrossAttention:
    body = body_of(trace.model, part)
    if cross and isinstance(body, RecurrentStack):  # it has one, behind the last layer
        attention = body.cross
    else:
        blocks = stack_of(trace, part).blocks
        if not 0 <= layer < len(blocks):
            raise UsageError(f"there is no layer {layer}: the model has {len(blocks)}, counted from 0")
        block = blocks[layer]
        assert isinstance(block, Block)
        attention = block.cross if cross else block.attention
    if attention is None:
        raise UsageError(f"layer {layer} has no cross-attention")
    return attention


def _site(trace: Trace, layer: int, part: str, cross: bool) -> str:
    """What the names of a layer's q, k and v begin with."""
    if cross and isinstance(body_of(trace.model, part), RecurrentStack):
        return f"{part}cross."
    return f"{part}{layer}.{'cross.' if cross else ''}"


def mask_of(trace: Trace, part: str = "") -> Mask:
    """The mask of the self-attention of a stack, with the padding of this text."""
    mask = stack_of(trace, part).mask
    return (
        mask
        if trace.padding_mask is None or part == "decoder."
        else replace(mask, padding_mask=trace.padding_mask)
    )


def _rows(queries: Rows, T: int) -> list[int]:
    if queries is None:
        return list(range(T))
    rows = list(range(T))[queries] if isinstance(queries, slice) else list(queries)
    if not rows or not all(-T <= r < T for r in rows):
        raise UsageError(f"query positions {rows}: expected some of 0 to {T - 1}")
    return list(dict.fromkeys(r % T for r in rows))


def _runs(rows: list[int]) -> list[range]:
    """Neighbouring rows together, in order."""
    runs: list[range] = []
    for r in sorted(rows):
        if runs and runs[-1].stop == r:
            runs[-1] = range(runs[-1].start, r + 1)
        else:
            runs.append(range(r, r + 1))
    return runs
