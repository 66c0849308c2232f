"""One block, for every transformer of the project.

                    ┌───────────────────────────┐      ┌─────────────────────┐
    stream  x ──────┤                           + ─────┤                     + ─────►  stream
                    └──► norm ──► attention ────┘      └──► norm ──► MLP ────┘

Attention moves information between positions; the MLP works on each position by itself. Both only add to
the stream that runs past them. The picture is `pre`, where the norm stands before each layer; where it
stands is a choice, and so is whether there is a stream at all (`join`). In the decoder of a translator a
third layer of the same kind stands between the two, a cross-attention that looks into the source sentence.

Letters: B batch, T positions, C model width.
"""

from collections.abc import Callable

from torch import Tensor, nn

from glassformer.models.attention import CrossAttention, Mask, Mixer
from glassformer.models.layers import MLP, GatedMLP
from glassformer.models.state import LayerCache, Memory
from glassformer.models.tap import Tap, inside, off

Layer = Callable[[Tensor], Tensor]
Join = Callable[[Tensor, Tensor], Tensor]


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


PLACEMENTS = {"pre": pre, "post": post, "renorm": renorm, "none": bare}


def add(stream: Tensor, update: Tensor) -> Tensor:
    """The residual connection."""
    return stream + update


def replace(stream: Tensor, update: Tensor) -> Tensor:
    """What is left without it: each layer passes on its own output alone."""
    return update


class Block(nn.Module):
    def __init__(
        self,
        attention: Mixer,
        mlp: MLP | GatedMLP,
        norms: tuple[nn.Module, nn.Module],
        placement: Callable[[Tensor, Layer, Layer, Join], Tensor] = pre,
        join: Join = add,
        dropout: float = 0.0,
        cross: tuple[nn.Module, CrossAttention] | None = None,
    ):
        super().__init__()
        self.attention, self.mlp = attention, mlp
        self.attention_norm, self.mlp_norm = norms
        self.placement, self.join = placement, join
        self.dropout = nn.Dropout(dropout)
        self.cross_norm, self.cross = cross or (None, None)

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        cache: LayerCache | None = None,
        tap: Tap = off,
        memory: Memory | None = None,
    ) -> Tensor:
        def attention(h: Tensor) -> Tensor:
            return self.dropout(self.attention(h, mask, cache, tap))

        def mlp(h: Tensor) -> Tensor:
            return self.dropout(self.mlp(h, tap))

        x = tap("resid_mid", self.placement(x, self.attention_norm, attention, self.join))
        if self.cross is not None and memory is not None:
            x = self._look_into(memory, x, cache, tap)
        return tap("resid", self.placement(x, self.mlp_norm, mlp, self.join))

    def _look_into(self, memory: Memory, x: Tensor, cache: LayerCache | None, tap: Tap) -> Tensor:
        assert self.cross is not None and self.cross_norm is not None

        def cross(h: Tensor) -> Tensor:
            assert self.cross is not None
            return self.dropout(self.cross(h, memory, cache, inside(tap, "cross")))

        return tap("resid_cross", self.placement(x, self.cross_norm, cross, self.join))


def residual_outputs(block: Block) -> list[nn.Linear]:
    """The matrices that write into the stream; initialisation scales them with depth."""
    layers = (block.attention, block.cross)
    outs = [out for layer in layers if isinstance(out := getattr(layer, "out", None), nn.Linear)]
    return [*outs, block.mlp.down]
