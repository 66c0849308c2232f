"""Models whose scores are known: a table that is looked up, nothing else."""

import torch
from torch import Tensor, nn

from glassformer.models.tap import Tap, off


class Lookup(nn.Module):
    """Scores (B, T, N) of each position by its own id: row `id` of a table (V, N)."""

    def __init__(self, table: Tensor):
        super().__init__()
        self.table = nn.Parameter(table)

    def forward(self, inputs: Tensor, padding_mask: Tensor | None = None, tap: Tap = off) -> Tensor:
        return self.table[inputs]


class FirstLookup(Lookup):
    """One row of scores (B, N) for a whole sequence, by its first id."""

    def forward(self, inputs: Tensor, padding_mask: Tensor | None = None, tap: Tap = off) -> Tensor:
        return self.table[inputs[:, 0]]


class TranslationLookup(Lookup):
    """Scores (B, T, V) of the next target token by the one before it; the source is not looked at."""

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, source: Tensor, target: Tensor, padding_mask: Tensor | None = None, tap: Tap = off
    ) -> Tensor:
        return self.table[target]


def log_table(*rows: list[float]) -> Tensor:
    """The logits that stand for these probabilities."""
    return torch.tensor(rows, dtype=torch.float32).log()
