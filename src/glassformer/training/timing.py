"""How long a step takes, by doing some: no folder, no checkpoint, nothing left behind."""

from statistics import fmean

import torch
from torch import nn

from glassformer.config.training import TrainingConfig
from glassformer.objectives.objective import Objective
from glassformer.training.step import Steps


def seconds_per_step(
    model: nn.Module,
    objective: Objective,
    config: TrainingConfig,
    device: torch.device,
    *,
    width: int | None = None,
    repeats: int = 8,
) -> float:
    """The mean over `repeats` steps of this process alone, after one that warms up; not compiled.

    The steps are real, so hand in a model and an objective that are thrown away. Optimizers and gradients go,
    and torch's random numbers go on as if nothing had happened.
    """
    with torch.random.fork_rng([device] if device.type == "cuda" else [], device_type="cuda"):
        steps = Steps(model, objective, config, device=device, width=width)
        try:
            times = [_seconds(steps, model) for _ in range(1 + repeats)]
        finally:
            steps.reader.close()
            model.zero_grad(set_to_none=True)
    return fmean(times[1:])


def _seconds(steps: Steps, model: nn.Module) -> float:
    """Of the next step, once the device is ready for batches of its shape. Those of a step that is done
    once more would be made beside the one before it.
    """
    seconds: float = steps.step_that_fits(model)["seconds_per_step"]
    while steps.device_step is not None and not steps.device_step.was_ready:
        steps.progress.step -= 1
        seconds = steps.step_that_fits(model)["seconds_per_step"] - steps.reader.waited
        seconds = max(seconds, steps.reader.seconds)
    return seconds
