"""`glassformer bench generate`: tokens a second beside transformers and llama.cpp, where they are installed.

Each measurement is a process of its own, on the same two sizes with random weights: GPT-2's 124M, and a model
such as a short training on a laptop gives. All write after a prompt of 16 tokens; the prompt is not measured.
llama.cpp and transformers have GPT-2's block; so have we in the large size, in the small one the block that
`train` gives by default is measured as well.
"""

import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from glassformer.core.cores import cores
from glassformer.core.errors import GlassformerError
from glassformer.core.strict_json import dump_json

SIZES = {
    "124M": {"layers": 12, "heads": 12, "width": 768, "context": 1024, "vocab": 50257},
    "4 × 128": {"layers": 4, "heads": 4, "width": 128, "context": 256, "vocab": 2048},
}
GPT2 = {
    "norm": "layer",
    "position": "learned",
    "activation": "gelu-tanh",
    "bias": True,
    "tied": True,
    "qk_norm": False,
}
DEFAULT: dict[str, Any] = {"norm": "rms", "position": "rope", "activation": "relu2", "qk_norm": True}
PROMPT, TOKENS = 16, 128
WORKER = "glassformer.tools.bench.generate_worker"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Measured:
    size: str
    tool: str
    weights: str  # f32, bf16, int8
    streams: int
    top_k: int  # 0: greedy
    tokens_per_second: float


def jobs(device: str, sizes: list[str], streams: list[int], llama: str | None) -> Iterator[dict[str, Any]]:
    """What is measured, in turns: ours and theirs side by side."""
    for size in sizes:
        for rows in streams:
            for weights in ("f32", "bf16", "int8") if device == "cpu" else ("f32", "bf16"):
                common = {
                    "size": size,
                    "shape": SIZES[size],
                    "streams": rows,
                    "weights": weights,
                    "device": device,
                }
                yield {**common, "tool": "glassformer", "block": GPT2}
                if size != "124M":
                    yield {**common, "tool": "glassformer, its own block", "block": DEFAULT}
                if weights != "int8" and importlib.util.find_spec("transformers") is not None:
                    yield {**common, "tool": "transformers"}
                if rows == 1 and llama is not None and device == "cpu":
                    yield {**common, "tool": "llama.cpp"}
            if device == "cpu":
                shape = {"size": size, "shape": SIZES[size], "streams": rows, "device": device}
                yield {**shape, "weights": "open", "tool": "glassformer, open pass", "block": GPT2}


def measure(
    device: str,
    sizes: list[str],
    streams: list[int],
    repeats: int,
    rounds: int,
    top_k: int,
    llama: str | None,
    say: Say,
) -> list[Measured]:
    """Each tool in turn, some rounds, since a machine is not equally fast at all times; of each the best."""
    found: dict[int, Measured] = {}
    for _ in range(rounds):
        for i, job in enumerate(jobs(device, sizes, streams, llama)):
            say(f"{job['tool']}: {job['size']}, {job['weights']}, {job['streams']} at once …")
            task = {
                **job,
                "prompt": PROMPT,
                "tokens": TOKENS,
                "repeats": repeats,
                "threads": cores(),
                "top_k": top_k,
            }
            try:
                rate = _run(task, llama)
            except GlassformerError as error:
                if task["tool"].startswith("glassformer"):
                    raise
                say(f"{error}; left out")  # another tool's trouble is no reason to lose the rest
                continue
            say(f"    {rate:,.1f} tokens/s")  # the table comes at the end, if that is waited for
            weights = "f32" if job["weights"] == "open" else job["weights"]
            now = Measured(job["size"], job["tool"], weights, job["streams"], top_k, rate)
            found[i] = max(found.get(i, now), now, key=lambda m: m.tokens_per_second)
    return list(found.values())


def llama_python(given: str | None) -> str | None:
    """An interpreter that has llama.cpp's Python package: the one that was named, or this one."""
    if given is not None:
        done = subprocess.run([given, "-c", "import llama_cpp, gguf"], capture_output=True, check=False)
        if done.returncode:
            raise GlassformerError(f"{given} has no llama-cpp-python and gguf: install them there")
        return given
    names = ("llama_cpp", "gguf")
    return sys.executable if all(importlib.util.find_spec(name) for name in names) else None


def _run(task: dict[str, Any], llama: str | None) -> float:
    if task["tool"] == "llama.cpp":
        assert llama is not None
        command = [llama, str(Path(__file__).with_name("llama_worker.py")), dump_json(task)]
    else:
        command = [sys.executable, "-m", WORKER, dump_json(task)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise GlassformerError(f"{task['tool']} failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    return json.loads(done.stdout.splitlines()[-1])["tokens_per_second"]


def first_token(repeats: int = 3) -> float:
    """Seconds from the command to the first token of a small run, best of some."""
    import torch

    from glassformer.config.model import ModelConfig
    from glassformer.models.build import Decoder
    from glassformer.runs.save_model import save_run
    from glassformer.tokenizers.bpe_tokenizer import BPE

    with tempfile.TemporaryDirectory() as folder:
        tokenizer = BPE.train(["some words to learn from, again and again " * 20], vocab=300)
        torch.manual_seed(0)
        shape = {**SIZES["4 × 128"], "vocab": len(tokenizer), **DEFAULT}
        save_run(Decoder(ModelConfig.model_validate(shape)), tokenizer, Path(folder) / "run")
        command = [sys.executable, "-m", "glassformer", "generate", str(Path(folder) / "run"), "words"]
        return min(_seconds([*command, "--tokens", "1", "--seed", "0"]) for _ in range(repeats + 1))


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, capture_output=True, check=True)
    return time.perf_counter() - began


def report(found: list[Measured]) -> str:
    """A table; the last column is ours against the best other tool with the same weights and streams."""
    lines = [f"{'':10}{'tool':28}{'weights':>8}{'streams':>9}{'tokens/s':>11}{'beside the best':>17}"]
    for m in found:
        others = [o.tokens_per_second for o in found if _alike(o, m) and not o.tool.startswith("glassformer")]
        ours = m.tool.startswith("glassformer") and others
        ratio = f"{m.tokens_per_second / max(others):.2f} ×" if ours else ""
        rate = f"{m.tokens_per_second:,.1f}" if m.tokens_per_second < 1000 else f"{m.tokens_per_second:,.0f}"
        lines.append(f"{m.size:10}{m.tool:28}{m.weights:>8}{m.streams:>9}{rate:>11}{ratio:>17}")
    return "\n".join(lines)


def _alike(a: Measured, b: Measured) -> bool:
    return (a.size, a.weights, a.streams) == (b.size, b.weights, b.streams)


def as_json(found: list[Measured]) -> list[dict[str, Any]]:
    return [asdict(m) for m in found]
