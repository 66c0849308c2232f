"""The transformers: stacks of one block.

    ids ──► token embedding (+ positions) ──► block ──► … ──► block ──► norm ──► one vector per position

Decoder, encoder and encoder-decoder differ in the mask of their stack, in what stands on it, and in whether
its blocks look into a memory.

Letters: B batch, T positions, C model width, V vocabulary, L layers.
"""

from dataclasses import replace as changed
from typing import TYPE_CHECKING

from torch import Tensor, nn

from glassformer.models.attention import Attention, CrossAttention, Mask, Mixer
from glassformer.models.block import PLACEMENTS, Block, add, replace
from glassformer.models.ladder import Distance, Projected, QueryKey, Similarity
from glassformer.models.layers import NORMS, make_mlp
from glassformer.models.model import Body, LanguageModel
from glassformer.models.position import Position, make_position
from glassformer.models.state import Cache, Memory
from glassformer.models.tap import Tap, inside, off

if TYPE_CHECKING:
    from glassformer.config.schema import ModelConfig


class Stack(Body):
    """Embedding, blocks and last norm: ids (B, T) to the final residual stream (B, T, C)."""

    def __init__(
        self,
        config: "ModelConfig",
        mask: Mask,
        embedding: nn.Module,
        layers: int | None = None,
        cross: bool = False,
    ):
        super().__init__()
        self.limit = self.context = config.context
        self.mask = mask
        self.embedding = embedding
        self.position = make_position(
            config.position,
            context=config.context,
            width=config.width,
            heads=config.heads,
            head_width=config.head_width,
        )
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(
            make_block(config, self.position, cross) for _ in range(layers or config.layers)
        )
        # Post-norm ends in a norm of its own, and without norms there is none to end in.
        self.norm = make_norm(config) if config.placement in ("pre", "renorm") else nn.Identity()

    def forward(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        state: Cache | None = None,
        tap: Tap = off,
        memory: Memory | None = None,
    ) -> Tensor:
        start, memory = (state.length, state.memory or memory) if state is not None else (0, memory)
        if start + inputs.shape[1] > self.context:
            raise ValueError(f"{start + inputs.shape[1]} tokens are more than the context of {self.context}")
        mask = self.mask if padding_mask is None else changed(self.mask, padding_mask=padding_mask)
        x = self.position.embed(self.embedding(inputs), start)
        x = tap("embed", self.dropout(x))
        for i, block in enumerate(self.blocks):
            x = block(x, mask, state.layers[i] if state is not None else None, inside(tap, i), memory)
        return tap("final", self.norm(x))

    def new_state(self, batch: int, capacity: int | None = None, memory: Memory | None = None) -> Cache:
        return Cache(len(self.blocks), capacity or self.context, memory)


class Decoder(LanguageModel):
    """The decoder-only language model: a stack under a causal mask, and a score for every next token."""

    def __init__(self, config: "ModelConfig"):
        mask = Mask(causal=True, window=config.window)
        body = Stack(config, mask, nn.Embedding(config.vocab, config.width))
        super().__init__(body, config)


def make_block(config: "ModelConfig", position: Position, cross: bool = False) -> Block:
    """A block from the settings: each variant is a component, none is a question asked in `forward`."""
    mlp = make_mlp(config.width, config.hidden, config.activation, config.bias)
    norms = (make_norm(config), make_norm(config))
    join = add if config.residual else replace
    looking = (make_norm(config), make_cross(config)) if cross else None
    attention = make_attention(config, position)
    return Block(attention, mlp, norms, PLACEMENTS[config.placement], join, config.dropout, looking)


def make_attention(config: "ModelConfig", position: Position) -> Mixer:
    c = config
    match c.attention:
        case "similarity":
            return Similarity(c.width, c.heads, position=position, dropout=c.dropout)
        case "projected":
            return Projected(c.width, c.heads, c.head_width, position=position, dropout=c.dropout)
        case "query-key":
            return QueryKey(c.width, c.heads, c.head_width, position=position, dropout=c.dropout)
        case "distance":
            return Distance(c.width, c.heads, c.context, position=position, bias=c.bias, dropout=c.dropout)
        case "full":
            return Attention(
                c.width,
                c.heads,
                position=position,
                kv_heads=c.kv_heads,
                head_width=c.head_width,
                value_width=c.value_width,
                bias=c.bias,
                dropout=c.dropout,
                qk_norm=_qk_norm(c),
            )


def make_cross(config: "ModelConfig") -> CrossAttention:
    return CrossAttention(
        config.width,
        config.heads,
        head_width=config.head_width,
        bias=config.bias,
        dropout=config.dropout,
        qk_norm=_qk_norm(config),
    )


def make_norm(config: "ModelConfig") -> nn.Module:
    if config.placement == "none":
        return nn.Identity()
    return NORMS[config.norm](config.width, bias=config.bias)


def _qk_norm(config: "ModelConfig") -> nn.Module | None:
    kind = "layer" if config.norm == "batch" else config.norm  # of one query there is no batch
    return NORMS[kind](config.head_width, bias=False) if config.qk_norm else None
