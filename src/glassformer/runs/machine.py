"""What sizes are chosen for: a device, so many processes, and how fast they turn out to be.

What is measured is measured when it is first asked for, by work that is thrown away and touches no folder.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from glassformer.config.schema import Config
from glassformer.core.device import Precision, PrecisionName, multiplies_bf16
from glassformer.tasks.task import Task
from glassformer.training.timing import seconds_per_step

LARGE_WIDTH = 64  # of a transformer, from which a CPU with bfloat16 products trains faster by them


@dataclass(frozen=True)
class Machine:
    device: torch.device
    processes: int
    seconds_per_step: Callable[[Config], float]  # of one training step of this configuration
    operations_per_second: Callable[[], float]  # that training gets out of the device


def this_machine(task: Task, device: torch.device, processes: int = 1) -> Machine:
    """The machine this runs on, measured with the task's own batches."""

    def measure(config: Config) -> float:
        return measure_step(task, config, device, processes)

    return Machine(device, processes, measure, lambda: measure_operations(device))


def choose_precision(config: Config, device: torch.device) -> PrecisionName:
    """What `auto` means for this configuration."""
    large = config.model.family == "transformer" and config.model.width >= LARGE_WIDTH
    return Precision.choose(config.training.precision, device, large).name


def measure_step(
    task: Task, config: Config, device: torch.device, processes: int = 1, repeats: int = 8
) -> float:
    """Seconds of a training step, by a model that is thrown away; of several processes, one's share."""
    batch, precision = max(1, config.training.batch // processes), choose_precision(config, device)
    training = config.training.model_copy(update={"batch": batch, "precision": precision})
    if processes > 1:  # which have no step on the device
        training = training.model_copy(update={"kernels": "off"})
    with torch.random.fork_rng([]):
        model = task.build(config.model).to(device)
    objective = task.objective(model, config)
    return seconds_per_step(model, objective, training, device, width=config.model.width, repeats=repeats)


def measure_operations(device: torch.device) -> float:
    """A share of a large matrix product's rate."""
    n = 1024 if device.type == "cpu" else 8192
    dtype = torch.bfloat16 if device.type != "cpu" or multiplies_bf16(device) else torch.float32
    a = torch.ones(n, n, device=device, dtype=dtype)
    best = float("inf")
    for _ in range(4):
        began = time.perf_counter()
        (a @ a)[0, 0].item()
        best = min(best, time.perf_counter() - began)
    return 0.5 * 2 * n**3 / best
