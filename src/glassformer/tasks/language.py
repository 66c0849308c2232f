"""Language modelling: at every position, the token that comes next (teacher forcing).

Letters: B batch, T positions, V vocabulary.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.models.tap import Tap, off
from glassformer.tasks.task import Batch
from glassformer.text.batches import Windows
from glassformer.text.shards import Tokens


class LanguageModelling:
    name = "language"

    def __init__(self, tokens: Tokens, context: int, seed: int):
        self.windows = Windows(tokens, context, seed)
        self.bytes_per_target = tokens.bytes / max(1, len(tokens))

    def batch(self, first: int, count: int) -> Batch:
        ids = torch.from_numpy(self.windows.read(first, count))
        return {"inputs": ids[:, :-1], "targets": ids[:, 1:]}

    def targets(self, batch: Batch) -> int:
        return batch["targets"].numel()

    def loss(
        self, model: Callable[..., Tensor], batch: Batch, smoothing: float = 0.0, tap: Tap = off
    ) -> Tensor:
        logits = model(batch["inputs"], tap=tap)  # (B, T, V)
        return next_token_loss(logits, batch["targets"], smoothing)


def next_token_loss(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """−log softmax(logits)[target], summed over all positions; half-precision logits are widened first."""
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    return F.cross_entropy(
        logits.flatten(0, -2), targets.flatten(), reduction="sum", label_smoothing=smoothing
    )
