"""The residual stream backward: the gradient that comes from above goes down two ways.

    ∂L/∂x = what passes along the identity + what comes back through the layer

                 identity          through
    pre, none    g                 J_fᵀ g           (f with its norm)
    post         J_nᵀ g            J_fᵀ J_nᵀ g      the norm stands on the stream: both must pass it
    renorm       J_nᵀ g            J_nᵀ J_fᵀ g

g is the gradient behind the layer. Each way is computed by itself, with the block's own code, the other one
cut off; that they sum to the gradient which the whole backward pass brings is a fact, and its error is
measured. Without residual connections the first way does not exist.

Letters: B batch, T positions, C model width.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.inspection.edits import Edits
from glassformer.inspection.maps import mask_of
from glassformer.inspection.residual import relative_error, stream_sites
from glassformer.inspection.trace import Loss, Trace, body_of, gradients, record_trace, stack_of
from glassformer.models.block import Block, Join, replace
from glassformer.models.build import make_model
from glassformer.models.model import evaluating
from glassformer.models.state import Memory
from glassformer.models.tap import inside
from glassformer.models.transformer import Stack


@dataclass
class Passed:
    """The gradient with respect to the stream before a layer, and its two ways. Each (B, T, C)."""

    layer: str  # as in `3.attention`
    before: Tensor
    identity: Tensor
    through: Tensor

    @property
    def error(self) -> float:
        return relative_error(self.identity + self.through, self.before)


def next_token_loss(ids: Tensor) -> Loss:
    """The mean loss of a language model on its own text."""

    def loss(logits: Tensor) -> Tensor:
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())

    return loss


def backward(trace: Trace, loss: Loss, part: str = "") -> tuple[Tensor, list[Passed]]:
    """The loss, and for every layer, from the first, how the gradient came down through it."""
    layers = _layers(trace, part)
    sites = [f"{part}embed", *(after for _, _, after, _ in layers)]
    value, found = gradients(trace, loss, sites)
    passed: list[Passed] = []
    before = sites[0]
    for name, block, after, make in layers:
        x, g, i = trace[before].detach(), found[after], int(name.partition(".")[0])
        with evaluating(trace.model):
            ways = [_one_way(x, g, make(i, block, join)) for join in _ways(block)]
        passed.append(Passed(f"{part}{name}", found[before], *ways))
        before = after
    return value, passed


Step = Callable[[Tensor], Tensor]


def _layers(trace: Trace, part: str) -> list[tuple[str, Block, str, Callable[[int, Block, Join], Step]]]:
    """Each layer: its name, block, the site behind it, and the step it makes with a given join."""
    mask = mask_of(trace, part)
    memory = Memory(trace["encoder.final"], trace.padding_mask) if part == "decoder." else None
    edits = Edits(trace.edits)

    def attention(i: int, block: Block, join: Join) -> Step:
        tap = inside(edits, f"{part}{i}")

        def layer(h: Tensor) -> Tensor:
            return block.attention(h, mask, None, tap)

        return lambda x: tap("resid_mid", block.placement(x, block.attention_norm, layer, join))

    def cross(i: int, block: Block, join: Join) -> Step:
        tap, norm, looking = inside(edits, f"{part}{i}"), block.cross_norm, block.cross
        assert norm is not None and looking is not None and memory is not None

        def layer(h: Tensor) -> Tensor:
            return looking(h, memory, None, inside(tap, "cross"))

        return lambda x: tap("resid_cross", block.placement(x, norm, layer, join))

    def mlp(i: int, block: Block, join: Join) -> Step:
        tap = inside(edits, f"{part}{i}")
        return lambda x: tap("resid", block.placement(x, block.mlp_norm, lambda h: block.mlp(h, tap), join))

    layers: list[tuple[str, Block, str, Callable[[int, Block, Join], Step]]] = []
    for i, block in enumerate(stack_of(trace, part).blocks):
        assert isinstance(block, Block)
        layers.append((f"{i}.attention", block, f"{part}{i}.resid_mid", attention))
        if block.cross is not None:
            layers.append((f"{i}.cross", block, f"{part}{i}.resid_cross", cross))
        layers.append((f"{i}.mlp", block, f"{part}{i}.resid", mlp))
    return layers


def _ways(block: Block) -> tuple[Join, Join]:
    """The block's way of joining stream and update, with one of the two cut off from gradients."""
    if block.join is replace:
        return (lambda stream, update: update.detach()), (lambda stream, update: update)
    return (lambda stream, update: stream + update.detach()), (
        lambda stream, update: stream.detach() + update
    )


def _one_way(x: Tensor, g: Tensor, step: Step) -> Tensor:
    with torch.enable_grad():
        x = x.clone().requires_grad_()
        y = step(x)
        if not y.requires_grad:
            return torch.zeros_like(g)
        (found,) = torch.autograd.grad(y, x, g, allow_unused=True)
    return torch.zeros_like(g) if found is None else found


def by_depth(trace: Trace, loss: Loss, part: str = "") -> list[float]:
    """The length of the gradient at the embedding and behind every block."""
    sites = [f"{part}{site}" for site in stream_sites(trace, part)]
    _, found = gradients(trace, loss, sites)
    return [float(found[site].double().norm()) for site in sites]


def without_residuals(model: nn.Module, task: str = "language") -> nn.Module:
    """The same weights, each layer passing on its own output alone."""
    config = model.config
    assert hasattr(config, "model_copy")
    other = make_model(task, config.model_copy(update={"residual": False}))  # pyright: ignore
    other.load_state_dict(model.state_dict())
    first = next(model.parameters())
    return other.to(first.device, first.dtype).eval()


def side_by_side(trace: Trace, loss: Loss, task: str = "language") -> dict[str, list[float]]:
    """The gradient over depth as the model is, and without its residual connections if it has any."""
    part = "" if task != "translate" else "decoder."
    found = {"as it is": by_depth(trace, loss, part)}
    if not isinstance(body_of(trace.model, part), Stack):
        return found
    other = without_residuals(trace.model, task)
    bare = record_trace(
        other, *trace.inputs, sites=("embed", "resid"), edits=trace.edits, padding_mask=trace.padding_mask
    )
    return {**found, "without residuals": by_depth(bare, loss, part)}
