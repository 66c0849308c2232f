"""The fixed-window language model: the last n tokens, side by side, through a feed-forward net.

    embeddings of the last n tokens, concatenated ──► layer ──► … ──► one vector ──► scores

What lies further back does not exist for it, and each place in the window has weights of its own: what was
learned of a word in one place is not known in the next. That is what recurrence and attention mended.

Letters: B batch, T positions, C model width, M hidden width, n window.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn

from glassformer.config.model import ModelConfig
from glassformer.models.dropout import Dropout
from glassformer.models.layers import ACTIVATIONS
from glassformer.models.model import Body
from glassformer.models.state import Memory, refuse_ragged
from glassformer.models.tap import Tap, off


class WindowState:
    """The embeddings of the last n − 1 tokens; before the first token there are zeros."""

    def __init__(self, before: Tensor):
        self.before, self.length = before, 0

    def select(self, rows: Tensor) -> None:
        self.before = self.before[rows]

    def state_dict(self) -> dict[str, Tensor]:
        return {"before": self.before}

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        self.before = tensors["before"]


class WindowNet(Body):
    def __init__(self, config: ModelConfig, embedding: nn.Module):
        super().__init__()
        assert config.window is not None
        self.limit, self.width = None, config.width
        self.n = self.span = config.window
        self.embedding_std = 1.0
        self.embedding = embedding
        self.activation = ACTIVATIONS[config.activation]
        self.embedding_dropout = Dropout(config.dropout_of("embedding"))
        self.dropout = Dropout(config.dropout)
        sizes = [config.window * config.width, *[config.hidden] * config.layers]
        self.blocks = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.down = nn.Linear(config.hidden, config.width)

    def forward(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        state: WindowState | None = None,
        tap: Tap = off,
        memory: Memory | None = None,
    ) -> Tensor:
        refuse_ragged(state, padding_mask)
        state = state if state is not None else self.new_state(len(inputs))
        x = self.embedding(inputs)
        if padding_mask is not None:
            x = x * padding_mask[..., None]
        x = tap("embed", self.embedding_dropout(x))  # (B, T, C)
        seen = torch.cat([state.before, x], dim=1)  # (B, n − 1 + T, C)
        state.before = seen[:, seen.shape[1] - (self.n - 1) :]
        state.length += inputs.shape[1]
        h = seen.unfold(1, self.n, 1).transpose(2, 3).flatten(2)  # (B, T, n·C)
        for i, layer in enumerate(self.blocks):
            h = tap(f"{i}.mlp_hidden", self.dropout(self.activation(layer(h))))
        return tap("final", self.down(h))

    def new_state(self, batch: int, capacity: int | None = None, memory: Memory | None = None) -> WindowState:
        return WindowState(self.down.weight.new_zeros(batch, self.n - 1, self.width))
