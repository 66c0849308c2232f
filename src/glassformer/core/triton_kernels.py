"""Kernels of our own for a GPU, written in Triton: whether they can be used here, and why not.

Triton comes with PyTorch's builds for NVIDIA's GPUs. It compiles a kernel when that is first used and, by the
C compiler of the machine, the function that launches it; both are kept. Without a GPU its interpreter can run
kernels on a CPU, slowly, which is how they are tested (TRITON_INTERPRET=1, `make test-kernels`).

Files that import Triton are in folders called `kernels` under `gpu`; others import those when they need them.
"""

import os
import shutil
import sysconfig
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

LEAST_CAPABILITY = (8, 0)  # bfloat16 products and asynchronous copies
EARLY_CAPABILITY = (9, 0)  # programmatic dependent launch


def missing(device: torch.device) -> str | None:
    """Why there are no own kernels for this device; None: there are."""
    if find_spec("triton") is None:
        return "Triton is not installed"
    if is_interpreted():
        return None
    if device.type != "cuda":
        return f"they are for NVIDIA's GPUs, not for {device.type}"
    if torch.version.hip:
        return "they were not tried on AMD's GPUs"
    if torch.cuda.get_device_capability(device) < LEAST_CAPABILITY:
        return f"{torch.cuda.get_device_name(device)} is too old for them"
    return _lacks_compiler()


def begins_early(device: torch.device) -> dict[str, Any]:
    """What a kernel is launched with that may begin before the one in front has ended, where a GPU can."""
    early = device.type == "cuda" and torch.cuda.get_device_capability(device) >= EARLY_CAPABILITY
    return {"EARLY": early, **({"launch_pdl": True} if early else {})}


def triton_version() -> str:
    """Of what compiles them; its package has more than one name."""
    import triton  # pyright: ignore[reportMissingImports]

    return triton.__version__


def is_interpreted() -> bool:
    """Whether Triton runs kernels on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes")


def next_power_of_2(n: int) -> int:
    """The least that is not below n: what the sizes of blocks are."""
    return 1 << (n - 1).bit_length()


@cache
def _lacks_compiler() -> str | None:
    """Whether Triton finds what it launches kernels with, where it looks for it."""
    named = os.environ.get("CC")
    if not (shutil.which(named) if named else shutil.which("gcc") or shutil.which("clang")):
        return f"Triton needs a C compiler: {named or 'gcc'} was not found"
    scheme = sysconfig.get_default_scheme()
    scheme = "posix_prefix" if scheme == "posix_local" else scheme  # Debian's own, where there are no headers
    if not (Path(sysconfig.get_path("include", scheme)) / "Python.h").exists():
        return "Triton needs Python's headers (on Debian and Ubuntu: apt-get install python3-dev)"
    return None
