"""Weights as safetensors: written whole or not at all, read only into a model that they fit."""

import re
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from glassformer.core.errors import RunError
from glassformer.core.files import open_regular, replacing
from glassformer.core.terminal import printable
from glassformer.models.roles import shared_body


def unique_state_dict(model: nn.Module) -> dict[str, Tensor]:
    """What a model is stored as, its parameters and lasting buffers; a tied matrix stands there once."""
    lasting = model.state_dict().keys()
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in lasting}
    return {**dict(model.named_parameters()), **buffers}


def save_weights(model: nn.Module, path: Path) -> None:
    save_tensors({name: tensor.detach().cpu() for name, tensor in unique_state_dict(model).items()}, path)


def load_weights(model: nn.Module, path: Path) -> None:
    """Copy weights into the model's own memory, so that they lie as they did in training."""
    copy_weights(model, load_tensors(path), str(path))


def copy_weights(model: nn.Module, tensors: dict[str, Tensor], path: str) -> None:
    """The same from tensors by name; `path` is where they are from."""
    own = model.state_dict()
    tied = {n for n in own if any(own[n].data_ptr() == own[m].data_ptr() for m in tensors if m in own)}
    missing = sorted(set(own) - set(tensors) - tied)
    foreign = sorted(set(tensors) - set(own))
    wrong = [n for n in tensors if n in own and tensors[n].shape != own[n].shape]
    types = [n for n in tensors if n in own and tensors[n].dtype != own[n].dtype]
    if missing or foreign or wrong or types:
        detail = "; ".join(
            f"{what}: {', '.join(names[:3])}{' …' if len(names) > 3 else ''}"
            for what, names in (
                ("missing", missing),
                ("unknown", foreign),
                ("of another shape", wrong),
                ("of another type", types),
            )
            if names
        )
        raise RunError(f"{path} does not fit the model ({detail}).")
    with torch.no_grad():
        for name, tensor in tensors.items():
            own[name].copy_(tensor)


def load_matching(model: nn.Module, path: Path) -> list[str]:
    """Copy the weights of the body, which two tasks can share; returns the parts that stay as they were."""
    tensors, own = load_tensors(path), model.state_dict()
    common = [n for n in tensors if n in own and n.startswith(shared_body(model))]
    wrong = [n for n in common if (tensors[n].shape, tensors[n].dtype) != (own[n].shape, own[n].dtype)]
    if wrong or not common:
        if wrong:
            raise RunError(
                f"{path} does not fit the model (another shape or type: {wrong[0]}). Leave out model.…"
            )
        raise RunError(f"{path} is of another kind of model: the two have no weights in common.")
    with torch.no_grad():
        for name in common:
            own[name].copy_(tensors[name])
    copied = {own[n].data_ptr() for n in common}
    return sorted({n.partition(".")[0] for n, t in own.items() if t.data_ptr() not in copied})


def save_tensors(
    tensors: dict[str, Tensor],
    path: Path,
    metadata: dict[str, str] | None = None,
    written: Callable[[Path], None] = lambda _: None,
) -> None:
    """Write a file of tensors; `written` is called with it before it takes its place."""
    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
    with replacing(path) as temporary:
        try:
            save_file(whole, temporary, metadata={"format": "pt", **(metadata or {})})
        except SafetensorError as error:  # the library hides the operating system's error in text
            raise _as_os_error(error) from error
        written(temporary)


def _as_os_error(error: SafetensorError) -> Exception:
    match = re.search(r"os error (\d+)|code: (\d+)", str(error))
    return OSError(int(match[1] or match[2]), str(error)) if match else error


def load_tensors(path: Path) -> dict[str, Tensor]:
    try:
        with open_regular(path) as file:
            # The library takes no name that is not UTF-8; an open file has another one.
            plain = printable(str(path)) == str(path)
            return load_file(path if plain else f"/dev/fd/{file.fileno()}")
    except FileNotFoundError:
        raise RunError(f"{path} is missing.") from None
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise RunError(f"{path} is damaged or no safetensors file: {error}") from None
