"""One block, for every transformer of the project.

                    ┌───────────────────────────┐      ┌─────────────────────┐
    stream  x ──────┤                           + ─────┤                     + ─────►  stream
                    └──► norm ──► attention ────┘      └──► norm ──► MLP ────┘

Attention moves information between positions; the MLP works on each position by itself. Both only add to
the stream that runs past them. The picture is `pre`, where the norm stands before each layer; where it
stands is a choice, and so is whether there is a stream at all (`join`).

Letters: B batch, T positions, C model width.
"""

from collections.abc import Callable

from torch import Tensor, nn

from glassformer.models.attention import Attention, Mask
from glassformer.models.cache import LayerCache
from glassformer.models.layers import MLP, GatedMLP
from glassformer.models.tap import Tap, off

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
        attention: Attention,
        mlp: MLP | GatedMLP,
        norms: tuple[nn.Module, nn.Module],
        placement: Callable[[Tensor, Layer, Layer, Join], Tensor] = pre,
        join: Join = add,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.attention, self.mlp = attention, mlp
        self.attention_norm, self.mlp_norm = norms
        self.placement, self.join = placement, join
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Mask, cache: LayerCache | None = None, tap: Tap = off) -> Tensor:
        def attention(h: Tensor) -> Tensor:
            return self.dropout(self.attention(h, mask, cache, tap))

        def mlp(h: Tensor) -> Tensor:
            return self.dropout(self.mlp(h, tap))

        x = tap("resid_mid", self.placement(x, self.attention_norm, attention, self.join))
        return tap("resid", self.placement(x, self.mlp_norm, mlp, self.join))


def residual_outputs(block: Block) -> list[nn.Linear]:
    """The matrices that write into the stream; initialisation scales them with depth."""
    return [block.attention.out, block.mlp.down]
