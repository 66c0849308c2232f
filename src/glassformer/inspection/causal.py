"""What a value is needed for: change it, and see what happens to the answer.

    patch          put what one text has at a place into the run of another, place by place
    path_patch     the same for one connection alone, from a head to a later head
    integrated     what each token of the input accounts for, by gradients along the way from nothing to it

A patch says how much of the answer came by that place; two texts that differ in one word and have the same
length are what it is made for. All places of a kind are one batch: a forward pass for every row of it, and
for a compiled model one graph.

Letters: N places, B = 1 text, L layers, H heads, T positions, C model width.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.errors import UsageError
from glassformer.inspection.edit import Edit, put
from glassformer.inspection.maps import attention_of, written_by_head
from glassformer.inspection.record import Seen, see, stack_of
from glassformer.models.attention import Mixer
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
        return (self.values - self.corrupt) / (self.clean - self.corrupt)


def logit_difference(right: int, wrong: int, position: int = -1) -> Metric:
    return lambda logits: logits[:, position, right] - logits[:, position, wrong]


def patch(
    clean: Seen,
    corrupt: Tensor,
    metric: Metric,
    what: str = "resid",
    by_position: bool | None = None,
    rows: int = 64,
) -> Patching:
    """Run `corrupt` (1, T) with the values of the clean text at one place after the other.

    `resid`, `attention` and `mlp` are patched by layer and position, `heads` by layer and head (or, with
    `by_position`, by all three). `rows` places are run at a time.
    """
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
    found: list[Tensor] = []
    for some in places.split(rows):
        edits = [_row_edit(clean[site], site, some, i, shape) for i, site in enumerate(sites)]
        found.append(metric(_logits(clean, corrupt.expand(len(some), -1), edits)))
    values = torch.cat(found).view(shape)
    keep = [values.shape[0], *(n for n, there in ((H, what == "heads"), (T, by_position)) if there)]
    ends = [float(metric(_logits(clean, ids, []))) for ids in (clean.inputs[0], corrupt)]
    return Patching(what, values.view(keep), *ends)


def _row_edit(value: Tensor, site: str, places: Tensor, layer: int, shape: tuple[int, int, int]) -> Edit:
    """One row of the batch for each place: where this layer is meant, the head and position that are."""
    layers, heads, positions = places.to(value.device).T
    mine = (layers == layer)[:, None, None, None]
    H, T = value.shape[1] if value.ndim == 4 else 1, value.shape[-2]
    if shape[1] > 1:
        mine = mine & (torch.arange(H, device=value.device)[:, None, None] == heads[:, None, None, None])
    if shape[2] > 1:
        mine = mine & (torch.arange(T, device=value.device)[:, None] == positions[:, None, None, None])
    return Edit(site, value, where=mine if value.ndim == 4 else mine[:, 0])


def _logits(like: Seen, ids: Tensor, edits: list[Edit]) -> Tensor:
    return see(like.model, ids, sites=("logits",), edits=edits, compiled=like.compiled).logits


def path_patch(
    clean: Seen,
    corrupt: Seen,
    sender: tuple[int, int],
    receiver: tuple[int, int],
    inputs: str = "q",
) -> list[Edit]:
    """Edits of the clean run by which `receiver` sees what `sender` wrote in the corrupt one, and no other
    part does: the direct way along the stream, everything between held as it was.

    (layer, head) each; `inputs` are those of q, k and v that see it. For norms before the layers or none,
    where what a head writes reaches a later layer unchanged.
    """
    (i, head), (j, other) = sender, receiver
    stack = stack_of(clean)
    block = stack.blocks[j]
    assert isinstance(block, Block)
    if block.placement not in (pre, bare) or block.join is not add:
        raise UsageError("path patching follows the stream: it needs placement pre or none, with residuals")
    if i >= j:
        raise UsageError(f"block {i} writes after block {j} has looked")
    if not inputs or set(inputs) - set("qkv"):
        raise UsageError(f"'{inputs}': expected some of q, k and v")
    layer = attention_of(clean, i)
    change = written_by_head(layer, corrupt[f"{i}.z"]) - written_by_head(layer, clean[f"{i}.z"])
    before = clean["embed" if j == 0 else f"{j - 1}.resid"]
    assert isinstance(block.attention, Mixer)
    with torch.no_grad():
        made = block.attention.project(block.attention_norm(before + change[:, head]), 0)
    edits: list[Edit] = []
    for name, value in zip("qkv", made, strict=True):
        group = other if name == "q" else other // (clean[f"{j}.q"].shape[1] // value.shape[1])
        if name in inputs:
            edits.append(put(f"{j}.{name}", value, heads=group))
    return edits


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
) -> Integrated:
    """Integrated gradients of a metric, from a baseline text (1, T) to ids (1, T).

    The baseline is the first token of the text (the mark that begins it) over and over, unless given. Zeros
    would be a bad one: a norm makes of any small vector a large one, so that everything happens at the very
    start of the way. The integral is taken by Gauss-Legendre quadrature at `steps` points.
    """
    seen = see(model, ids, sites=("embed",))
    other = ids[:, :1].expand_as(ids) if baseline is None else baseline
    start = see(model, other, sites=("embed",))["embed"]
    points, weights = np.polynomial.legendre.leggauss(steps)
    total = torch.zeros_like(start[0])
    for first in range(0, steps, rows):
        some = slice(first, first + rows)
        way = torch.tensor((points[some] + 1) / 2, dtype=start.dtype, device=start.device)[:, None, None]
        share = torch.tensor(weights[some] / 2, dtype=start.dtype, device=start.device)[:, None, None]
        total += (share * _slope(model, ids, metric, start + way * (seen["embed"] - start))).sum(dim=0)
    with torch.no_grad():
        ends = [_from_embedding(model, ids, metric, e) for e in (seen["embed"], start)]
    found = (total * (seen["embed"] - start)[0]).sum(dim=-1)
    return Integrated(found, *(float(end) for end in ends))


def _slope(model: nn.Module, ids: Tensor, metric: Metric, embedded: Tensor) -> Tensor:
    with torch.enable_grad():
        embedded = embedded.detach().requires_grad_()
        value = _from_embedding(model, ids.expand(len(embedded), -1), metric, embedded).sum()
        return torch.autograd.grad(value, embedded)[0]


def _from_embedding(model: nn.Module, ids: Tensor, metric: Metric, embedded: Tensor) -> Tensor:
    edit = put("embed", embedded)
    return metric(model(ids, tap=lambda site, x: edit(x) if site == "embed" else x))
