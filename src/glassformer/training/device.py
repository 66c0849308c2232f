"""Where and how the arithmetic is done: device, precision, and whether compiling pays."""

import ctypes
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from glassformer.core.errors import UsageError

if TYPE_CHECKING:
    from glassformer.config.schema import TrainingConfig

# What torch.compile costs before it gives anything, and the share of a step that it saves: cautious figures
# from the measurements in docs/log.md.
COMPILE_SECONDS = {"cpu": 35.0, "cuda": 25.0}
COMPILE_GAIN = {"cpu": 0.08, "cuda": 0.20}


def choose_device(name: str = "auto", local: int = 0) -> torch.device:
    """`auto` is CUDA where there is one, else the CPU; `local`: which process of this machine asks."""
    hold_memory()
    torch.set_flush_denormal(
        True
    )  # numbers below 1e-38 are zero: the processor takes a hundred times as long
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and local and torch.cuda.is_available():
        name = f"cuda:{local % torch.cuda.device_count()}"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"training.device '{name}' cannot be used here: {reason}") from None
    return device


PrecisionName = Literal["auto", "float32", "bf16", "fp16"]


@dataclass(frozen=True)
class Precision:
    """The type that matrix products are done in; weights and sums stay in float32."""

    name: PrecisionName
    device: torch.device

    @classmethod
    def choose(cls, name: PrecisionName, device: torch.device) -> "Precision":
        if name == "auto":
            fits = device.type == "cuda" and torch.cuda.is_bf16_supported()
            name = "bf16" if fits else "float32"
        if name == "fp16" and device.type == "cpu":
            raise UsageError("training.precision fp16 needs a GPU; on a CPU use float32 or bf16")
        return cls(name, device)

    def context(self) -> AbstractContextManager[Any]:
        if self.name == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16 if self.name == "bf16" else torch.float16)

    def scaler(self) -> torch.amp.GradScaler | None:
        """fp16 gradients vanish unless the loss is scaled up first; the other types need nothing."""
        return self.new_scaler() if self.name == "fp16" else None

    def new_scaler(self) -> torch.amp.GradScaler:
        return torch.amp.GradScaler(self.device.type)


def compile_pays(config: "TrainingConfig", device: torch.device, measure: Callable[[], float]) -> bool:
    """Whether this run wins back what compiling costs; `measure` gives the seconds of an eager step."""
    if config.compile != "auto":
        return config.compile == "on"
    if device.type not in COMPILE_SECONDS or (device.type == "cpu" and not shutil.which("c++")):
        return False
    gain = config.steps * measure() * COMPILE_GAIN[device.type]
    return gain > COMPILE_SECONDS[device.type]


@cache
def hold_memory() -> None:
    """Let the C library keep freed memory instead of giving it back and asking anew in every step.

    Activations are freed and allocated again thousands of times; page faults for them took up to a third of
    a step on the CPU. Only glibc knows these two switches; elsewhere nothing happens.
    """
    mmap_threshold, trim_threshold = -3, -1
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(mmap_threshold, 1 << 30)
        libc.mallopt(trim_threshold, 1 << 30)
    except (OSError, AttributeError, TypeError):
        pass


def maybe_compile(model: nn.Module, on: bool, in_place: bool = False) -> Callable[..., Any]:
    """The model as the training loop calls it. Weights are shared with `model` either way."""
    if not on:
        return model
    torch._dynamo.config.fail_on_recompile_limit_hit = True  # else it would fall back to eager in silence
    if in_place:  # for a part that its owner calls
        model.compile()
        return model
    return torch.compile(model)
