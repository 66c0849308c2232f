"""What a value is needed for: change it, and see what happens to the answer.

    patch          put what one text has at a place into the run of another, place by place
    path_patch     the same for one connection alone, from a head to a later head
    integrated     what each token of the input accounts for, by gradients along the way from nothing to it

A patch says how much of the answer came by that place; two texts that differ in one word and have the same
length are what it is made for. Places are the rows of a batch, one graph for a compiled model.

Letters: N places, B = 1 text, L layers, H heads, T positions, C model width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.core.errors import UsageError
from glassformer.inspection.edits import Edit, put
from glassformer.inspection.maps import attention_of, head_contributions, mask_of
from glassformer.inspection.trace import Trace, gradients, record_trace, stack_of
from glassformer.models.attention import attend_by_formula
from glassformer.models.block import Block, add, bare, pre

Metric = Callable[[Tensor], Tensor]  # of logits (N, T, V), one number for each row: (N)
WHAT = {"resid": "resid", "attention": "attn_out", "mlp": "mlp_out", "heads": "z"}


@dataclass
class Patching:
    """The metric with each place patched: (L, T) for layers × positions, (L, H) for heads."""

    what: str
    values: Tensor
    clean: float
    corrupt: float

    @property
    def restored(self) -> Tensor:
        """As a share of the way from the corrupt answer (0) to the clean one (1)."""
        if self.clean == self.corrupt:
            raise UsageError("both texts give the same answer: there is nothing to restore")
        return (self.values - self.corrupt) / (self.clean - self.corrupt)


def logit_difference(right: int, wrong: int, position: int = -1) -> Metric:
    return lambda logits: logits[:, position, right] - logits[:, position, wrong]


class HasTrace(Protocol):
    """A look: what was seen, with names."""

    @property
    def trace(self) -> Trace: ...


def _trace(source: Trace | HasTrace) -> Trace:
    return source if isinstance(source, Trace) else source.trace


def patch(
    clean: Trace | HasTrace,
    corrupt: Trace | HasTrace | Tensor,
    metric: Metric,
    what: str = "resid",
    by_position: bool | None = None,
    rows: int = 64,
) -> Patching:
    """Run the corrupt text (its ids, or what was seen of it) with the clean values at one place after the
    other.

    `resid`, `attention` and `mlp` are patched by layer and position, `heads` by layer and head (or, with
    `by_position`, by all three). `rows` places are run at a time.
    """
    clean = _trace(clean)
    corrupt = corrupt if isinstance(corrupt, Tensor) else _trace(corrupt).inputs[0]
    if what not in WHAT:
        raise UsageError(f"no '{what}' to patch: expected {', '.join(WHAT)}")
    if clean.inputs[0].shape != corrupt.shape or len(corrupt) != 1:
        raise UsageError(
            "patching needs two texts of one length: "
            f"{tuple(clean.inputs[0].shape)} and {tuple(corrupt.shape)}"
        )
    L, T = len(stack_of(clean).blocks), corrupt.shape[1]
    sites = [f"{i}.{WHAT[what]}" for i in range(L)]
    H = clean[sites[0]].shape[1] if what == "heads" else 1
    by_position = what != "heads" if by_position is None else by_position
    shape = (L, H, T if by_position else 1)
    places = torch.cartesian_prod(*(torch.arange(n) for n in shape))  # (N, 3)
    # One more, which is nowhere: the corrupt text as it is; and again, until every batch is full.
    nowhere = torch.full((rows - len(places) % rows, 3), -1)
    scores: list[Tensor] = []
    for batch in torch.cat([places, nowhere]).split(rows):
        edits = [_row_edit(clean[site], site, batch, i, shape) for i, site in enumerate(sites)]
        trace = record_trace(
            clean.model,
            corrupt.expand(rows, -1),
            sites=("logits",),
            edits=[*clean.edits, *edits],
            padding_mask=None if clean.padding_mask is None else clean.padding_mask.expand(rows, -1),
            compiled=clean.compiled,
        )
        scores.append(metric(trace.logits))
    values = torch.cat(scores)
    dimensions = [L, *(n for n, present in ((H, what == "heads"), (T, by_position)) if present)]
    values, unpatched = values[: len(places)].view(dimensions), float(values[-1])
    return Patching(what, values, float(metric(clean.logits)), unpatched)


def _row_edit(value: Tensor, site: str, places: Tensor, layer: int, shape: tuple[int, int, int]) -> Edit:
    """One row of the batch for each place: where this layer is meant, the head and position that are."""
    layers, heads, positions = places.to(value.device).T
    mask = (layers == layer)[:, None, None, None]
    H, T = value.shape[1] if value.ndim == 4 else 1, value.shape[-2]
    if shape[1] > 1:
        mask = mask & (torch.arange(H, device=value.device)[:, None, None] == heads[:, None, None, None])
    if shape[2] > 1:
        mask = mask & (torch.arange(T, device=value.device)[:, None] == positions[:, None, None, None])
    return Edit(site, value, where=mask if value.ndim == 4 else mask[:, 0])


def path_patch(
    clean: Trace | HasTrace,
    corrupt: Trace | HasTrace,
    sender: tuple[int, int],
    receiver: tuple[int, int],
    inputs: str = "q",
) -> Edit:
    """An edit of the clean run by which `receiver` sees what `sender` wrote in the corrupt one, and no other
    part does: the direct way along the stream, everything between held as it was.

    (layer, head) each; `inputs` are those of q, k and v that see it. For norms before the layers or none,
    where what a head writes reaches a later layer unchanged.
    """
    clean, corrupt = _trace(clean), _trace(corrupt)
    (i, sender_head), (j, receiver_head) = sender, receiver
    stack, heads = stack_of(clean), clean["0.q"].shape[1]
    if not (0 <= i < j < len(stack.blocks) and 0 <= sender_head < heads and 0 <= receiver_head < heads):
        raise UsageError(
            f"from {sender} to {receiver}: expected (layer, head), a later layer for the second; "
            f"there are {len(stack.blocks)} layers of {heads} heads"
        )
    block = stack.blocks[j]
    assert isinstance(block, Block)
    if block.placement not in (pre, bare) or block.join is not add:
        raise UsageError("path patching follows the stream: it needs placement pre or none, with residuals")
    if not inputs or set(inputs) - set("qkv"):
        raise UsageError(f"'{inputs}': expected some of q, k and v")
    layer, attention = attention_of(clean, i), block.attention
    change = head_contributions(layer, corrupt[f"{i}.z"]) - head_contributions(layer, clean[f"{i}.z"])
    positions, mask = torch.arange(change.shape[-2], device=change.device)[None], mask_of(clean)
    with torch.no_grad():
        stream = clean[f"{j - 1}.resid"] + change[:, sender_head]
        projections = attention.project(block.attention_shift(block.attention_norm(stream), mask), positions)
        q, k, v = (projections[n] if name in inputs else clean[f"{j}.{name}"] for n, name in enumerate("qkv"))
        bias = attention.bias(positions, positions[0])
        z, _ = attend_by_formula(q, k, v, mask, bias)
    return put(f"{j}.z", z, heads=receiver_head)


@dataclass
class Integrated:
    """What each position of the input adds to the metric, (T), beyond what the baseline gives."""

    attributions: Tensor
    value: float  # the metric of the text
    baseline: float  # of the baseline

    @property
    def gap(self) -> float:
        """How far the parts are from summing to the whole; it shrinks with the number of steps."""
        return abs(float(self.attributions.sum()) - (self.value - self.baseline))


def integrated(
    model: nn.Module,
    ids: Tensor,
    metric: Metric,
    steps: int = 64,
    baseline: Tensor | None = None,
    rows: int = 16,
    edits: Sequence[Edit] = (),
) -> Integrated:
    """Integrated gradients of a metric, from a baseline text (1, T) to ids (1, T); or images, (1, T, P).

    The baseline is the first token of the text (the mark that begins it) over and over, unless given. Zeros
    would be a bad one: a norm makes of any small vector a large one, so that everything happens at the very
    start of the way. The integral is taken by Gauss-Legendre quadrature at `steps` points. `edits` are made
    all along.
    """
    trace = record_trace(model, ids, sites=("embed",), edits=edits)
    baseline = ids[:, :1].expand_as(ids) if baseline is None else baseline
    origin = record_trace(model, baseline, sites=("embed",), edits=edits)
    path = trace["embed"] - origin["embed"]
    points, weights = np.polynomial.legendre.leggauss(steps)
    total = torch.zeros_like(path[0])
    for first in range(0, steps, rows):
        alpha, weight = (
            torch.tensor(x[first : first + rows], dtype=path.dtype, device=path.device)[:, None, None]
            for x in ((points + 1) / 2, weights / 2)
        )
        on_the_way = put("embed", origin["embed"] + alpha * path)
        inputs = ids.expand(len(alpha), *ids.shape[1:])
        point = record_trace(model, inputs, sites=("embed",), edits=[*edits, on_the_way])
        _, slopes = gradients(point, lambda logits: metric(logits).sum(), ["embed"])
        total += (weight * slopes["embed"]).sum(dim=0)
    ends = (float(metric(end.logits)) for end in (trace, origin))
    return Integrated((total * path[0]).sum(dim=-1), *ends)
