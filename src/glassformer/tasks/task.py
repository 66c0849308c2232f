"""What a task is: where its batches come from, and what the model is to get right in them.

The training loop knows tasks by this interface alone.
"""

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from glassformer.models.tap import Tap, off

Batch = dict[str, Tensor]


class Task(Protocol):
    name: str
    bytes_per_target: float  # of the training text, so that a loss can be told in bits per byte

    def batch(self, first: int, count: int) -> Batch:
        """Samples number first … first+count−1 of the run: a pure function, on the CPU."""
        ...

    def targets(self, batch: Batch) -> int:
        """How many predictions the loss of a batch is a sum of."""
        ...

    def loss(
        self, model: Callable[..., Tensor], batch: Batch, smoothing: float = 0.0, tap: Tap = off
    ) -> Tensor:
        """The sum of the losses of all targets, in nats."""
        ...
