"""Plans beside measurements: memory and time of real training steps on this machine's GPU.

    python benchmarks/plan.py                            all of them; writes benchmarks/plan.json
    python benchmarks/plan.py --only 124M                those whose name has this in it

Each is trained for a few steps on random tokens; the peak is what PyTorch allocated, the time a median step.
tests/planning holds the formulas to these figures: memory within 15 %, time within 20 %.
"""

import argparse
import gc
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer.config.schema import build
from glassformer.core.device import choose_device
from glassformer.core.process import tune_process
from glassformer.data.shards import Tokens
from glassformer.models.model import parameter_count
from glassformer.objectives.language import LanguageModelling
from glassformer.planning.devices import DEVICES, measure
from glassformer.planning.memory import memory
from glassformer.planning.time import step_time
from glassformer.tasks.registry import make_model
from glassformer.training.step import Steps

GPT2 = {"position": "learned", "bias": True, "tied": True, "qk_norm": False}


def shape(layers: int, heads: int, width: int, context: int = 1024, vocab: int = 50304, **more: Any) -> Any:
    model = {"layers": layers, "heads": heads, "width": width, "context": context, "vocab": vocab}
    return {**model, **more}


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "10M": (shape(6, 6, 384, 256, 512), {"batch": 64}),
    "10M compiled": (shape(6, 6, 384, 256, 512), {"batch": 256, "compile": "on"}),
    "25M rms, relu2": (shape(8, 8, 512, 512, 8192, norm="rms", activation="relu2"), {"batch": 48}),
    "50M muon": (shape(8, 8, 512, 1024, 32768), {"batch": 24, "optimizer": "muon"}),
    "124M gpt2": (shape(12, 12, 768, **GPT2), {"batch": 24}),
    "124M gpt2 compiled": (shape(12, 12, 768, **GPT2), {"batch": 32, "compile": "on"}),
    "124M gpt2 in 4 parts": (shape(12, 12, 768, **GPT2), {"batch": 64, "accumulate": 4}),
    "170M wide heads": (shape(12, 6, 768, 2048, activation="swiglu"), {"batch": 8}),
    "350M gpt2-medium": (shape(24, 16, 1024, **GPT2), {"batch": 16}),
    "410M compiled": (shape(24, 16, 1024), {"batch": 12, "compile": "on"}),
    "774M gpt2-large": (shape(36, 20, 1280, **GPT2), {"batch": 8}),
    "1.1B grouped": (
        shape(22, 32, 2048, vocab=32000, kv_heads=4, activation="swiglu", norm="rms"),
        {"batch": 6},
    ),
    "1.5B gpt2-xl": (shape(48, 25, 1600, **GPT2), {"batch": 6}),
    "1.6B compiled": (shape(48, 25, 1600), {"batch": 6, "compile": "on"}),
}


def measured(model: dict[str, Any], training: dict[str, Any]) -> dict[str, float]:
    gc.collect()
    torch.cuda.empty_cache()
    torch._dynamo.reset()
    before = torch.cuda.memory_allocated()
    config = configured(model, training)
    ids = np.random.default_rng(0).integers(0, config.model.vocab, 2_000_000)
    task = LanguageModelling(Tokens([ids], len(ids)), config.model.context, 0)
    net = make_model("language", config.model).to("cuda")
    steps = Steps(net, task, config.training, device=torch.device("cuda"), width=config.model.width)
    forward = steps.layout.forward(config.training.compile == "on")
    for _ in range(3):
        steps.step(forward)
    torch.cuda.reset_peak_memory_stats()
    times = [steps.step(forward)["seconds_per_step"] for _ in range(8)]
    peak = torch.cuda.max_memory_allocated() - before
    return {"parameters": parameter_count(net), "memory": peak, "seconds": float(np.median(times))}


def configured(model: dict[str, Any], training: dict[str, Any]) -> Any:
    rest = {"steps": 1000, "precision": "bf16", "compile": "off", "optimizer": "adamw"}
    return build({"model": model, "training": {**rest, **training}})


def planned(model: dict[str, Any], training: dict[str, Any], device: Any) -> dict[str, float]:
    config = configured(model, training)
    t = config.training
    held = memory(config, t.batch // t.accumulate * config.model.context, "one", 1, t.accumulate)
    return {"memory": held.peak, "seconds": step_time(config, device, t.batch, t.accumulate)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--out", default=str(Path(__file__).with_suffix(".json")))
    asked = parser.parse_args()
    choose_device("cuda")
    tune_process()
    here = measure()
    result: dict[str, Any] = {
        "device": here.name,
        "torch": torch.__version__,
        "matmul": here.matmul,
        "bandwidth": here.bandwidth,
        "cases": {},
    }
    for name, (model, training) in CASES.items():
        if asked.only not in name:
            continue
        found = measured(model, training)
        by_plan = planned(model, training, DEVICES["h200"])
        result["cases"][name] = {"model": model, "training": training, "measured": found}
        Path(asked.out).write_text(json.dumps(result, indent=1))
        off = {key: by_plan[key] / found[key] - 1 for key in ("memory", "seconds")}
        print(  # noqa: T201
            f"{name:24} {found['parameters'] / 1e6:7.1f} M  memory {found['memory'] / 1e9:6.2f} GB "
            f"({off['memory']:+.1%})  step {1e3 * found['seconds']:7.1f} ms ({off['seconds']:+.1%})",
            flush=True,
        )


if __name__ == "__main__":
    main()
