"""Masked language modelling: some tokens are hidden; the model sees both sides and says which they were.

Of the tokens of a window 15 % are chosen; of these 80 % become the mask, 10 % a random token, 10 % stay as
they are, so that the model cannot trust what it sees either. Which they are follows from (seed, sample
number).

Letters: B batch, T positions, V vocabulary.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from glassformer.data.batches import windows_of
from glassformer.data.order import fold_seed
from glassformer.data.shards import Tokens
from glassformer.models.tap import Tap, off
from glassformer.objectives.loss import NOT_SCORED, summed_loss
from glassformer.objectives.objective import Batch, Stateless

CHOSEN, MASKED, RANDOM = 0.15, 0.8, 0.1


class MaskedModelling(Stateless):
    name = "masked"

    def __init__(self, tokens: Tokens, context: int, seed: int, mask: int):
        """`mask` is the id of the mask; the ids below it may stand in for a token."""
        self.windows = windows_of(tokens, context - 1, seed)  # a window there has one token more
        self.seed, self.mask = seed, mask

    def batch(self, first: int, count: int) -> Batch:
        ids = self.windows.read(first, count)
        pairs = [hide(row, self.mask, fold_seed(self.seed, first + i)) for i, row in enumerate(ids)]
        inputs, targets = (torch.from_numpy(np.stack(part)) for part in zip(*pairs, strict=True))
        return {"inputs": inputs, "targets": targets}

    def targets(self, batch: Batch) -> int:
        return int((batch["targets"] != NOT_SCORED).sum())

    def tokens(self, batch: Batch) -> int:
        return batch["inputs"].numel()

    def logits(self, model: Callable[..., Tensor], batch: Batch, tap: Tap = off) -> Tensor:
        return model(batch["inputs"], tap=tap)

    def loss(
        self, model: Callable[..., Tensor], batch: Batch, smoothing: float = 0.0, tap: Tap = off
    ) -> Tensor:
        targets = (batch["targets"], smoothing)
        return model(batch["inputs"], tap=tap, readout=summed_loss, readout_args=targets)


def hide(ids: np.ndarray, mask: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A window with some tokens hidden, and what they were; at least one is."""
    draw = np.random.default_rng(seed)
    chosen = draw.random(len(ids)) < CHOSEN
    chosen[draw.integers(len(ids))] |= not chosen.any()
    kind = draw.random(len(ids))
    inputs = np.where(chosen & (kind < MASKED), mask, ids)
    other = chosen & (kind >= MASKED) & (kind < MASKED + RANDOM)
    inputs = np.where(other, draw.integers(0, mask, len(ids)), inputs)
    return inputs, np.where(chosen, ids, NOT_SCORED)
