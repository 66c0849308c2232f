"""Whether compiling a model pays, and the model as the training loop calls it then."""

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils import deterministic

# What torch.compile costs before it gives anything, and the share of a step that it saves: cautious figures
# from the measurements in docs/log.md.
COMPILE_SECONDS = {"cpu": 35.0, "cuda": 25.0}
COMPILE_GAIN = {"cpu": 0.08, "cuda": 0.20}
SHORT_STEP = 0.05  # seconds of a step as a graph; one that is longer is no longer made of launches


def compile_pays(steps: int, device: torch.device, measure: Callable[[], float], least: float = 0.0) -> bool:
    """Whether so many steps win back what compiling costs; `measure` gives the seconds of one without, of
    which those below `least` have nothing to gain.
    """
    if device.type not in COMPILE_SECONDS or (device.type == "cpu" and not shutil.which("c++")):
        return False
    seconds = measure()
    return seconds >= least and steps * seconds * COMPILE_GAIN[device.type] > COMPILE_SECONDS[device.type]


def maybe_compile(model: nn.Module, on: bool, in_place: bool = False) -> Callable[..., Any]:
    """The model as the training loop calls it. Weights are shared with `model` either way."""
    if not on:
        return model
    torch._dynamo.config.fail_on_recompile_limit_hit = True  # else it would fall back to eager in silence
    if in_place:  # for a part that its owner calls
        model.compile()
        return model
    return torch.compile(model)


@contextmanager
def repeatable(device: torch.device) -> Iterator[None]:
    """On a CPU, two equal steps give equal bits, compiled or not, with any number of threads.

    Left to itself, the compiler has the threads add into the gradient of an embedding as they come, so that
    the order of the sums, and with it the last bits, differs from run to run. It reads this switch while it
    compiles, forward and backward, and guards by it, so it is set around every step.
    """
    if device.type != "cpu":
        yield
        return
    memory: Any = deterministic  # a module with properties, which types do not know
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    _set_deterministic(True, warn_only=True)
    fill, memory.fill_uninitialized_memory = memory.fill_uninitialized_memory, False  # all is written first
    try:
        yield
    finally:
        _set_deterministic(before[0], warn_only=before[1])
        memory.fill_uninitialized_memory = fill


def _set_deterministic(mode: bool, warn_only: bool) -> None:
    """PyTorch's own function tells its compiler too, and imports it for that, if it is not there yet."""
    if "torch._inductor" in sys.modules:
        torch.use_deterministic_algorithms(mode, warn_only=warn_only)
    else:
        torch._C._set_deterministic_algorithms(mode, warn_only=warn_only)
