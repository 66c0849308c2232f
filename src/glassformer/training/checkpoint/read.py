"""Back from a checkpoint: weights, optimizers and what is carried, however they lay when it was written.

A checkpoint of one process is read into one process as it is. In every other case PyTorch's distributed
reader brings the rows to where they belong now, on any number of processes.
"""

import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.optim import Optimizer

from glassformer.core.errors import RunError
from glassformer.core.files import read_json
from glassformer.training.checkpoint.snapshot import FORMAT_VERSION, Progress, optimizer_state
from glassformer.training.checkpoint.weights import copy_weights, load_tensors, unique_state_dict
from glassformer.training.parallel.layout import is_sharded


def read_progress(checkpoint: Path) -> Progress:
    """How far the run had come."""
    return _read_state(checkpoint)[0]


def _read_state(checkpoint: Path) -> tuple[Progress, dict[str, Any]]:
    """The progress, and the environment it was made in."""
    try:
        state = read_json(checkpoint / "state.json")
        progress = Progress(**state["progress"])
        environment = dict(state["environment"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{checkpoint / 'state.json'} cannot be read: {error!r}") from None
    if state.get("format_version") != FORMAT_VERSION:
        raise RunError(
            f"{checkpoint} was written in format {state.get('format_version')!r}, not {FORMAT_VERSION}"
        )
    return progress, environment


def load_checkpoint(
    checkpoint: Path, model: nn.Module, optimizers: list[Optimizer]
) -> tuple[Progress, dict[str, Any], dict[str, Tensor]]:
    """Restore weights and optimizers; returns progress, the environment it was made in, what is carried."""
    progress, environment = _read_state(checkpoint)
    for optimizer in optimizers:
        optimizer.state.clear()  # of a run that goes back, more may be there than was then
    if any(is_sharded(p) for p in model.parameters()) or any(checkpoint.glob("shard-*")):
        _load_rows(checkpoint, model, optimizers)
    else:
        copy_weights(
            model, load_tensors(checkpoint / "model.safetensors"), str(checkpoint / "model.safetensors")
        )
        parameters = dict(model.named_parameters())
        for name, tensor in load_tensors(checkpoint / "optimizer.safetensors").items():
            _place(checkpoint, parameters, optimizers, name, tensor.shape, tensor.dtype).copy_(tensor)
    objective_state: dict[str, Tensor] = {}
    for path in sorted(checkpoint.glob("carried*.safetensors")):
        objective_state |= load_tensors(path)
    return progress, environment, objective_state


def _place(
    checkpoint: Path,
    parameters: dict[str, nn.Parameter],
    optimizers: list[Optimizer],
    full_name: str,
    shape: torch.Size,
    dtype: torch.dtype,
) -> Tensor:
    """A new tensor in the state of an optimizer, as torch allocates them, for what is stored under a name."""
    index, _, rest = full_name.partition(".")
    name, _, key = rest.rpartition(".")
    p = parameters.get(name)
    if p is None or not index.isdecimal() or int(index) >= len(optimizers):
        raise RunError(f"{checkpoint}: optimizer state for an unknown parameter '{name}'")
    if shape == p.shape:
        tensor = torch.empty_like(p, dtype=dtype, requires_grad=False)
    else:
        tensor = torch.empty(shape, dtype=dtype, device=p.device)
    optimizers[int(index)].state[p][key] = tensor
    return tensor


def _load_rows(checkpoint: Path, model: nn.Module, optimizers: list[Optimizer]) -> None:
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata
    from torch.distributed.checkpoint.state_dict_loader import load

    shards = sorted(path.name for path in checkpoint.glob("shard-*.safetensors"))
    if shards and len(shards) != int(shards[0].partition("-of-")[2].partition(".")[0] or 0):
        raise RunError(f"{checkpoint} lacks shards: there are {', '.join(shards)}.")
    try:
        reader = HuggingFaceStorageReader(str(checkpoint))
        metadata = reader.read_metadata().state_dict_metadata
        stored = {n: d for n, d in metadata.items() if isinstance(d, TensorStorageMetadata)}
        own, parameters = unique_state_dict(model), dict(model.named_parameters())
        missing = sorted(set(own) - set(stored))
        wrong = [n for n, t in own.items() if n in stored and stored[n].size != t.shape]
        if missing or wrong:
            what = f"missing: {missing[0]}" if missing else f"of another shape: {wrong[0]}"
            raise RunError(f"{checkpoint} does not fit the model ({what}).")
        for name, entry in stored.items():
            if name not in own and name.partition(".")[0].isdecimal():
                _place(checkpoint, parameters, optimizers, name, entry.size, entry.properties.dtype)
        tensors = {n: t.detach() for n, t in {**own, **optimizer_state(model, optimizers)}.items()}
        with warnings.catch_warnings():  # that it reads for this process alone, as it is meant to
            warnings.simplefilter("ignore")
            load(tensors, storage_reader=HuggingFaceStorageReader(str(checkpoint)), no_dist=True)
    except (SafetensorError, OSError, ValueError, KeyError, AssertionError) as error:
        raise RunError(f"{checkpoint} is damaged: {error}") from None
