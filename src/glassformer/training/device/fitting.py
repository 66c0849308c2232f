"""Which way a training goes: by own kernels, by PyTorch's in graphs, or call by call."""

from typing import Literal

import torch
from torch import nn

from glassformer.config.training import TrainingConfig
from glassformer.core.device import Precision
from glassformer.core.errors import UsageError
from glassformer.core.triton_kernels import missing
from glassformer.models.foreign import foreign_part
from glassformer.models.gpu.fitting import fits as model_fits
from glassformer.models.gpu.twin import narrow_pairs
from glassformer.models.model import LanguageModel
from glassformer.objectives.labelling import Labelling
from glassformer.objectives.language import LanguageModelling, StreamModelling
from glassformer.objectives.masked import MaskedModelling
from glassformer.objectives.objective import Objective
from glassformer.objectives.translation import Translating

Way = Literal["fused", "graph", "calls"]
WAYS: dict[Way, str] = {"fused": "own kernels", "graph": "PyTorch's kernels, a graph for a step"}
OBJECTIVES = LanguageModelling, StreamModelling, MaskedModelling, Labelling, Translating
"""whose losses ask the host nothing"""


def check_kernels(
    model: nn.Module, objective: Objective, config: TrainingConfig, precision: Precision, processes: int
) -> None:
    """Refuse what the step that was asked for is not made for, and say what would do."""
    how = model, objective, config, precision, processes
    if precision.name == "fp8" and config.kernels == "graph":
        raise UsageError("training.precision fp8 is for the fused step, not for training.kernels graph")
    wants_fused = config.kernels == "fused" or precision.name == "fp8"
    reason = fits(*how) if wants_fused else fits_graph(*how) if config.kernels == "graph" else None
    if reason is None:
        return
    if precision.name == "fp8":
        raise UsageError(
            f"training.precision fp8 is for the fused step, which is not for this training: {reason}. Use "
            "bf16."
        )
    raise UsageError(
        f"training.kernels {config.kernels} is not for this training: {reason}. Leave it out, and it goes by "
        "PyTorch's kernels."
    )


def choose_way(
    model: nn.Module, objective: Objective, config: TrainingConfig, precision: Precision, processes: int
) -> Way:
    """On a GPU the first that can be; elsewhere call by call, unless another one was asked for.

    A run that began in one way and goes on in another place (several processes, no Triton) goes on without;
    its environment says so.
    """
    how = model, objective, config, precision, processes
    if precision.name == "fp8":
        check_kernels(*how)
        return "fused"
    if config.kernels == "off" or _place_lacks(precision, processes) is not None:
        return "calls"
    on_gpu = precision.device.type == "cuda"
    if config.kernels == "fused" and (not on_gpu or missing(precision.device) is None):
        check_kernels(*how)
        return "fused"
    if config.kernels == "graph":
        check_kernels(*how)
        return "graph"
    if on_gpu and config.kernels == "auto" and fits(*how) is None:
        return "fused"
    return "graph" if on_gpu and fits_graph(*how) is None else "calls"


def fits(
    model: nn.Module, objective: Objective, config: TrainingConfig, precision: Precision, processes: int
) -> str | None:
    """Why a training cannot go by the fused step; None: it can."""
    if (lacking := _lacks(config, precision, processes)) is not None:
        return lacking
    if config.kernels == "graph":
        return "training.kernels is graph"
    device = precision.device
    if device.type == "cuda" and (lacking := missing(device)) is not None:
        return lacking
    if type(objective) is not LanguageModelling:
        return "it is for next tokens in windows of a text"
    if device.type == "cuda" and precision.name not in ("bf16", "fp8"):
        return f"on a GPU its products are in bf16, not in {precision.name}"
    if (reason := model_fits(model)) is not None or precision.name != "fp8":
        return reason
    assert isinstance(model, LanguageModel)
    return None if narrow_pairs(model) else "no product of it is for 8 bits (sizes are multiples of 16)"


def fits_graph(
    model: nn.Module, objective: Objective, config: TrainingConfig, precision: Precision, processes: int
) -> str | None:
    """Why its steps cannot be graphs of PyTorch's kernels; None: they can."""
    if (lacking := _lacks(config, precision, processes)) is not None:
        return lacking
    if precision.name == "fp16":
        return "the scale of an fp16 loss is decided on between steps"
    if type(objective) not in OBJECTIVES:
        return f"what {type(objective).__name__} asks of the host is not known"
    part = foreign_part(model)
    return None if part is None else f"what {part} asks of the host is not known"


def _lacks(config: TrainingConfig, precision: Precision, processes: int) -> str | None:
    """What a step on the device needs, whatever computes it."""
    if (lacking := _place_lacks(precision, processes)) is not None:
        return lacking
    if config.kernels == "off":
        return "training.kernels is off"
    if config.compile == "on":
        return "it is not compiled by PyTorch (training.compile is on)"
    if config.optimizer not in ("adamw", "muon"):
        return f"it has no training.optimizer {config.optimizer}, only adamw and muon"
    return None


def _place_lacks(precision: Precision, processes: int) -> str | None:
    """What it needs of where a training runs, whatever is trained."""
    if processes > 1:
        return "it is for one process"
    if precision.device.type not in ("cpu", "cuda"):
        return f"it was never tried on {precision.device.type}"
    if precision.device.type == "cuda" and torch.version.hip:
        return "it was never tried on AMD's GPUs"
    return None


def pass_type(precision: Precision) -> torch.dtype:
    """The type that the pass is in."""
    return torch.bfloat16 if precision.name in ("bf16", "fp8") else torch.float32
