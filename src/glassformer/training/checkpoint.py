"""Checkpoints: everything a trajectory depends on, as safetensors and JSON.

    checkpoints/step-00000500/
        model.safetensors       the weights
        optimizer.safetensors   each optimizer's tensors, named <optimizer>.<parameter>.<key>
        carried.safetensors     what goes from batch to batch: the state of a recurrent model (else empty)
        state.json              step, best result, scaler, versions
        seal.json               what each of these must hash to (seal.py)
    checkpoints/latest.json     the name of the newest complete one

What order and randomness need is not here: they follow from (seed, step).

A checkpoint is written beside its place: 1. every file, to the disk itself; 2. the seal, then the folder;
3. the folder gets its name, which is one step; 4. the pointer moves; 5. the oldest are dropped. Whatever
happens on the way, the newest one with an unbroken seal is whole, and it is what a run goes on from.
"""

import json
import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from glassformer.errors import RunError
from glassformer.files import sync_folder, write_atomically, writing
from glassformer.training.optim import fast_type
from glassformer.training.seal import broken, put_seal
from glassformer.training.weights import load_tensors, load_weights, save_tensors, save_weights

FORMAT_VERSION = 1


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


def environment(device: torch.device, compiled: bool, precision: str) -> dict[str, Any]:
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
    }


def save_checkpoint(
    folder: Path,
    model: nn.Module,
    optimizers: list[Optimizer],
    progress: Progress,
    environment: dict[str, Any],
    keep: int,
    carried: dict[str, Tensor] | None = None,
) -> Path:
    """Write one checkpoint, move the pointer, then drop the oldest beyond `keep`."""
    final = folder / f"step-{progress.step:08d}"
    for abandoned in folder.glob(".draft-*"):  # by a process that was killed
        shutil.rmtree(abandoned, ignore_errors=True)
    draft = folder / f".draft-{final.name}-{os.getpid()}"
    names = {id(p): n for n, p in model.named_parameters()}
    with writing(final):
        try:
            draft.mkdir(parents=True, exist_ok=True)
            save_weights(model, draft / "model.safetensors")
            tensors = {
                f"{i}.{names[id(p)]}.{key}": value.detach().cpu().contiguous()
                for i, optimizer in enumerate(optimizers)
                for p, state in optimizer.state.items()
                for key, value in state.items()
            }
            save_tensors(tensors, draft / "optimizer.safetensors")
            moved = {n: t.detach().cpu().contiguous() for n, t in (carried or {}).items()}
            save_tensors(moved, draft / "carried.safetensors")
            state = {
                "format_version": FORMAT_VERSION,
                "progress": asdict(progress),
                "environment": environment,
            }
            write_atomically(draft / "state.json", json.dumps(state, indent=1))
            put_seal(draft)
            if broken(final) is not None:  # else this step was saved before, and it is the same
                shutil.rmtree(final, ignore_errors=True)
                draft.replace(final)
            sync_folder(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    write_atomically(folder / "latest.json", json.dumps({"checkpoint": final.name}))
    _prune(folder, final, keep)
    return final


def _prune(folder: Path, newest: Path, keep: int) -> None:
    """Drop the oldest beyond `keep`; and later ones, for the run would not be here if they had been whole."""
    there = sorted(folder.glob("step-*"))
    place = there.index(newest)
    for other in there[: max(0, place + 1 - keep)] + there[place + 1 :]:
        shutil.rmtree(other, ignore_errors=True)


def latest_checkpoint(folder: Path, warn: Callable[[str], None] = lambda _: None) -> Path | None:
    """The newest whole one, whether or not the pointer survived; `warn` is told of those passed over."""
    there = sorted(folder.glob("step-*"), reverse=True)
    reasons: list[str] = []
    for checkpoint in there:
        reason = broken(checkpoint)
        if reason is None:
            for passed in reasons:
                warn(f"{passed}; going on from {checkpoint.name} instead")
            return checkpoint
        reasons.append(f"{checkpoint} is damaged: {reason}")
    if reasons:
        raise RunError(f"{reasons[0]}. No older checkpoint is whole either; start a new run.")
    return None


def load_checkpoint(
    checkpoint: Path, model: nn.Module, optimizers: list[Optimizer]
) -> tuple[Progress, dict[str, Any], dict[str, Tensor]]:
    """Restore weights and optimizers; returns progress, the environment it was made in, what is carried."""
    try:
        state = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
        progress = Progress(**state["progress"])
        made_in = dict(state["environment"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{checkpoint / 'state.json'} cannot be read: {error!r}") from None
    if state.get("format_version") != FORMAT_VERSION:
        raise RunError(f"{checkpoint} was written in format {state.get('format_version')!r}, not 1")
    load_weights(model, checkpoint / "model.safetensors")
    tensors = load_tensors(checkpoint / "optimizer.safetensors")
    parameters = dict(model.named_parameters())
    for full_name, tensor in tensors.items():
        index, _, rest = full_name.partition(".")
        name, _, key = rest.rpartition(".")
        if name not in parameters or int(index) >= len(optimizers):
            raise RunError(f"{checkpoint}: optimizer state for an unknown parameter '{name}'")
        p = parameters[name]
        device = p.device if tensor.ndim else tensor.device
        held = torch.empty_like(tensor, device=device).copy_(tensor)  # aligned as torch allocates
        optimizers[int(index)].state[p][key] = held
    path = checkpoint / "carried.safetensors"
    return progress, made_in, load_tensors(path) if path.is_file() else {}
