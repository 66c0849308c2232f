"""Which keys a query may look at. Every mask of the project is made here, by `Mask.table`.

    causal     no query sees what comes after it
    window     a query sees itself and the window − 1 positions before it (without `causal`, also after it)
    padding    some keys are hidden from all: padding, or a position that is to be left out
    pairs      any mask at all, as a table
    rule       any mask at all, as a function of where query and key stand

What is hidden gets −∞ before the softmax, not a zero after it, so that the visible weights still sum to one.

Letters: B batch, T query positions, S key positions.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Rule = Callable[[Tensor, Tensor], Tensor]  # positions (…, T, 1) and (S) to True where a query may look


@dataclass(frozen=True)
class Mask:
    causal: bool = False
    window: int | None = None
    padding_mask: Tensor | None = None  # (B, S), False hides that key from every query
    pairs: Tensor | None = None  # (T, S) or (B, T, S), False where a query may not look
    rule: Rule | None = None

    def hides_nothing(self, T: int) -> bool:
        return self._plain and (not self.causal or T == 1)

    def is_triangle(self, T: int, S: int) -> bool:
        """The plain causal mask over a whole sequence, which the fused kernels have built in."""
        return self.causal and self._plain and T == S

    @property
    def _plain(self) -> bool:
        return self.padding_mask is None and self.window is None and self.pairs is None and self.rule is None

    def table(self, queries: Tensor, keys: Tensor) -> Tensor:
        """True where a query may look: (T, S), or (B, 1, T, S) when it differs between sequences.

        `queries` (T) or (B, T) and `keys` (S) are the positions at which they stand.
        """
        distance = queries[..., :, None] - keys  # (T, S) or (B, T, S)
        visible = torch.ones_like(distance, dtype=torch.bool)
        if self.causal:
            visible = visible & (distance >= 0)
        if self.window is not None:
            visible = visible & (distance.abs() < self.window)
        if self.pairs is not None:
            visible = visible & self.pairs
        if self.rule is not None:
            visible = visible & self.rule(queries[..., :, None], keys)
        if visible.ndim == 3:
            visible = visible[:, None]  # (B, 1, T, S): the same for all heads
        if self.padding_mask is not None:
            visible = visible & self.padding_mask[:, None, None, :]
        return visible


def last_positions(T: int, S: int, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """Where queries and keys stand when the queries are the last T of S positions, as they mostly are."""
    return torch.arange(S - T, S, device=device), torch.arange(S, device=device)
