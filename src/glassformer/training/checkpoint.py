"""Checkpoints: everything a trajectory depends on, as safetensors and JSON.

    checkpoints/step-00000500/
        model.safetensors       the weights
        optimizer.safetensors   each optimizer's tensors, named <optimizer>.<parameter>.<key>
        carried.safetensors     what goes from batch to batch: the state of a recurrent model (else empty)
        state.json              step, best result, scaler, versions
    checkpoints/latest.json     the name of the newest complete one

What order and randomness need is not here: they follow from (seed, step). A checkpoint is written beside its
place and renamed, so that one which exists is whole.
"""

import json
import os
import platform
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from glassformer.errors import RunError
from glassformer.files import write_atomically, writing
from glassformer.training.optim import fast_type

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


def save_weights(model: nn.Module, path: Path) -> None:
    """The model's weights; a tied matrix is stored once."""
    seen: set[int] = set()
    tensors: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            tensors[name] = tensor.detach().cpu().contiguous()
    _save(tensors, path)


def load_weights(model: nn.Module, path: Path) -> None:
    """Copy weights into the model's own memory, so that they lie as they did in training."""
    fill_weights(model, _load(path), str(path))


def fill_weights(model: nn.Module, tensors: dict[str, Tensor], path: str) -> None:
    """The same from tensors by name; `path` is where they are from."""
    own = model.state_dict()
    tied = {n for n in own if any(own[n].data_ptr() == own[m].data_ptr() for m in tensors if m in own)}
    missing = sorted(set(own) - set(tensors) - tied)
    foreign = sorted(set(tensors) - set(own))
    wrong = [n for n in tensors if n in own and tensors[n].shape != own[n].shape]
    if missing or foreign or wrong:
        detail = "; ".join(
            f"{what}: {', '.join(names[:3])}{' …' if len(names) > 3 else ''}"
            for what, names in (("missing", missing), ("unknown", foreign), ("of another shape", wrong))
            if names
        )
        raise RunError(f"{path} does not fit the model ({detail}).")
    with torch.no_grad():
        for name, tensor in tensors.items():
            own[name].copy_(tensor)


def load_matching(model: nn.Module, path: Path) -> list[str]:
    """Copy the weights of the body, which two tasks can share; returns the parts that stay as they were."""
    tensors, own = _load(path), model.state_dict()
    common = [n for n in tensors if n in own and n.startswith("stack.")]
    wrong = [n for n in common if tensors[n].shape != own[n].shape]
    if wrong or not common:
        if wrong:
            raise RunError(f"{path} does not fit the model (another shape: {wrong[0]}). Leave out model.…")
        raise RunError(f"{path} is of another kind of model: the two have no weights in common.")
    with torch.no_grad():
        for name in common:
            own[name].copy_(tensors[name])
    filled = {own[n].data_ptr() for n in common}
    return sorted({n.partition(".")[0] for n, t in own.items() if t.data_ptr() not in filled})


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
            _save(tensors, draft / "optimizer.safetensors")
            moved = {n: t.detach().cpu().contiguous() for n, t in (carried or {}).items()}
            _save(moved, draft / "carried.safetensors")
            state = {
                "format_version": FORMAT_VERSION,
                "progress": asdict(progress),
                "environment": environment,
            }
            write_atomically(draft / "state.json", json.dumps(state, indent=1))
            if final.exists():
                shutil.rmtree(final)
            draft.replace(final)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    write_atomically(folder / "latest.json", json.dumps({"checkpoint": final.name}))
    for old in sorted(folder.glob("step-*"))[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def latest_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint, whether or not the pointer survived."""
    parts = ("model.safetensors", "optimizer.safetensors", "state.json")
    complete = [
        p
        for p in sorted(folder.glob("step-*"))
        if all((p / part).is_file() and (p / part).stat().st_size for part in parts)
    ]
    return complete[-1] if complete else None


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
    tensors = _load(checkpoint / "optimizer.safetensors")
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
    return progress, made_in, _load(path) if path.is_file() else {}


def _save(tensors: dict[str, Tensor], path: Path) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with writing(path):
        try:
            try:
                save_file(tensors, temporary, metadata={"format": "pt"})
            except SafetensorError as error:  # the library hides the operating system's error in text
                raise _as_os_error(error) from error
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _as_os_error(error: SafetensorError) -> Exception:
    import re

    found = re.search(r"os error (\d+)|code: (\d+)", str(error))
    return OSError(int(found[1] or found[2]), str(error)) if found else error


def _load(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except FileNotFoundError:
        raise RunError(f"{path} is missing.") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise RunError(f"{path} is damaged or no safetensors file: {error}") from None
