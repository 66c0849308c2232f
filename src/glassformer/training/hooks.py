"""What the training loop asks of the world around it: to measure, to sample, to show."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from glassformer.training.display import Display, Silent
from glassformer.training.pace import Pace


class Evaluation(Protocol):
    """What an evaluation gives."""

    @property
    def criterion(self) -> float:
        """The lower, the better."""
        ...

    def numbers(self) -> dict[str, float]: ...

    def summary(self) -> str: ...


@dataclass
class Hooks:
    """What the loop asks of the world around it; of none there is no evaluation, and nothing is shown."""

    evaluate: Callable[[], Evaluation] | None = None  # on validation data
    sample: Callable[[], str | None] | None = None  # something by the model as it is
    display: Display = field(default_factory=Silent)
    pace: Pace | None = None  # when it has to be over, if at a given time
    shortened: Callable[[int], None] | None = None  # writes down a plan of fewer steps, for that reason
    start_counts: bool = False  # whether the model is worth measuring before its first step
