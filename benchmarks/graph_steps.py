"""Steps of training by PyTorch's kernels on a GPU: as one graph each, and call by call.

    python benchmarks/graph_steps.py [--seconds 2] [--out FILE]     # one or two minutes on an H200
    python benchmarks/graph_steps.py --device cpu --tiny            # that it runs; the times say nothing

For what the fused step is not made for: translators, whose batches have many shapes, and recurrent models.
Text and pairs are random numbers: only time is measured.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer.config.schema import Config, build
from glassformer.data.shards import Tokens
from glassformer.models.model import LanguageModel
from glassformer.objectives.language import language_modelling
from glassformer.objectives.objective import Objective
from glassformer.objectives.translation import Translating
from glassformer.tasks.registry import make_model
from glassformer.training.step import Steps

SETTLING = 150  # steps until batches of nearly all shapes have come twice
_LSTM = {"family": "lstm", "layers": 3, "width": 800, "context": 70, "vocab": 33278, "tied": True}
_LSTM |= {"word_dropout": 0.1, "embedding_dropout": 0.4, "residual_dropout": 0.3, "output_dropout": 0.2}
_LSTM |= {"recurrent_dropout": 0.4, "dropout_over": "sequence"}
_PAIRS = {"layers": 4, "heads": 6, "width": 384, "context": 96, "dropout": 0.2, "tied": True, "vocab": 8000}
_GRU = {**_PAIRS, "family": "gru", "layers": 1, "width": 512, "heads": 8}
_WORDS, _SENTENCES = {"batch": 64, "weight_decay": 0.05}, {"batch": 128, "label_smoothing": 0.1}
TRAININGS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "LSTM, 3 × 800, 64 × 70 words": ("language", _LSTM, _WORDS),
    "translator, 4 + 4 × 384, 128 pairs": ("translate", _PAIRS, _SENTENCES),
    "the same, every pair read twice": ("translate", _PAIRS, {**_SENTENCES, "consistency": 5}),
    "GRU translator, 512, 128 pairs": ("translate", _GRU, _SENTENCES),
}
TINY = {"width": 32, "heads": 2, "layers": 1, "vocab": 300, "head_width": 0, "value_width": 0, "hidden": 0}


def make_objective(model: torch.nn.Module, config: Config) -> Objective:
    draw, vocab = np.random.default_rng(0), config.model.vocab
    if isinstance(model, LanguageModel):
        text = Tokens([draw.integers(0, vocab, 400_000)], 400_000)
        return language_modelling(model, text, config.model.context, config.training.batch, 0, (2.0, 1.0))
    lengths = np.clip(draw.normal(16, 6, 20_000).astype(int), 4, 45)
    sources = [draw.integers(3, vocab, n) for n in lengths]
    targets = [draw.integers(3, vocab, max(3, n + draw.integers(-3, 4))) for n in lengths]
    consistency = config.training.consistency
    return Translating(sources, targets, 0, config.training.batch, token_dropout=0.1, consistency=consistency)


def measure(task: str, model: dict[str, Any], training: dict[str, Any], device: str, seconds: float) -> float:
    """Seconds of a step, once what has to get ready is."""
    config = build({"task": task, "model": model, "training": {"steps": 10**6, "compile": "off", **training}})
    torch.manual_seed(0)
    made = make_model(task, config.model).to(device)
    objective = make_objective(made, config)
    steps = Steps(made, objective, config.training, device=torch.device(device), width=config.model.width)
    for _ in range(SETTLING if steps.way == "graph" and device != "cpu" else 10):
        steps.step(made, ahead=True)
    began, count = time.perf_counter(), 0
    while count < 10 or time.perf_counter() - began < seconds:
        steps.step(made, ahead=True)
        count += 1
    spent = (time.perf_counter() - began) / count
    steps.reader.close()
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    precision, found = "float32" if arguments.tiny else "bf16", dict[str, dict[str, float]]()
    for name, (task, model, training) in TRAININGS.items():
        shape = {**model, **TINY} if arguments.tiny else model
        how = {"precision": precision, **training}
        spent = {
            kernels: measure(task, shape, {**how, "kernels": kernels}, arguments.device, arguments.seconds)
            for kernels in ("graph", "off")
        }
        found[name] = {"graph": spent["graph"], "call by call": spent["off"]}
        row = f"{1e3 * spent['graph']:9.2f}{1e3 * spent['off']:9.2f} ms"
        print(f"{name:40}{row}{spent['off'] / spent['graph']:8.1f} ×", flush=True)  # noqa: T201
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
