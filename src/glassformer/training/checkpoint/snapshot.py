"""What there is to save: a copy of the state of a run as it is after a step, while training goes on."""

import platform
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from glassformer.core.strict_json import dump_json
from glassformer.core.triton_kernels import missing, triton_version
from glassformer.training.checkpoint.weights import unique_state_dict
from glassformer.training.optim import fast_type
from glassformer.training.parallel.layout import is_sharded, local_rows
from glassformer.training.parallel.world import World

FORMAT_VERSION = 1
OFFSETS = "DCP_SHARDING_INFO"  # where PyTorch's distributed checkpoints look for them


@dataclass
class Progress:
    """How far a run has come."""

    step: int = 0  # updates done
    tokens: int = 0  # read in training
    seconds: float = 0.0  # of training, over all its sittings
    best: float | None = None  # lowest criterion on validation data: loss, or error rate
    best_step: int = 0
    since_best: int = 0  # evaluations without a gain worth mentioning
    skipped: int = 0  # fp16 overflows in a row
    scaler: dict[str, Any] = field(default_factory=dict)  # loss scaling under fp16
    rollbacks: int = 0  # times training broke and went back
    lr_scale: float = 1.0  # what they left of the learning rate


@dataclass
class TensorFile:
    """One file to be."""

    tensors: dict[str, Tensor]
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass
class Snapshot:
    """The files that this process writes of a checkpoint; `number`: of this save, where others take part."""

    step: int
    files: dict[str, TensorFile]
    state: dict[str, Any]
    number: int | None = None


def environment(
    device: torch.device,
    compiled: bool,
    kernels: str,
    precision: str,
    layout: str = "one",
    processes: int = 1,
) -> dict[str, Any]:
    """What else bit-identical arithmetic depends on."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "muon": str(fast_type(device)),
        "precision": precision,
        "threads": torch.get_num_threads(),
        "compiled": compiled,
        "kernels": _described(kernels, device),
        "layout": layout,
        "processes": processes,
    }


def _described(kernels: str, device: torch.device) -> str:
    """Whose kernels a run takes (own, fused, graph, PyTorch), and the version of what compiles them."""
    by_kernels = missing(device) is None
    if kernels == "graph":  # the loss and AdamW are our own where they can be
        how = "PyTorch's kernels in graphs" if device.type == "cuda" else "PyTorch's kernels as in graphs"
        return f"{how}, Triton {triton_version()}" if by_kernels else how
    if kernels == "fused":
        return f"fused kernels, Triton {triton_version()}" if by_kernels else "fused formulas"
    return f"own, numba {version('numba')}" if kernels == "own" else kernels


def take_snapshot(
    model: nn.Module,
    optimizers: list[Optimizer],
    progress: Progress,
    environment: dict[str, Any],
    objective_state: dict[str, Tensor],
    world: World,
    number: int = 0,
    settings: dict[str, Any] | None = None,
) -> Snapshot:
    """A copy in memory: what training does next does not reach it."""
    weights, moments = unique_state_dict(model), optimizer_state(model, optimizers)
    files: dict[str, TensorFile] = {}
    if any(is_sharded(t) for t in weights.values()):
        files[f"shard-{world.rank + 1:05d}-of-{world.size:05d}.safetensors"] = _rows(weights | moments, world)
    elif world.is_main:
        files["model.safetensors"] = TensorFile({n: _copy(t) for n, t in weights.items()})
        files["optimizer.safetensors"] = TensorFile({n: _copy(t) for n, t in moments.items()})
    own = "carried.safetensors" if world.size == 1 else f"carried-{world.rank + 1:05d}.safetensors"
    files[own] = TensorFile({n: _copy(t) for n, t in objective_state.items()})
    state = {
        "format_version": FORMAT_VERSION,
        "progress": asdict(progress),
        "environment": environment,
        "settings": settings or {},
    }
    return Snapshot(progress.step, files, state, number if world.size > 1 else None)


def optimizer_state(model: nn.Module, optimizers: list[Optimizer]) -> dict[str, Tensor]:
    """The optimizers' tensors by <optimizer>.<parameter>.<key>."""
    names = {id(p): n for n, p in model.named_parameters()}
    return {
        f"{i}.{names[id(p)]}.{key}": value
        for i, optimizer in enumerate(optimizers)
        for p, state in optimizer.state.items()
        for key, value in state.items()
    }


def _rows(tensors: dict[str, Tensor], world: World) -> TensorFile:
    """The rows that lie here, and where they belong; what every process has, the leader holds."""
    local: dict[str, Tensor] = {}
    places: dict[str, dict[str, list[int]]] = {}
    for name, tensor in tensors.items():
        rows, first = local_rows(tensor)
        if (is_sharded(tensor) or world.is_main) and (rows.numel() or not tensor.numel()):
            local[name] = _copy(rows)
            places[name] = {"saved_offsets": [first, *(0 for _ in rows.shape[1:])][: rows.ndim]}
    return TensorFile(local, {OFFSETS: dump_json(places)})


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)
