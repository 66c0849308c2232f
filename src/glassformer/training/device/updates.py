"""From gradients to new weights without asking the host: twin of `Updates` in ../update.py.

A loss or a gradient that is no number sets a mark, and while it is set nothing moves: no weight, no moment,
no count of steps. The mark stays until the host has read the step that set it, however many were begun since.
So a run stops at that very step, with the weights it began with.
"""

from typing import Any

import torch
from torch import Tensor
from torch.optim import AdamW, Optimizer

from glassformer.config.training import TrainingConfig
from glassformer.core.device import Precision
from glassformer.models.gpu.functions import operations
from glassformer.training.device.adamw import DeviceAdamW
from glassformer.training.device.gradients import FlatGradients
from glassformer.training.device.muon import DeviceMuon
from glassformer.training.optim import Muon
from glassformer.training.parallel.layout import Layout
from glassformer.training.update import Updates


class DeviceUpdates(Updates):
    """AdamW, or Muon with it, whose rates are tensors."""

    def __init__(self, layout: Layout, config: TrainingConfig, precision: Precision):
        super().__init__(layout, config, precision)
        groups = [group for optimizer in self.optimizers for group in optimizer.param_groups]
        self.gradients = FlatGradients([p for group in groups for p in group["params"]])
        device = self.gradients.vector.device
        self.broken = torch.zeros((), device=device)  # 1: since some step the host has not yet read
        self.factor = torch.ones((), device=device)  # of all learning rates, in this step
        self.shrink = torch.ones((), device=device)  # what clipping makes of the gradients, in this step
        how = self.gradients, self.shrink, self.broken, operations(device)
        self.optimizers: list[Optimizer] = [self._on_device(plain, *how) for plain in self.optimizers]
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = torch.tensor(float(group["base_lr"]), device=device)

    @staticmethod
    def _on_device(plain: Optimizer, *how: Any) -> DeviceAdamW | DeviceMuon:
        if isinstance(plain, Muon):
            return DeviceMuon(plain, *how)
        assert isinstance(plain, AdamW)
        return DeviceAdamW(plain, *how)

    @torch.no_grad()
    def move(self, loss: Tensor) -> Tensor:
        """Move the weights by the gradients, if all are numbers; returns their norm before clipping."""
        norm = torch.linalg.vector_norm(self.gradients.vector)
        torch.maximum(self.broken, (~(norm + loss).isfinite()).float(), out=self.broken)
        if self.config.clip:
            self.shrink.copy_((self.config.clip / (norm + 1e-6)).clamp(max=1.0))
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                torch.mul(self.factor, group["base_lr"], out=group["lr"])
            optimizer.step()
        return norm

    def begin_anew(self) -> None:
        """After a broken step, or after a checkpoint was read: what it brought is taken up."""
        for optimizer in self.optimizers:
            assert isinstance(optimizer, (DeviceAdamW, DeviceMuon))
            optimizer.adopt()
        self.gradients.attach()
        self.forget()

    def forget(self) -> None:
        self.gradients.zero()
        self.broken.zero_()
