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

from glassformer.errors import UsageError
from glassformer.inspection.record import Seen, stack_of
from glassformer.models.attention import CrossAttention, Mask, Mixer, attend_by_formula
from glassformer.models.block import Block

Rows = slice | range | Sequence[int] | None


def pattern(
    seen: Seen,
    layer: int,
    heads: Sequence[int] | None = None,
    queries: Rows = None,
    part: str = "",
    cross: bool = False,
) -> Tensor:
    """The weights A (B, H, T, S) of a layer; `cross`: of the decoder's look into the source."""
    site = f"{part}{layer}.{'cross.' if cross else ''}"
    q, k, mixer = seen[f"{site}q"].float(), seen[f"{site}k"].float(), attention_of(seen, layer, part, cross)
    T, S = q.shape[-2], k.shape[-2]
    chosen = list(range(q.shape[1])) if heads is None else list(heads)
    groups = [h // (q.shape[1] // k.shape[1]) for h in chosen]  # the key-value head of each
    mask, rows = _mask(seen, part, cross), _rows(queries, T)
    bias = mixer.bias(T, S) if isinstance(mixer, Mixer) else None
    q, k = q[:, chosen], k[:, groups]
    if rows is None:
        bias = None if bias is None else bias[chosen].float()
        return attend_by_formula(q, k, k, mask, bias)[1]
    first, last = min(rows), max(rows) + 1
    if mask.causal and T == S:  # keys after the last of these queries are hidden from all of them
        keys = None if mask.keys is None else mask.keys[:, :last]
        bias = mixer.bias(last - first, last) if isinstance(mixer, Mixer) else None
        bias = None if bias is None else bias[chosen].float()
        near = replace(mask, keys=keys)
        part_of = attend_by_formula(q[:, :, first:last], k[:, :, :last], k[:, :, :last], near, bias)[1]
        weights = nn.functional.pad(part_of, (0, S - last))
    else:
        pairs = mask.table(T, S, q.device)[..., first:last, :]
        bias = None if bias is None else bias[chosen, first:last].float()
        weights = attend_by_formula(q[:, :, first:last], k, k, Mask(pairs=_flat(pairs)), bias)[1]
    return weights[:, :, [r - first for r in rows]]


def value_weighted(seen: Seen, layer: int, part: str = "", cross: bool = False) -> Tensor:
    """Each row of A in the proportions of what would be written, (B, H, T, S)."""
    v = seen[f"{part}{layer}.{'cross.' if cross else ''}v"].float()
    weights = pattern(seen, layer, part=part, cross=cross)
    v = v.repeat_interleave(weights.shape[1] // v.shape[1], dim=1)
    length = written_by_head(attention_of(seen, layer, part, cross), v).norm(dim=-1)  # (B, H, S)
    weighted = weights * length[:, :, None]
    return weighted / weighted.sum(dim=-1, keepdim=True).clamp_min(1e-30)


def rollout(seen: Seen, upto: int | None = None, part: str = "") -> Tensor:
    """How much of each position is in each, (B, T, T): the product of (A + 1)/2, A the mean over heads."""
    layers = len(stack_of(seen, part).blocks) if upto is None else upto
    flow: Tensor | None = None
    for layer in range(layers):
        mean = pattern(seen, layer, part=part).mean(dim=1)
        step = (mean + torch.eye(mean.shape[-1], device=mean.device)) / 2
        flow = step if flow is None else step @ flow
    if flow is None:
        raise UsageError("rolling out needs at least one layer")
    return flow


def written_by_head(layer: Mixer | CrossAttention, z: Tensor) -> Tensor:
    """What each head alone writes into the stream, (B, H, T, C), from z (B, H, T, E): Oⁱ zⁱ.

    W_O's columns fall into one slice per head. A rung of the ladder without W_O writes each head's values to
    its own share of the stream: there the slices are those of the identity.
    """
    H, E = z.shape[1], z.shape[-1]
    out = getattr(layer, "out", None)
    matrix = out.weight if isinstance(out, nn.Linear) else torch.eye(H * E, device=z.device)  # (C, H·E)
    slices = matrix.to(z.dtype).view(-1, H, E)
    return torch.einsum("bhte,che->bhtc", z, slices)


def attention_of(seen: Seen, layer: int, part: str = "", cross: bool = False) -> Mixer | CrossAttention:
    blocks = stack_of(seen, part).blocks
    if not 0 <= layer < len(blocks):
        raise UsageError(f"there is no layer {layer}: the model has {len(blocks)}, counted from 0")
    block = blocks[layer]
    assert isinstance(block, Block)
    found = block.cross if cross else block.attention
    if found is None:
        raise UsageError(f"block {layer} has no cross-attention")
    return found


def mask_of(seen: Seen, part: str = "") -> Mask:
    """The mask of the self-attention of a stack, with the padding of this text."""
    mask = stack_of(seen, part).mask
    return mask if seen.keys is None or part == "decoder." else replace(mask, keys=seen.keys)


def _mask(seen: Seen, part: str, cross: bool) -> Mask:
    return Mask(keys=seen.keys) if cross else mask_of(seen, part)


def _rows(queries: Rows, T: int) -> list[int] | None:
    if queries is None:
        return None
    rows = list(range(T))[queries] if isinstance(queries, slice) else [q % T for q in queries]
    if not rows:
        raise UsageError("no query positions were chosen")
    return rows


def _flat(pairs: Tensor) -> Tensor:
    return pairs[:, 0] if pairs.ndim == 4 else pairs
