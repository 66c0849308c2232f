"""One measurement of training with one tool, in a process of its own: time, memory and start are its alone.

python -m glassformer.tools.bench.train_worker TASK      prints one JSON object; TASK is one itself

All train the same sizes on the same random tokens, in the same number type, with the update that they come
with: ours by its own loop, the others by a plain one with PyTorch's fused AdamW and clipping, as their own
scripts have it.
"""

import importlib.util
import json
import resource
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.core.files import make_folder, write_atomically
from glassformer.core.process import tune_process
from glassformer.core.strict_json import dump_json

Step = Callable[[], float]


def our_step(task: dict[str, Any], tokens: np.ndarray) -> Step:
    from glassformer.config.model import ModelConfig
    from glassformer.config.training import TrainingConfig
    from glassformer.data.shards import Tokens
    from glassformer.models.build import Decoder
    from glassformer.objectives.language import LanguageModelling
    from glassformer.training.compile import maybe_compile
    from glassformer.training.step import Steps

    shape, device = task["shape"], torch.device(task["device"])
    model = Decoder(ModelConfig.model_validate({**shape, **task["block"]})).to(device)
    config = TrainingConfig(
        steps=10**6,
        batch=task["batch"],
        warmup=10,
        optimizer=task["optimizer"],
        precision=task["precision"],
        schedule="constant",
        kernels=task["kernels"],
    )
    objective = LanguageModelling(Tokens([tokens], tokens.size), shape["context"], seed=0)
    steps = Steps(model, objective, config, device=device, width=shape["width"])
    forward = maybe_compile(model, task["compile"])
    return lambda: steps.step(forward, ahead=True)["loss"]


def peer_step(task: dict[str, Any], tokens: np.ndarray) -> Step:
    """A plain loop around another tool's model."""
    device = torch.device(task["device"])
    model, loss_of = PEERS[task["tool"]](task)
    model = model.to(device).train()
    forward = torch.compile(model) if task["compile"] else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    T, B = task["shape"]["context"], task["batch"]
    random = np.random.default_rng(0)
    half = torch.autocast(device.type, torch.bfloat16) if task["precision"] == "bf16" else nullcontext()

    def step() -> float:
        starts = random.integers(0, tokens.size - T - 1, B)
        rows = torch.from_numpy(np.stack([tokens[s : s + T + 1] for s in starts])).to(device)
        with half:
            loss = loss_of(forward, rows[:, :-1].contiguous(), rows[:, 1:].contiguous())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def _transformers(task: dict[str, Any]) -> tuple[nn.Module, Callable[..., Tensor]]:
    from transformers import GPT2Config, GPT2LMHeadModel

    shape = task["shape"]
    sizes = {"n_embd": shape["width"], "n_layer": shape["layers"], "n_head": shape["heads"]}
    config = GPT2Config(
        vocab_size=shape["vocab"],
        n_positions=shape["context"],
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
        **sizes,
    )
    return GPT2LMHeadModel(config), lambda model, x, y: _cross_entropy(model(x).logits, y)


def _nanogpt(task: dict[str, Any]) -> tuple[nn.Module, Callable[..., Tensor]]:
    """Its model.py, from the folder that the user has named."""
    spec = importlib.util.spec_from_file_location("nanogpt_model", Path(task["nanogpt"]) / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["nanogpt_model"] = module  # its dataclass looks itself up there
    spec.loader.exec_module(module)
    shape = task["shape"]
    config = module.GPTConfig(
        block_size=shape["context"],
        vocab_size=shape["vocab"],
        n_layer=shape["layers"],
        n_head=shape["heads"],
        n_embd=shape["width"],
        dropout=0.0,
        bias=False,
    )
    return module.GPT(config), lambda model, x, y: model(x, y)[1]


def _x_transformers(task: dict[str, Any]) -> tuple[nn.Module, Callable[..., Tensor]]:
    from x_transformers import Decoder, TransformerWrapper  # pyright: ignore[reportMissingImports]

    shape = task["shape"]
    layers = Decoder(
        dim=shape["width"],
        depth=shape["layers"],
        heads=shape["heads"],
        attn_dim_head=shape["width"] // shape["heads"],
        attn_flash=True,
    )
    model = TransformerWrapper(num_tokens=shape["vocab"], max_seq_len=shape["context"], attn_layers=layers)
    return model, lambda model, x, y: _cross_entropy(model(x), y)


def _litgpt(task: dict[str, Any]) -> tuple[nn.Module, Callable[..., Tensor]]:
    from litgpt import GPT, Config  # pyright: ignore[reportMissingImports]

    shape = task["shape"]
    config = Config(
        block_size=shape["context"],
        vocab_size=shape["vocab"],
        padded_vocab_size=shape["vocab"],
        n_layer=shape["layers"],
        n_head=shape["heads"],
        n_embd=shape["width"],
        rotary_percentage=1.0,
    )
    return GPT(config), lambda model, x, y: _cross_entropy(model(x), y)


PEERS = {
    "transformers": _transformers,
    "nanoGPT": _nanogpt,
    "x-transformers": _x_transformers,
    "litgpt": _litgpt,
}


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def main() -> None:
    task = json.loads(sys.argv[1])
    tune_process()
    torch.set_num_threads(task["threads"])
    torch.set_float32_matmul_precision("high")
    cuda = task["device"] != "cpu"
    torch.manual_seed(0)
    tokens = np.random.default_rng(1).integers(0, task["shape"]["vocab"], 200_000)
    step = (peer_step if task["tool"] in PEERS else our_step)(task, tokens)
    step()
    start, times = time.time() - task["began"], list[float]()
    for _ in range(2):  # the first steps are slower everywhere
        step()
    began = time.perf_counter()
    while len(times) < task["least"] or time.perf_counter() - began < task["seconds"]:
        before = time.perf_counter()
        step()
        times.append(time.perf_counter() - before)
    if task["profile"]:
        write_profile(step, Path(task["profile"]), cuda)
    peak = (
        torch.cuda.max_memory_allocated()
        if cuda
        else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    )
    found = {"seconds_per_step": median(times), "first_step_seconds": start, "peak_bytes": peak}
    sys.stdout.write(dump_json(found) + "\n")


def write_profile(step: Step, folder: Path, cuda: bool) -> None:
    """Three steps as a trace for Perfetto or chrome://tracing, and what took longest in them as text."""
    from torch.profiler import ProfilerActivity, profile

    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(activities=kinds, record_shapes=True) as seen:
        for _ in range(3):
            step()
    make_folder(folder)
    seen.export_chrome_trace(str(folder / "trace.json"))
    by = "self_cuda_time_total" if cuda else "self_cpu_time_total"
    table = seen.key_averages().table(sort_by=by, row_limit=30, max_name_column_width=60)
    write_atomically(folder / "top.txt", table.encode())


if __name__ == "__main__":
    main()
