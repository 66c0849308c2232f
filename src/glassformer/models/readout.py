"""What stands on a body: labels for each position, or one for the whole sequence.

Letters: B batch, T positions, C model width, N outputs.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from glassformer.models.dropout import DROPOUTS, Dropout
from glassformer.models.tap import Tap, off


class Head(nn.Module, ABC):
    """(B, T, C) to scores; `padding_mask` (B, T) is False for padding."""

    kind: str  # label, labels or tokens
    linear: nn.Linear  # the last of it

    @abstractmethod
    def forward(self, x: Tensor, padding_mask: Tensor | None, tap: Tap = off) -> Tensor: ...


class EachPosition(Head):
    """Scores (B, T, N) for every position by itself: tags, or the tokens behind a mask."""

    def __init__(
        self, width: int, outputs: int, kind: str = "labels", dropout: float = 0.0, over: str = "position"
    ):
        super().__init__()
        self.kind = kind
        self.dropout = DROPOUTS[over](dropout)
        self.linear = nn.Linear(width, outputs)

    def forward(self, x: Tensor, padding_mask: Tensor | None, tap: Tap = off) -> Tensor:
        return self.linear(self.dropout(x))


class Pooling(nn.Module, ABC):
    """Which positions speak for the whole: weights (B, T) that sum to one and leave padding out.

    `padding_mask` (B, T) is True where a position is real. Counting is in float32: bfloat16 stops at 256.
    """

    @abstractmethod
    def forward(self, x: Tensor, padding_mask: Tensor) -> Tensor: ...


class Mean(Pooling):
    def forward(self, x: Tensor, padding_mask: Tensor) -> Tensor:
        return padding_mask.float() / padding_mask.sum(dim=1, keepdim=True)


class First(Pooling):
    def forward(self, x: Tensor, padding_mask: Tensor) -> Tensor:
        return torch.eye(padding_mask.shape[1], device=x.device)[:1].expand(padding_mask.shape)


class Last(Pooling):
    """The last position that is no padding: where a recurrent model has read everything."""

    def forward(self, x: Tensor, padding_mask: Tensor) -> Tensor:
        last = padding_mask.sum(dim=1, keepdim=True) - 1
        return torch.zeros(padding_mask.shape, device=x.device).scatter(1, last, 1.0)


class LearnedQuery(Pooling):
    """Attention with one learned query."""

    def __init__(self, width: int):
        super().__init__()
        self.query = nn.Linear(width, 1, bias=False)

    def forward(self, x: Tensor, padding_mask: Tensor) -> Tensor:
        scores = self.query(x).squeeze(-1) / x.shape[-1] ** 0.5
        return scores.float().masked_fill(~padding_mask, float("-inf")).softmax(dim=-1)


class Whole(Head):
    """Scores (B, N) for the sequence: the positions are pooled into one vector."""

    kind = "label"

    def __init__(self, width: int, outputs: int, pooling: Pooling, dropout: float = 0.0):
        super().__init__()
        self.pooling = pooling
        self.dropout = Dropout(dropout)
        self.linear = nn.Linear(width, outputs)

    def forward(self, x: Tensor, padding_mask: Tensor | None, tap: Tap = off) -> Tensor:
        there = (
            torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
            if padding_mask is None
            else padding_mask
        )
        weights = tap("pool", self.pooling(x, there))
        pooled = torch.einsum("bt,btc->bc", weights.to(x.dtype), x)
        return self.linear(self.dropout(tap("pooled", pooled)))
