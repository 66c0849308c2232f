"""The transformer's body: a stack of one block.

    ids ──► token embedding (+ positions) ──► block ──► … ──► block ──► norm ──► one vector per position

Decoder, encoder and encoder-decoder (build.py) differ in the mask of their stack, in what stands on it, and
in whether its blocks look into a memory.

Letters: B batch, T positions, C model width, V vocabulary, L layers.
"""

from collections.abc import Iterable
from dataclasses import replace as changed

import torch
from torch import Tensor, nn

from glassformer.models.block import Block
from glassformer.models.dropout import Dropout
from glassformer.models.mask import Mask
from glassformer.models.model import Body
from glassformer.models.position import Position
from glassformer.models.shift import Shift, Unshifted
from glassformer.models.state import Cache, Memory
from glassformer.models.tap import Tap, inside, off


class Stack(Body):
    """Embedding, blocks and last norm: ids (B, T) to the final residual stream (B, T, C)."""

    divisible = True

    def __init__(
        self,
        embedding: nn.Module,
        position: Position,
        blocks: Iterable[Block],
        norm: nn.Module,
        *,
        mask: Mask,
        context: int,
        dropout: float = 0.0,
        shift: Shift | None = None,
    ):
        super().__init__()
        self.limit = self.context = context
        self.mask = mask
        self.embedding, self.position = embedding, position
        self.dropout = Dropout(dropout)
        self.shift = shift or Unshifted()
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm

    def forward(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        state: Cache | None = None,
        tap: Tap = off,
        memory: Memory | None = None,
    ) -> Tensor:
        """With a state, `padding_mask` (B, T) is False where a row has no more new tokens."""
        T, device = inputs.shape[1], inputs.device
        length = 0 if state is None else state.length
        if length + T > self.context:
            raise ValueError(f"{length + T} tokens are more than the context of {self.context}")
        if state is None:
            positions = torch.arange(T, device=device)[None]  # (1, T)
            mask = self.mask if padding_mask is None else changed(self.mask, padding_mask=padding_mask)
        else:
            positions = state.lengths.positions(T, device)  # (1 or B, T)
            mask, memory = self.mask, state.memory or memory
        x = self.position.embed(self.embedding(inputs), positions)  # (B, T, C)
        x = self.shift(x, mask, None if state is None else state.layers[0])  # (B, T, C)
        x = tap("embed", self.dropout(x))  # (B, T, C)
        for i, block in enumerate(self.blocks):
            layer = None if state is None else state.layers[i]
            x = block(x, mask, positions, layer, inside(tap, i), memory)  # (B, T, C)
        if state is not None:
            state.lengths.advance(T, padding_mask)
        return tap("final", self.norm(x))  # (B, T, C)

    def new_state(self, batch: int, capacity: int | None = None, memory: Memory | None = None) -> Cache:
        return Cache(len(self.blocks), capacity or self.context, memory)
