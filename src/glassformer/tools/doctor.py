"""Does this machine compute what it should? A fixed model on its device, beside the same in double precision.

A backend that is silently wrong does not crash; it trains badly. So a small model goes forward, backward, one
step and through a generation on the device that would be chosen, and every result is compared with that of a
CPU in float64. Then the same in the other number types, and compiled.
"""

import copy
import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.config.model import ModelConfig
from glassformer.core.device import Precision, choose_device, multiplies_bf16
from glassformer.core.errors import GlassformerError
from glassformer.core.files import cache_dir, remove, write_atomically
from glassformer.core.triton_kernels import missing
from glassformer.generation.engine import Engine
from glassformer.generation.open_step import open_step
from glassformer.generation.request import Request
from glassformer.generation.sampling import Sampler
from glassformer.models.build import Decoder
from glassformer.models.fast.attention import has_wide_registers
from glassformer.models.fast.wanted import have_threads
from glassformer.runs.machine import LARGE_WIDTH

LIMITS = {torch.float32: 1e-4, torch.bfloat16: 0.1, torch.float16: 0.02}  # of the largest value
PACKAGES = ("glassformer", "torch", "numpy", "numba", "safetensors", "regex")


@dataclass
class Check:
    name: str
    passed: bool
    found: str  # how far off it is, or why it could not be done


def facts(device: torch.device) -> dict[str, str]:
    """Versions, and what would be chosen here."""
    entries = {"python": platform.python_version(), "system": platform.platform()}
    for name in PACKAGES:
        try:
            entries[name] = version(name)
        except PackageNotFoundError:
            entries[name] = "not installed"
    entries["device"] = str(device)
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory / 1e9
        entries["gpu"] = f"{torch.cuda.get_device_name(device)}, {memory:.0f} GB, CUDA {torch.version.cuda}"
        lacking = missing(device)
        entries["own kernels"] = (
            f"cannot be used: {lacking}"
            if lacking
            else "for training in bf16 and for generation, where a model fits (see docs/training.md)"
        )
    entries["cpu"] = f"{torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads"
    entries["precision"] = Precision.choose("auto", device).name
    if device.type == "cpu" and multiplies_bf16(device):
        entries["precision"] = (
            f"float32; bf16 for transformers of width {LARGE_WIDTH} and more, which this CPU multiplies"
        )
    if device.type == "cpu":
        entries["attention"] = "PyTorch's kernel"
        if have_threads():
            entries["attention"] = (
                "own loops where a text is trained on"
                if has_wide_registers()
                else "PyTorch's kernel; own loops with dropout (without AVX-512 they are no faster)"
            )
    entries["compiler"] = shutil.which("c++") or "none: torch.compile cannot be used on a CPU"
    return entries


def examine(device_name: str = "auto") -> tuple[dict[str, str], list[Check]]:
    device = choose_device(device_name)
    model = _model()
    ids = torch.randint(100, (2, 24), generator=torch.Generator().manual_seed(1))
    reference = _results(copy.deepcopy(model).double(), ids)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        checks = _compare(model, ids, reference, device, torch.float32)
        for dtype in (torch.bfloat16, torch.float16):
            if dtype == torch.bfloat16 or device.type == "cuda":
                checks += _compare(model, ids, reference, device, dtype)[:2]
        checks.append(_compiled(model, ids, reference, device))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    return facts(device), [*checks, _cache(), _disk()]


def _model() -> Decoder:
    torch.manual_seed(0)
    model = Decoder(ModelConfig(layers=2, heads=4, width=64, context=48, vocab=100))
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.05 * torch.randn_like(p))
    return model.eval()


def _results(model: Decoder, ids: Tensor, run: Callable[..., Any] | None = None) -> dict[str, Any]:
    """Logits, gradients, weights after a step, and the tokens of a greedy generation."""
    logits = model(ids) if run is None else run(ids)
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(loss, parameters)
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    for p, g in zip(parameters, gradients, strict=True):
        p.grad = g
    optimizer.step()
    tokens: list[int] = []
    greedy = Request(ids[0, :4].tolist(), 16, Sampler(0.0), on_token=lambda token: tokens.append(token.id))
    Engine(open_step(model)).write(greedy)
    return {
        "forward": logits.detach(),
        "backward": torch.cat([g.flatten() for g in gradients]),
        "a step": torch.cat([p.detach().flatten() for p in parameters]),
        "a generation": tokens,
    }


def _compare(
    model: Decoder, ids: Tensor, reference: dict[str, Any], device: torch.device, dtype: torch.dtype
) -> list[Check]:
    name = str(dtype).removeprefix("torch.")
    try:
        result = _results(copy.deepcopy(model).to(device, dtype), ids.to(device))
    except RuntimeError as error:  # what a device cannot do it says so; that is a finding
        return [Check(f"{name}", False, str(error).splitlines()[0])]
    checks: list[Check] = []
    for what, value in reference.items():
        if isinstance(value, Tensor):
            off = _off(result[what], value)
            checks.append(Check(f"{name}: {what}", off <= LIMITS[dtype], f"off by {off:.1e}"))
        else:
            same = result[what] == value
            checks.append(Check(f"{name}: {what}", same, "the same tokens" if same else "other tokens"))
    return checks


def _compiled(model: Decoder, ids: Tensor, reference: dict[str, Any], device: torch.device) -> Check:
    if device.type == "cpu" and not shutil.which("c++"):
        return Check("compiled", True, "left out: there is no C++ compiler")
    fast = copy.deepcopy(model).to(device)
    try:
        result = _results(fast, ids.to(device), torch.compile(fast))
    except Exception as error:  # whatever the compiler's tools come up with is what is to be reported
        return Check("compiled", False, f"{type(error).__name__}: {str(error).splitlines()[0][:100]}")
    off = max(_off(result[what], reference[what]) for what in ("forward", "backward"))
    return Check("compiled: forward and backward", off <= LIMITS[torch.float32], f"off by {off:.1e}")


def _off(result: Tensor, reference: Tensor) -> float:
    """The largest difference, as a share of the largest value; infinite where there is no number."""
    difference = (result.double().cpu() - reference).abs().max() / reference.abs().max()
    return float(difference) if bool(difference.isfinite()) else float("inf")


def _cache() -> Check:
    try:
        folder = cache_dir("doctor")
        write_atomically(folder / "x", b"x")
        remove(folder / "x")
    except (OSError, GlassformerError) as error:
        return Check("cache", False, str(error))
    return Check("cache", True, str(folder.parent))


def _disk() -> Check:
    free = shutil.disk_usage(os.curdir).free / 1e9
    return Check("room on the disk here", free > 1, f"{free:.1f} GB")
