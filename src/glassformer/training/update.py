"""From gradients to new weights: check, clip, schedule, optimizers."""

import math

from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_

from glassformer.config.training import TrainingConfig
from glassformer.core.device import Precision
from glassformer.training.checkpoint.snapshot import Progress
from glassformer.training.optim import make_optimizers
from glassformer.training.parallel.layout import Layout

MOST_SKIPPED = 30  # fp16 overflows in a row that are put down to the scale of the loss


class NotFiniteError(Exception):
    """A loss or a gradient that is no number; nothing was applied."""

    def __init__(self, norm: float):
        super().__init__(norm)
        self.norm = norm


class Updates:
    """The optimizers of a run. A gradient that is no number never reaches a weight."""

    def __init__(self, layout: Layout, config: TrainingConfig, precision: Precision):
        self.layout, self.config = layout, config
        self.optimizers = make_optimizers(layout.model, config)
        self.scaler = precision.scaler()

    def backward(self, loss: Tensor) -> None:
        (self.scaler.scale(loss) if self.scaler else loss).backward()

    def apply(self, loss: float, factor: float, progress: Progress) -> float:
        """Move the weights by the gradients they have; returns the gradients' norm before clipping."""
        if self.scaler:
            for optimizer in self.optimizers:
                self.scaler.unscale_(optimizer)
        parameters = [p for p in self.layout.model.parameters() if p.grad is not None]
        total = self.layout.norm([p.grad for p in parameters if p.grad is not None])
        norm = total.item()
        if self.scaler and math.isfinite(loss) and not math.isfinite(norm) and self._skip_overflow(progress):
            return norm
        if not math.isfinite(loss) or not math.isfinite(norm):
            raise NotFiniteError(norm)
        if self.config.clip:
            clip_grads_with_norm_(parameters, self.config.clip, total)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["base_lr"] * factor
            if self.scaler:
                self.scaler.step(optimizer)
            else:
                optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if self.scaler:
            self.scaler.update()
            progress.scaler = self.scaler.state_dict()
        progress.skipped = 0
        return norm

    def forget(self) -> None:
        """Drop the gradients."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)

    def _skip_overflow(self, progress: Progress) -> bool:
        """fp16 gradients that overflow: no optimizer moves, the loss is scaled down. False after too many."""
        assert self.scaler is not None
        progress.skipped += 1
        if progress.skipped > MOST_SKIPPED:
            return False
        self.forget()
        self.scaler.update()
        progress.scaler = self.scaler.state_dict()
        return True
