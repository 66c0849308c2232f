"""The transformers: stacks of one block.

    ids ──► token embedding (+ positions) ──► block ──► … ──► block ──► norm ──► unembedding ──► logits

Letters: B batch, T positions, C model width, V vocabulary, L layers.
"""

from typing import TYPE_CHECKING

from torch import Tensor, nn

from glassformer.models.attention import Attention, Mask
from glassformer.models.block import PLACEMENTS, Block, add, replace
from glassformer.models.cache import Cache
from glassformer.models.init import initialise
from glassformer.models.layers import NORMS, make_mlp
from glassformer.models.model import LanguageModel
from glassformer.models.position import Position, make_position
from glassformer.models.tap import Tap, inside, off

if TYPE_CHECKING:  # the models take any object with these settings; pydantic stays out of this folder
    from glassformer.config import ModelConfig


class Stack(nn.Module):
    """Embedding, blocks and last norm: ids (B, T) to the final residual stream (B, T, C)."""

    def __init__(self, config: "ModelConfig"):
        super().__init__()
        self.context = config.context
        self.embedding = nn.Embedding(config.vocab, config.width)
        self.position = make_position(
            config.position,
            context=config.context,
            width=config.width,
            heads=config.heads,
            head_width=config.head_width,
        )
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(make_block(config, self.position) for _ in range(config.layers))
        # Post-norm ends in a norm of its own, and without norms there is none to end in.
        self.norm = make_norm(config) if config.placement in ("pre", "renorm") else nn.Identity()

    def forward(self, ids: Tensor, mask: Mask, cache: Cache | None = None, tap: Tap = off) -> Tensor:
        start = cache.length if cache is not None else 0
        if start + ids.shape[1] > self.context:
            raise ValueError(f"{start + ids.shape[1]} tokens are more than the context of {self.context}")
        x = self.position.embed(self.embedding(ids), start)
        x = tap("embed", self.dropout(x))
        for i, block in enumerate(self.blocks):
            x = block(x, mask, cache.layers[i] if cache is not None else None, inside(tap, i))
        return tap("final", self.norm(x))


class Decoder(LanguageModel):
    """The decoder-only language model: a stack under a causal mask, and a score for every next token."""

    def __init__(self, config: "ModelConfig"):
        super().__init__()
        self.config = config
        self.context, self.vocab = config.context, config.vocab
        self.mask = Mask(causal=True, window=config.window)
        self.stack = Stack(config)
        self.unembedding = nn.Linear(config.width, config.vocab, bias=False)
        initialise(self, config.init)
        if config.tied:
            self.unembedding.weight = self.stack.embedding.weight
        elif config.init == "fan-in":
            nn.init.zeros_(self.unembedding.weight)  # the first prediction is the uniform one

    def forward(self, ids: Tensor, cache: Cache | None = None, tap: Tap = off) -> Tensor:
        x = self.stack(ids, self.mask, cache, tap)
        return tap("logits", self.unembedding(x))

    def new_cache(self, batch: int, capacity: int | None = None) -> Cache:
        c = self.config
        widths = (c.head_width, c.value_width)
        like = self.stack.embedding.weight
        return Cache.empty(c.layers, batch, c.kv_heads, capacity or c.context, widths, like)


def make_block(config: "ModelConfig", position: Position) -> Block:
    """A block from the settings: each variant is a component, none is a question asked in `forward`."""
    attention = Attention(
        config.width,
        config.heads,
        position=position,
        kv_heads=config.kv_heads,
        head_width=config.head_width,
        value_width=config.value_width,
        bias=config.bias,
        dropout=config.dropout,
        qk_norm=NORMS[config.norm](config.head_width, bias=False) if config.qk_norm else None,
    )
    mlp = make_mlp(config.width, config.hidden, config.activation, config.bias)
    norms = (make_norm(config), make_norm(config))
    join = add if config.residual else replace
    return Block(attention, mlp, norms, PLACEMENTS[config.placement], join, config.dropout)


def make_norm(config: "ModelConfig") -> nn.Module:
    if config.placement == "none":
        return nn.Identity()
    return NORMS[config.norm](config.width, bias=config.bias)
