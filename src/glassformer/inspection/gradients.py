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

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.config.model import ModelConfig
from glassformer.inspection.edits import Edits
from glassformer.inspection.maps import mask_of
from glassformer.inspection.residual import relative_error, stream_sites
from glassformer.inspection.trace import Loss, Trace, body_of, gradients, parts_of, record_trace, stack_of
from glassformer.models.block import Block, Join, Sublayer, replace
from glassformer.models.build import make_like
from glassformer.models.model import evaluating
from glassformer.models.state import Memory
from glassformer.models.tap import Tap, inside
from glassformer.models.transformer import Stack


@dataclass
class LayerGradient:
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


def backward(trace: Trace, loss: Loss, part: str = "") -> tuple[Tensor, list[LayerGradient]]:
    """The loss, and for every layer, from the first, how the gradient came down through it."""
    stack, mask, x = stack_of(trace, part), mask_of(trace, part), trace[f"{part}embed"]
    memory = Memory(trace["encoder.final"], trace.padding_mask) if part == "decoder." else None
    positions = torch.arange(x.shape[1], device=x.device)[None]
    layers = [
        (f"{part}{i}", block, sublayer)
        for i, block in enumerate(stack.blocks)
        if isinstance(block, Block)
        for sublayer in block.sublayers(mask, positions, None, memory)
    ]
    sites = [f"{part}embed", *(f"{place}.{sublayer.site}" for place, _, sublayer in layers)]
    value, slopes = gradients(trace, loss, sites)
    edits = Edits(trace.edits)
    layer_gradients: list[LayerGradient] = []
    for (place, block, sublayer), before, after in zip(layers, sites, sites[1:], strict=False):
        x, tap = trace[before].detach(), inside(edits, place)
        with evaluating(trace.model):
            ways = [_one_way(x, slopes[after], sublayer, join, tap) for join in _ways(block)]
        layer_gradients.append(LayerGradient(f"{place}.{sublayer.name}", slopes[before], *ways))
    return value, layer_gradients


def _ways(block: Block) -> tuple[Join, Join]:
    """The block's way of joining stream and update, with one of the two cut off from gradients."""
    if block.join is replace:
        return (lambda stream, update: update.detach()), (lambda stream, update: update)
    return (lambda stream, update: stream + update.detach()), (
        lambda stream, update: stream.detach() + update
    )


def _one_way(x: Tensor, g: Tensor, sublayer: Sublayer, join: Join, tap: Tap) -> Tensor:
    with torch.enable_grad():
        x = x.clone().requires_grad_()
        y = sublayer(x, join, tap)
        if not y.requires_grad:
            return torch.zeros_like(g)
        (slope,) = torch.autograd.grad(y, x, g, allow_unused=True)
    return torch.zeros_like(g) if slope is None else slope


def by_depth(trace: Trace, loss: Loss, part: str = "") -> list[float]:
    """The length of the gradient at the embedding and behind every block."""
    sites = [f"{part}{site}" for site in stream_sites(trace, part)]
    _, slopes = gradients(trace, loss, sites)
    return [float(slopes[site].double().norm()) for site in sites]


def without_residuals(model: nn.Module) -> nn.Module:
    """The same weights, each layer passing on its own output alone."""
    config = model.config
    assert isinstance(config, ModelConfig)
    other = make_like(model, config.model_copy(update={"residual": False}))
    other.load_state_dict(model.state_dict())
    parameter = next(model.parameters())
    return other.to(parameter.device, parameter.dtype).eval()


def side_by_side(trace: Trace, loss: Loss) -> dict[str, list[float]]:
    """The gradient over depth as the model is, and without its residual connections if it has any."""
    part = parts_of(trace.model)[-1]
    lengths = {"as it is": by_depth(trace, loss, part)}
    if not isinstance(body_of(trace.model, part), Stack):
        return lengths
    bare_model = without_residuals(trace.model)
    bare_trace = record_trace(
        bare_model,
        *trace.inputs,
        sites=("embed", "resid"),
        edits=trace.edits,
        padding_mask=trace.padding_mask,
    )
    return {**lengths, "without residuals": by_depth(bare_trace, loss, part)}
