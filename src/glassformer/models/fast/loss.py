"""Cross-entropy and its gradient for training on a CPU, by compiled loops, in one pass over memory.

Twin of `with_gradient` in objectives/loss.py, where it is called.
"""

import numpy as np
import torch
from torch import Tensor

from glassformer.models.fast.wanted import are_there, are_wanted

LEAST = 1 << 18  # scores, below which other things take the time
LANES = 16  # numbers side by side (core/lanes)


def fits(scores: Tensor) -> bool:
    """Whether the loops are wanted, and made for such scores (n, V)."""
    types = scores.dtype in (torch.float32, torch.bfloat16)
    whole = scores.is_contiguous() and scores.shape[-1] % LANES == 0
    large = scores.numel() >= LEAST and scores.device.type == "cpu"
    return are_wanted() and types and whole and large and are_there()


def into_gradient(scores: Tensor, targets: Tensor, scored: Tensor, smoothing: float) -> Tensor:
    """Each row's loss (n), in float32; the scores (n, V) become the gradient of it."""
    from glassformer.core.lanes import together
    from glassformer.models.fast import entropy

    n, V = scores.shape
    at = targets.long().where(scored, -1).contiguous()
    beyond = scored & ((at < 0) | (at >= V))
    if beyond.any():
        raise IndexError(f"a target of {int(at[beyond][0])} among {V} scores")
    losses = scores.new_empty(n, dtype=torch.float32)
    scratch = scores.new_empty(together.threads() * V, dtype=torch.float32)
    share = scores.new_full((1,), smoothing, dtype=torch.float32)
    plan = np.zeros(entropy.SIZE, np.int64)
    plan[together.PARTS] = -(-n // entropy.AT_ONCE)
    tensors = (x.data_ptr() for x in (scores, at, losses, share, scratch))
    plan[entropy.Plan.ROWS :] = n, V, scores.element_size(), *tensors
    together.run(entropy.entropy, plan)
    return losses
