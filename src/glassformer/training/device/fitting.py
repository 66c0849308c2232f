"""Which trainings the step on the device is for."""

import torch
from torch import nn

from glassformer.config.training import TrainingConfig
from glassformer.core.device import Precision
from glassformer.core.errors import UsageError
from glassformer.core.triton_kernels import missing
from glassformer.models.gpu.fitting import fits as model_fits
from glassformer.models.gpu.twin import narrow_pairs
from glassformer.models.model import LanguageModel
from glassformer.objectives.language import LanguageModelling
from glassformer.objectives.objective import Objective


def check_fused(
    model: nn.Module, objective: Objective, config: TrainingConfig, precision: Precision, processes: int
) -> None:
    """Refuse what the fused step is not made for, and say what would do."""
    reason = fits(model, objective, config, precision, processes)
    if reason is None:
        return
    if precision.name == "fp8":
        raise UsageError(
            f"training.precision fp8 is for the fused step, which is not for this training: {reason}. Use "
            "bf16."
        )
    raise UsageError(
        f"training.kernels fused is not for this training: {reason}. Leave it out, and it goes by "
        "PyTorch's kernels."
    )


def takes_fused(
    model: nn.Module, objective: Objective, config: TrainingConfig, precision: Precision, processes: int
) -> bool:
    """Whether a training goes by the fused step: on a GPU where it can, elsewhere if it was asked for.

    A run that began with it and goes on in another place (several processes, no Triton) goes on without; its
    environment says so.
    """
    if precision.name == "fp8":
        check_fused(model, objective, config, precision, processes)
        return True
    if config.kernels == "off" or _place_lacks(precision, processes) is not None:
        return False
    if config.kernels == "fused":
        check_fused(model, objective, config, precision, processes)
        return True
    return precision.device.type == "cuda" and fits(model, objective, config, precision, processes) is None


def fits(
    model: nn.Module, objective: Objective, config: TrainingConfig, precision: Precision, processes: int
) -> str | None:
    """Why a training cannot go by the fused step; None: it can."""
    if (lacking := _place_lacks(precision, processes)) is not None:
        return lacking
    if config.kernels == "off":
        return "training.kernels is off"
    if config.compile == "on":
        return "it is not compiled by PyTorch (training.compile is on)"
    if config.optimizer not in ("adamw", "muon"):
        return f"it has no training.optimizer {config.optimizer}, only adamw and muon"
    if type(objective) is not LanguageModelling:
        return "it is for next tokens in windows of a text"
    if precision.device.type == "cuda" and precision.name not in ("bf16", "fp8"):
        return f"on a GPU its products are in bf16, not in {precision.name}"
    if (reason := model_fits(model)) is not None or precision.name != "fp8":
        return reason
    assert isinstance(model, LanguageModel)
    return None if narrow_pairs(model) else "no product of it is for 8 bits (sizes are multiples of 16)"


def _place_lacks(precision: Precision, processes: int) -> str | None:
    """What it needs of where a training runs, whatever is trained."""
    device = precision.device
    if processes > 1:
        return "it is for one process"
    if device.type not in ("cpu", "cuda"):
        return f"it was never tried on {device.type}"
    return missing(device) if device.type == "cuda" else None


def pass_type(precision: Precision) -> torch.dtype:
    """The type that the pass is in."""
    return torch.bfloat16 if precision.name in ("bf16", "fp8") else torch.float32
