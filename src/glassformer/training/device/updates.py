"""From gradients to new weights without asking the host: twin of `Updates` in ../update.py.

A loss or a gradient that is no number sets a mark, and while it is set nothing moves: no weight, no moment,
no count of steps. The mark stays until the host has read the step that set it, however many were begun since.
So a run stops at that very step, with the weights it began with.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.optim import AdamW

from glassformer.config.training import TrainingConfig
from glassformer.core.device import Precision
from glassformer.models.gpu.functions import operations
from glassformer.models.roles import Role, roles
from glassformer.training.device.gradients import FlatGradients
from glassformer.training.device.muon import DeviceMuon
from glassformer.training.optim import Muon
from glassformer.training.parallel.layout import Layout
from glassformer.training.update import Updates


class DeviceUpdates(Updates):
    """AdamW, or Muon with it, whose rates are tensors."""

    def __init__(self, layout: Layout, config: TrainingConfig, precision: Precision):
        super().__init__(layout, config, precision)
        role = roles(layout.model)
        trained = [(role[name], p) for name, p in layout.model.named_parameters() if p.requires_grad]
        inner = [p for kind, p in trained if kind == Role.MATRIX]
        self.gradients = FlatGradients([*inner, *(p for kind, p in trained if kind != Role.MATRIX)])
        device = self.gradients.vector.device
        self.operations = operations(device)
        self.broken = torch.zeros((), device=device)  # 1: since some step the host has not yet read
        self.factor = torch.ones((), device=device)  # of all learning rates, in this step
        self.optimizers = [
            DeviceMuon(optimizer, self.gradients, self.broken) if isinstance(optimizer, Muon) else optimizer
            for optimizer in self.optimizers
        ]
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = torch.tensor(float(group["base_lr"]), device=device)
            if isinstance(optimizer, AdamW):
                optimizer.found_inf = self.broken  # type: ignore[attr-defined]  # its kernel then moves nothing

    @contextmanager
    def captured(self) -> Iterator[None]:
        """Around the recording of a graph, which PyTorch's optimizers want to know about."""
        groups = [group for o in self.optimizers if isinstance(o, AdamW) for group in o.param_groups]
        for group in groups:
            group["capturable"] = True
        try:
            yield
        finally:
            for group in groups:
                group["capturable"] = False

    @torch.no_grad()
    def move(self, loss: Tensor) -> Tensor:
        """Move the weights by the gradients, if all are numbers; returns their norm before clipping."""
        vector = self.gradients.vector
        norm = torch.linalg.vector_norm(vector)
        torch.maximum(self.broken, (~(norm + loss).isfinite()).float(), out=self.broken)
        factor = torch.ones_like(norm)
        if self.config.clip:
            factor = (self.config.clip / (norm + 1e-6)).clamp(max=1.0)
        self.operations.tame(vector, factor, self.broken)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                torch.mul(self.factor, group["base_lr"], out=group["lr"])
            optimizer.step()
        return norm

    def begin_anew(self) -> None:
        """After a broken step, or after a checkpoint was read: what it brought is taken up."""
        for optimizer in self.optimizers:
            if isinstance(optimizer, DeviceMuon):
                optimizer.adopt()
        self.gradients.attach()
        self.forget()

    def forget(self) -> None:
        self.gradients.vector.zero_()
        self.broken.zero_()
