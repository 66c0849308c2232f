"""Forward and backward of a step that stays on the device: by own kernels, or by PyTorch's.

    FusedPass   the fused twin (models/gpu): what is dropped follows from seeds in a tensor
    OpenPass    the model itself, whichever: what is dropped follows from PyTorch's generator, whose seed a
                graph reads anew whenever it is replayed

Own kernels are rehearsed, so their step is a graph from the start. PyTorch's get ready when they are first
called: batches of a new shape go through them call by call, and are recorded when they come again.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection

import torch
from torch import Tensor, nn

from glassformer.core.device import Precision
from glassformer.models.fast.wanted import own_loops
from glassformer.models.gpu.loss import own_entropy
from glassformer.models.gpu.twin import Twin
from glassformer.objectives.objective import Batch, Objective


class Pass(ABC):
    """How a step gets its gradients."""

    most_graphs: int  # shapes of batches that are kept recorded
    is_rehearsed: bool  # whether kernels are compiled before the first step

    def __init__(self, objective: Objective, smoothing: float, loops: bool):
        """`loops`: whether the loss, and on a CPU attention, may go by compiled ones."""
        self.objective, self.smoothing, self.loops = objective, smoothing, loops

    @abstractmethod
    def seed(self, seeds: list[int]) -> None:
        """What will be dropped: a seed for each batch. Not part of what is recorded."""

    @abstractmethod
    def loss(self, i: int, batch: Batch) -> Tensor:
        """The sum of the losses of a step's batch number i."""

    def begin(self) -> Collection[int]:
        """A step begins. The ids of the parameters whose gradients it writes over, and does not add to."""
        return ()

    @property
    def is_done(self) -> bool:
        """Whether all those gradients were written."""
        return True


class FusedPass(Pass):
    most_graphs, is_rehearsed = 1, True  # memory for one: batches that grew do not shrink again

    def __init__(self, twin: Twin, objective: Objective, smoothing: float, loops: bool, batches: int):
        """`batches`: how many a step has."""
        super().__init__(objective, smoothing, loops)
        self.twin = twin
        self.seeds = torch.zeros(batches, dtype=torch.int64, device=twin.seed.device)

    def seed(self, seeds: list[int]) -> None:
        pinned = torch.tensor(seeds, pin_memory=self.seeds.device.type == "cuda")
        self.seeds.copy_(pinned, non_blocking=True)

    def loss(self, i: int, batch: Batch) -> Tensor:
        self.twin.seed.copy_(self.seeds[i])
        with own_loops(self.loops):
            return self.objective.loss(self.twin, batch, self.smoothing)

    def begin(self) -> Collection[int]:
        return self.twin.slots.begin_step()

    @property
    def is_done(self) -> bool:
        return self.twin.slots.are_written


class OpenPass(Pass):
    most_graphs, is_rehearsed = 64, False

    def __init__(
        self, model: nn.Module, objective: Objective, smoothing: float, loops: bool, precision: Precision
    ):
        super().__init__(objective, smoothing, loops)
        self.model, self.precision = model, precision

    def seed(self, seeds: list[int]) -> None:
        torch.manual_seed(seeds[0])  # one for all batches, which draw one after the other

    def loss(self, i: int, batch: Batch) -> Tensor:
        with self.precision.context(), own_loops(self.loops), own_entropy():
            return self.objective.loss(self.model, batch, self.smoothing)
