"""Where and how the arithmetic is done: the device, and the precision of its products."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch

from glassformer.core.errors import UsageError


def choose_device(name: str = "auto", local: int = 0) -> torch.device:
    """`auto` is CUDA where there is one, else the CPU; `local`: which process of this machine asks."""
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


PrecisionName = Literal["auto", "float32", "bf16", "fp16", "fp8"]
FP8_CAPABILITY = (8, 9)  # of an NVIDIA GPU that multiplies numbers of 8 bits


@cache
def multiplies_bf16(device: torch.device) -> bool:
    """Whether the processor has instructions for products of bfloat16."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    return device.type == "cpu" and torch.cpu._is_avx512_bf16_supported()


def multiplies_fp8(device: torch.device) -> bool:
    """Whether the processor has instructions for products of numbers of 8 bits."""
    nvidia = device.type == "cuda" and not torch.version.hip
    return nvidia and torch.cuda.get_device_capability(device) >= FP8_CAPABILITY


@dataclass(frozen=True)
class Precision:
    """The type that matrix products are done in; weights and sums stay in float32. fp8 is bf16 but for some
    products of the fused step (models/gpu/narrow.py).
    """

    name: PrecisionName
    device: torch.device

    @classmethod
    def choose(cls, name: PrecisionName, device: torch.device, large: bool = False) -> "Precision":
        """`auto` is bf16 where the processor multiplies it, on a CPU only for `large` products."""
        if name == "auto":
            worth = device.type == "cuda" or large
            name = "bf16" if worth and multiplies_bf16(device) else "float32"
        if name == "fp16" and device.type == "cpu":
            raise UsageError("training.precision fp16 needs a GPU; on a CPU use float32 or bf16")
        if name == "fp8" and not multiplies_fp8(device):
            raise UsageError(
                "training.precision fp8 needs an NVIDIA GPU that multiplies numbers of 8 bits (Ada, Hopper "
                "or newer); use bf16"
            )
        return cls(name, device)

    def context(self) -> AbstractContextManager[Any]:
        if self.name == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, torch.float16 if self.name == "fp16" else torch.bfloat16)

    def scaler(self) -> torch.amp.GradScaler | None:
        """fp16 gradients vanish unless the loss is scaled up first; the other types need nothing."""
        return self.new_scaler() if self.name == "fp16" else None

    def new_scaler(self) -> torch.amp.GradScaler:
        return torch.amp.GradScaler(self.device.type)
