"""What every language model of the project is to the rest of it, whatever is inside.

Letters: B batch, T positions, V vocabulary.
"""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from glassformer.models.cache import Cache
from glassformer.models.tap import Tap, off


class LanguageModel(nn.Module, ABC):
    context: int  # tokens it can see at once
    vocab: int

    @abstractmethod
    def forward(self, ids: Tensor, cache: Cache | None = None, tap: Tap = off) -> Tensor:
        """Logits (B, T, V) of the token that follows each of ids (B, T).

        With a cache, ids are the new positions only; the cache holds what came before and is extended.
        """

    @abstractmethod
    def new_cache(self, batch: int, capacity: int | None = None) -> Cache:
        """Empty memory for `batch` sequences of at most `capacity` tokens (the context if not given)."""


def parameter_count(model: nn.Module) -> int:
    """Distinct trainable and frozen numbers; a tied matrix counts once."""
    return sum(p.numel() for p in model.parameters())
