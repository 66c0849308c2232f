"""What an objective is: where batches come from, and what the model is to get right in them.

The training loop knows objectives by this interface alone. The loss is computed inside the model's `forward`:
an objective hands it over as a readout (models/model.py), which gets the vectors of the body and the head.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from torch import Tensor

from glassformer.models.tap import Tap, off

Batch = dict[str, Tensor]
Recut = Callable[[int, int], tuple[np.ndarray, np.ndarray]]  # (example, seed) → its input and output


class Objective(Protocol):
    name: str
    bytes_per_target: float | None  # of the training text, where a loss can be told in bits per byte

    def batch(self, first: int, count: int) -> Batch:
        """Samples number first … first+count−1 of the run: a pure function, on the CPU."""
        ...

    def targets(self, batch: Batch) -> int:
        """How many predictions the loss of a batch is a sum of."""
        ...

    def tokens(self, batch: Batch) -> int:
        """How many tokens the model reads in a batch, padding left out."""
        ...

    def loss(
        self, model: Callable[..., Tensor], batch: Batch, smoothing: float = 0.0, tap: Tap = off
    ) -> Tensor:
        """The sum of the losses of all targets, in nats."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """What goes from one batch to the next and is not a function of the step: a recurrent state."""
        ...

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        """Take up what `state_dict` gave, after a break."""
        ...


class Padded:
    """An objective whose batches are padded to their longest example, or to few lengths (batches.pad)."""

    few_lengths = False


class Stateless:
    """An objective whose batches have nothing to do with each other."""

    bytes_per_target: float | None = None

    def state_dict(self) -> dict[str, Tensor]:
        """Nothing goes from one batch to the next."""
        return {}

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        """So there is nothing to take up."""
