"""Whether compiling a model pays, and the model as the training loop calls it then."""

import shutil
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

# What torch.compile costs before it gives anything, and the share of a step that it saves: cautious figures
# from the measurements in docs/log.md.
COMPILE_SECONDS = {"cpu": 35.0, "cuda": 25.0}
COMPILE_GAIN = {"cpu": 0.08, "cuda": 0.20}


def compile_pays(steps: int, device: torch.device, measure: Callable[[], float]) -> bool:
    """Whether so many steps win back what compiling costs; `measure` gives the seconds of an eager one."""
    if device.type not in COMPILE_SECONDS or (device.type == "cpu" and not shutil.which("c++")):
        return False
    return steps * measure() * COMPILE_GAIN[device.type] > COMPILE_SECONDS[device.type]


def maybe_compile(model: nn.Module, on: bool, in_place: bool = False) -> Callable[..., Any]:
    """The model as the training loop calls it. Weights are shared with `model` either way."""
    if not on:
        return model
    torch._dynamo.config.fail_on_recompile_limit_hit = True  # else it would fall back to eager in silence
    if in_place:  # for a part that its owner calls
        model.compile()
        return model
    return torch.compile(model)
