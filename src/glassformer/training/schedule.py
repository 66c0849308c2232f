"""Pure functions of the step: how large the learning rate is, and how large the batch."""

from bisect import bisect_right
from itertools import accumulate, pairwise
from math import cos, pi

from glassformer.config.training import TrainingConfig
from glassformer.core.errors import UsageError

REWARMING = 10  # the part of an extension in which the learning rate rises again, at most


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

    Under `noam` the factor is the paper's learning rate itself, so the base rate is 1 there. A run that was
    made longer (training.extended) goes on as if it had been planned so where the schedule knows no end;
    under one that decays it warms up again, from where the rate had come to, and decays once more.
    """
    if config.schedule == "noam":
        assert width is not None  # check_schedule
        return noam(step, width, max(config.warmup, 1))
    start, end = plan_of(config, step)
    if start == 0 or not decays(config):
        if step < config.warmup:
            return (step + 1) / config.warmup
        return _after_warmup(config, (step - config.warmup) / max(1, end - config.warmup))
    warmup = max(1, min(config.warmup, (end - start) // REWARMING))
    if step < start + warmup:
        before = learning_rate_factor(config, start - 1, width)
        return before + (1 - before) * (step - start + 1) / warmup
    return _after_warmup(config, (step - start - warmup) / max(1, end - start - warmup))


def plan_of(config: TrainingConfig, step: int) -> tuple[int, int]:
    """Where the plan that a step belongs to begins, and where it was to end."""
    start = 0
    for ended, planned in sorted(config.extended.items()):
        if step < ended:
            return start, planned
        start = ended
    return start, config.steps


def decays(config: TrainingConfig) -> bool:
    """Whether the learning rate follows from where the run ends."""
    return config.schedule in ("cosine", "wsd")


def _after_warmup(config: TrainingConfig, share: float) -> float:
    """The factor when so much of what follows the warm-up is done."""
    floor = config.lr_floor
    match config.schedule:
        case "cosine":
            return floor + (1 - floor) * 0.5 * (1 + cos(pi * min(share, 1.0)))
        case "wsd":  # warm up, stay, decay in a straight line
            start = 1 - config.decay
            return 1.0 if share < start else max(floor, 1 - (1 - floor) * (share - start) / config.decay)
        case _:
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
