"""One block, for every transformer of the project.

                    ┌───────────────────────────┐      ┌─────────────────────┐
    stream  x ──────┤                           + ─────┤                     + ─────►  stream
                    └──► norm ──► attention ────┘      └──► norm ──► MLP ────┘

Attention moves information between positions; the MLP works on each position by itself. Both only add to
the stream that runs past them. The picture is `pre`, where the norm stands before each layer; where it
stands is a choice, and so is whether there is a stream at all (`join`). In the decoder of a translator a
third layer of the same kind stands between the two, a cross-attention that looks into the source sentence.
Attention and MLP may each read through a short convolution (shift.py), which then belongs to the layer.

Letters: B batch, T positions, C model width.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from glassformer.models.attention import CrossAttention, Mixer
from glassformer.models.dropout import Dropout
from glassformer.models.layers import MLP, GatedMLP
from glassformer.models.mask import Mask
from glassformer.models.shift import Shift, Unshifted
from glassformer.models.state import LayerState, Memory
from glassformer.models.tap import Tap, inside, off

Layer = Callable[[Tensor], Tensor]
Join = Callable[[Tensor, Tensor], Tensor]
Placement = Callable[[Tensor, Layer, Layer, Join], Tensor]


def pre(x: Tensor, norm: Layer, layer: Layer, join: Join) -> Tensor:
    """x + f(norm(x)): the stream itself is never normalised, so gradients pass down it unchanged."""
    return join(x, layer(norm(x)))


def post(x: Tensor, norm: Layer, layer: Layer, join: Join) -> Tensor:
    """norm(x + f(x)): as in the 2017 paper; deep stacks of it need a careful warm-up."""
    return norm(join(x, layer(x)))


def renorm(x: Tensor, norm: Layer, layer: Layer, join: Join) -> Tensor:
    """x̄ + f(x̄) with x̄ = norm(x): the residual starts from the normalised input."""
    x = norm(x)
    return join(x, layer(x))


def bare(x: Tensor, norm: Layer, layer: Layer, join: Join) -> Tensor:
    """x + f(x): no norm anywhere."""
    return join(x, layer(x))


PLACEMENTS: dict[str, Placement] = {"pre": pre, "post": post, "renorm": renorm, "none": bare}


def add(stream: Tensor, update: Tensor) -> Tensor:
    """The residual connection."""
    return stream + update


def replace(stream: Tensor, update: Tensor) -> Tensor:
    """What is left without it: each layer passes on its own output alone."""
    return update


@dataclass
class Sublayer:
    """One layer of a block, with its norm: stream in, stream out.

    The forward pass goes through them; whoever takes the backward pass apart does too, with another `join`.
    """

    name: str  # attention, cross or mlp
    site: str  # what the stream behind it is called
    norm: nn.Module
    layer: Callable[[Tensor, Tap], Tensor]
    placement: Placement

    def __call__(self, x: Tensor, join: Join, tap: Tap = off) -> Tensor:
        return tap(self.site, self.placement(x, self.norm, lambda h: self.layer(h, tap), join))  # (B, T, C)


class Block(nn.Module):
    def __init__(
        self,
        attention: Mixer,
        mlp: MLP | GatedMLP,
        norms: tuple[nn.Module, nn.Module],
        placement: Placement = pre,
        join: Join = add,
        dropout: float = 0.0,
        cross: tuple[nn.Module, CrossAttention] | None = None,
        shifts: tuple[Shift, Shift] | None = None,
    ):
        super().__init__()
        self.attention, self.mlp = attention, mlp
        self.attention_norm, self.mlp_norm = norms
        self.placement, self.join = placement, join
        self.dropout = Dropout(dropout)
        self.cross_norm, self.cross = cross or (None, None)
        self.attention_shift, self.mlp_shift = shifts or (Unshifted(), Unshifted())

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        positions: Tensor,
        state: LayerState | None = None,
        tap: Tap = off,
        memory: Memory | None = None,
    ) -> Tensor:
        for sublayer in self.sublayers(mask, positions, state, memory):  # attention, (cross-attention,) MLP
            x = sublayer(x, self.join, tap)  # (B, T, C)
        return x

    def sublayers(
        self, mask: Mask, positions: Tensor, state: LayerState | None = None, memory: Memory | None = None
    ) -> list[Sublayer]:
        """The layers that the stream passes, in order; `positions` (1 or B, T) are where its tokens stand."""

        def attention(h: Tensor, tap: Tap) -> Tensor:
            h = self.attention_shift(h, mask, state)
            return self.dropout(self.attention(h, mask, positions, state, tap))

        def cross(h: Tensor, tap: Tap) -> Tensor:
            assert self.cross is not None and memory is not None
            return self.dropout(self.cross(h, memory, state, inside(tap, "cross")))

        def mlp(h: Tensor, tap: Tap) -> Tensor:
            return self.dropout(self.mlp(self.mlp_shift(h, mask, state), tap))

        layers = [Sublayer("attention", "resid_mid", self.attention_norm, attention, self.placement)]
        if self.cross_norm is not None and memory is not None:
            layers.append(Sublayer("cross", "resid_cross", self.cross_norm, cross, self.placement))
        layers.append(Sublayer("mlp", "resid", self.mlp_norm, mlp, self.placement))
        return layers


def residual_outputs(block: Block) -> list[nn.Linear]:
    """The matrices that write into the stream; initialisation scales them with depth."""
    layers = (block.attention, block.cross)
    outs = [out for layer in layers if isinstance(out := getattr(layer, "out", None), nn.Linear)]
    return [*outs, block.mlp.down]
