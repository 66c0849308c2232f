"""`glassformer bench train`: a step of training beside other tools: time, memory, and how soon it begins.

Each measurement is a process of its own, in turns, so that a slow spell of the machine hits all. The first
row is the others' block, GPT-2's, with AdamW; the second what `train` does by default. On a GPU both come
once more by fused kernels, which torch.compile has no part in.
"""

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from glassformer.core.cores import cores
from glassformer.core.device import multiplies_fp8
from glassformer.core.errors import GlassformerError, UsageError
from glassformer.core.strict_json import dump_json
from glassformer.core.triton_kernels import missing
from glassformer.tools.bench.generate import GPT2

WORKER = "glassformer.tools.bench.train_worker"
SIZES: dict[str, dict[str, int]] = {
    "char-small": {"layers": 4, "heads": 4, "width": 128, "context": 64, "vocab": 65},
    "char": {"layers": 6, "heads": 6, "width": 384, "context": 256, "vocab": 65},
    "124M": {"layers": 12, "heads": 12, "width": 768, "context": 1024, "vocab": 50304},
    "350M": {"layers": 24, "heads": 16, "width": 1024, "context": 1024, "vocab": 50304},
    "1.5B": {"layers": 48, "heads": 25, "width": 1600, "context": 1024, "vocab": 50304},
}
BATCHES = {"char-small": 12, "char": 64, "124M": 32, "350M": 16, "1.5B": 4}
_GPT2_BLOCK = {**GPT2, "bias": False, "init": "gpt2"}
OURS: dict[str, tuple[dict[str, Any], str, str]] = {  # block, optimizer, training.kernels or precision fp8
    "glassformer, GPT-2's block, AdamW": (_GPT2_BLOCK, "adamw", "auto"),
    "glassformer, its own block, Muon": ({}, "muon", "auto"),
    "the first by fused kernels": (_GPT2_BLOCK, "adamw", "fused"),
    "the second by fused kernels": ({}, "muon", "fused"),
    "the first, some products in 8 bits": (_GPT2_BLOCK, "adamw", "fp8"),
    "the second, some products in 8 bits": ({}, "muon", "fp8"),
}
ON_GPU = ("fused", "fp8")
MODULES = {"transformers": "transformers", "x-transformers": "x_transformers", "litgpt": "litgpt"}
Say = Callable[[str], None]


@dataclass(frozen=True)
class Measured:
    size: str
    tool: str
    batch: int
    precision: str
    compiled: bool
    seconds_per_step: float  # the median
    tokens_per_second: float
    first_step_seconds: float  # from the start of the process to the end of its first step
    peak_bytes: int  # of the GPU's memory, or of the process


def tools(nanogpt: str | None, on_gpu: Collection[str] = ()) -> Iterator[str]:
    """Ours, with what can be had `on_gpu`, and those that are here."""
    yield from (name for name, (_, _, kernels) in OURS.items() if kernels in on_gpu or kernels not in ON_GPU)
    if nanogpt is not None:
        yield "nanoGPT"
    yield from (name for name, module in MODULES.items() if importlib.util.find_spec(module) is not None)


def check_nanogpt(folder: str | None) -> None:
    if folder is not None and not (Path(folder) / "model.py").is_file():
        raise UsageError(f"--nanogpt {folder}: expected the folder of its source, with model.py in it")


def choose_tools(known: list[str], only: Sequence[str]) -> list[str]:
    """Those of the tools that one of these is part of; all, if there is none."""
    for part in only:
        if not any(part.lower() in name.lower() for name in known):
            raise UsageError(f"--only {part}: is part of none of these rows: {'; '.join(known)}")
    return [name for name in known if not only or any(part.lower() in name.lower() for part in only)]


def measure(
    size: str,
    *,
    device: str,
    batch: int | None,
    precision: str,
    compiled: bool,
    seconds: float,
    rounds: int,
    nanogpt: str | None,
    profile: str | None,
    say: Say,
    only: Sequence[str] = (),
) -> list[Measured]:
    """Each tool in turn, some rounds; of each the best."""
    batch = batch or BATCHES[size]
    found: dict[str, Measured] = {}
    chosen = choose_tools(list(tools(nanogpt, _on_gpu(device, precision))), only)
    for turn in range(rounds):
        for tool in chosen:
            block, optimizer, kernels = OURS.get(tool, ({}, "adamw", "auto"))
            number_type = "fp8" if kernels == "fp8" else precision
            compiles = compiled and kernels not in ON_GPU
            kernels = "fused" if kernels in ON_GPU else kernels
            if kernels == "auto" and device != "cpu":
                kernels = "off"  # PyTorch's; the fused step has rows of its own
            say(f"{tool}: {size}, batch {batch}, {number_type}{', compiled' if compiles else ''} …")
            task = {
                "tool": tool,
                "shape": SIZES[size],
                "block": block,
                "optimizer": optimizer,
                "batch": batch,
                "device": device,
                "precision": number_type,
                "compile": compiles,
                "kernels": kernels,
                "threads": cores(),
                "seconds": seconds,
                "least": 5,
                "nanogpt": nanogpt,
                "began": time.time(),
                "profile": profile if tool in OURS and profile and turn == 0 else None,
            }
            if task["profile"]:
                name = "gpt2" if optimizer == "adamw" else "default"
                name += ("-fp8" if number_type == "fp8" else "-fused") * (kernels == "fused")
                task["profile"] = str(Path(task["profile"]) / name)
            try:
                told = _run(task)
            except GlassformerError as error:
                if tool in OURS:
                    raise
                say(f"{error}; left out")  # another tool's trouble is no reason to lose the rest
                continue
            say(f"    {1e3 * told['seconds_per_step']:.1f} ms a step")  # the table comes at the end
            step = told["seconds_per_step"]
            rate = batch * SIZES[size]["context"] / step
            new = Measured(
                size,
                tool,
                batch,
                number_type,
                compiles,
                step,
                rate,
                told["first_step_seconds"],
                told["peak_bytes"],
            )
            if tool not in found or step < found[tool].seconds_per_step:
                found[tool] = new
    return list(found.values())


def _on_gpu(device: str, precision: str) -> list[str]:
    """Which of our rows for a GPU can be had."""
    if precision != "bf16" or device == "cpu" or missing(torch.device(device)) is not None:
        return []
    return list(ON_GPU) if multiplies_fp8(torch.device(device)) else ["fused"]


def _run(task: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", WORKER, dump_json(task)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise GlassformerError(f"{task['tool']} failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def report(found: list[Measured]) -> str:
    """A table; the last column is how many times as fast as the best other tool."""
    others = [m.seconds_per_step for m in found if m.tool not in OURS]
    lines = [
        f"{'tool':36}{'ms/step':>9}{'tokens/s':>12}{'memory MB':>11}{'first step s':>14}{'to the best':>13}"
    ]
    for m in found:
        ratio = f"{min(others) / m.seconds_per_step:.2f} ×" if m.tool in OURS and others else ""
        lines.append(
            f"{m.tool:36}{1e3 * m.seconds_per_step:9.1f}{m.tokens_per_second:12,.0f}"
            f"{m.peak_bytes / 1e6:11,.0f}{m.first_step_seconds:14.1f}{ratio:>13}"
        )
    return "\n".join(lines)


def as_json(found: list[Measured]) -> list[dict[str, Any]]:
    return [asdict(m) for m in found]
