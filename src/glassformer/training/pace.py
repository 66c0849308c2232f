"""A training that is to end at a given time: how many steps still fit, from how long they turn out to take.

The plan is made before training from a few steps on an empty machine. Here it is held against what steps,
evaluations and saves take in the end, early enough that a shorter plan changes nothing about the steps that
are done: the learning rate must be what it would have been.
"""

import math
import time
from dataclasses import dataclass

from glassformer.config.training import TrainingConfig
from glassformer.training.schedule import learning_rate_factor

LEAST = 50  # steps below which no model is worth its time
CHECKS = tuple(i / 20 for i in range(1, 20))  # shares of the plan after which it is looked at
AFTER = 3.0  # seconds for what follows the last step besides one more evaluation: the baselines, the plots
AFTER_SHARE = 0.1  # of the whole time, at most: what is over soon is about little


@dataclass
class Pace:
    """When the training has to be over, by time.monotonic(); and how long it may take in all."""

    deadline: float
    seconds: float = math.inf

    def is_due(self, step: int, planned: int) -> bool:
        return any(step == int(share * planned) for share in CHECKS)

    def steps_that_fit(
        self,
        config: TrainingConfig,
        step: int,
        step_seconds: float,
        other_seconds: float,
        evaluations: int,
        width: int | None = None,
        most: int | None = None,
    ) -> int:
        """The steps of a plan that ends in time; the steps that are done allow it.

        `other_seconds` is what was spent between the steps so far, above all on `evaluations`. A plan that
        was shortened in a busy moment grows again, while the rate allows it, to no more than `most`.
        """
        each, evaluation = step_seconds / step, other_seconds / max(1, evaluations)
        left = (
            self.deadline - time.monotonic() - min(AFTER, AFTER_SHARE * self.seconds) - 2 * evaluation
        )  # the last step's, and the whole split's
        fitting = step + int(max(0.0, left) / (each + evaluation / config.eval_every))
        steps = max(fitting, step + 1, LEAST)
        if steps > config.steps:
            longer = min(steps, most or config.steps)
            return longer if _same_so_far(config, longer, step, width) else config.steps
        while steps < config.steps and not _same_so_far(config, steps, step, width):
            steps += 1
        return steps


def _same_so_far(config: TrainingConfig, steps: int, step: int, width: int | None) -> bool:
    """Whether the last step's learning rate, and so all before it, would have been the same in that plan."""
    shorter = config.model_copy(update={"steps": steps})
    now, then = (learning_rate_factor(c, step - 1, width) for c in (config, shorter))
    return now == then
