"""Pure functions of the step: how large the learning rate is, and how large the batch."""

from bisect import bisect_right
from itertools import accumulate, pairwise
from math import cos, pi

from glassformer.config.training import TrainingConfig
from glassformer.core.errors import UsageError


def noam(step: int, width: int, warmup: int) -> float:
    """The 2017 paper's learning rate, width^-0.5 · min(n^-0.5, n · warmup^-1.5), n = step + 1."""
    n = step + 1
    return width**-0.5 * min(n**-0.5, n * warmup**-1.5)


def check_schedule(config: TrainingConfig, width: int | None) -> None:
    if config.schedule == "noam" and width is None:
        raise UsageError(
            "training.schedule noam follows from the model's width: give width=… to the trainer, or choose "
            "another schedule"
        )


def learning_rate_factor(config: TrainingConfig, step: int, width: int | None = None) -> float:
    """What the base learning rate is multiplied with at a step (counted from 0).

    Under `noam` the factor is the paper's learning rate itself, so the base rate is 1 there.
    """
    if config.schedule == "noam":
        assert width is not None  # check_schedule
        return noam(step, width, max(config.warmup, 1))
    if step < config.warmup:
        return (step + 1) / config.warmup
    share = (step - config.warmup) / max(1, config.steps - config.warmup)
    floor = config.lr_floor
    match config.schedule:
        case "cosine":
            return floor + (1 - floor) * 0.5 * (1 + cos(pi * min(share, 1.0)))
        case "wsd":  # warm up, stay, decay in a straight line
            start = 1 - config.decay
            return 1.0 if share < start else max(floor, 1 - (1 - floor) * (share - start) / config.decay)
        case "constant":
            return 1.0


class BatchSizes:
    """Sequences per step, growing at the steps that the settings name; and how many came before a step."""

    def __init__(self, first: int, growth: dict[int, int]):
        changes = {0: first, **growth}
        self.starts = sorted(changes)
        self.sizes = [changes[s] for s in self.starts]
        spans = [(b - a) * changes[a] for a, b in pairwise(self.starts)]
        self.before = [0, *accumulate(spans)]

    def size(self, step: int) -> int:
        return self.sizes[bisect_right(self.starts, step) - 1]

    def consumed(self, step: int) -> int:
        """How many sequences the steps before this one have taken."""
        i = bisect_right(self.starts, step) - 1
        return self.before[i] + (step - self.starts[i]) * self.sizes[i]
