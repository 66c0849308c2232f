"""The small Shakespeare model: what it reaches, what each choice gave, and what a step costs.

    python benchmarks/shakespeare_char_small.py              the recipe, three seeds, and the step times
    python benchmarks/shakespeare_char_small.py --ladder     every rung from the GPT-2 block up to it
    python benchmarks/shakespeare_char_small.py --times      the step times alone

The peer is the configuration that nanoGPT documents for this budget (GPT-2 block, AdamW, learning rate 1e-3,
cosine), run by the same loop on the same machine; step times are measured in turns, so that a slow spell of
the machine hits both.
"""

import argparse
import json
import statistics
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

Settings = dict[str, Any]
RECIPE = "shakespeare-char-small"
PEER: Settings = {
    "model.norm": "layer",
    "model.activation": "gelu",
    "model.position": "learned",
    "model.tied": True,
    "model.qk_norm": False,
    "model.hidden": 512,
    "model.init": "gpt2",
    "training.optimizer": "adamw",
    "training.lr": 1e-3,
    "training.weight_decay": 0.1,
    "training.schedule": "cosine",
    "training.lr_floor": 0.1,
}
RUNGS: list[tuple[str, Settings]] = [
    ("GPT-2 block, AdamW 1e-3, cosine (nanoGPT's settings)", {}),
    ("learning rate 3e-3", {"training.lr": 3e-3}),
    (
        "straight-line decay to zero",
        {"training.schedule": "wsd", "training.decay": 0.9, "training.lr_floor": 0.0},
    ),
    ("fan-in initialisation, zero outputs, untied", {"model.init": "fan-in", "model.tied": False}),
    ("RoPE", {"model.position": "rope"}),
    ("RMSNorm", {"model.norm": "rms"}),
    ("queries and keys normalised", {"model.qk_norm": True}),
    (
        "Muon inside the blocks",
        {"training.optimizer": "muon", "training.weight_decay": 0.0, "training.momentum": 0.9},
    ),
    ("Adam's rate 6e-3, decay over 0.6", {"training.lr": 6e-3, "training.decay": 0.6}),
    ("LayerNorm again, which has a fused kernel on the CPU", {"model.norm": "layer"}),
    ("hidden 192 instead of 512 (the recipe)", {"model.hidden": 192}),
]


def train(job: tuple[str, Settings, int, bool]) -> tuple[str, float, float, int]:
    """One run; returns its name, full-validation loss, milliseconds per step and parameters."""
    name, settings, seed, alone = job
    import torch

    import glassformer as gf

    if not alone:
        torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        run = gf.train(
            recipe=RECIPE,
            out=Path(folder) / "run",
            settings={**settings, "training.seed": seed, "training.eval_every": 2000},
        )
        result = json.loads((run.path / "result.json").read_text())
    milliseconds = 1000 * result["seconds"] / result["steps"]
    return name, result["valid"]["loss"], milliseconds, result["parameters"]


def report(jobs: list[tuple[str, Settings, int, bool]], workers: int) -> None:
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        results = list(pool.map(train, jobs))
    for name in dict.fromkeys(name for name, *_ in results):
        losses = [loss for n, loss, *_ in results if n == name]
        times = [ms for n, _, ms, _ in results if n == name]
        spread = f"± {statistics.stdev(losses):.4f}" if len(losses) > 1 else ""
        timing = f"  {statistics.mean(times):.1f} ms/step" if workers == 1 else ""
        print(f"{statistics.mean(losses):.4f} {spread}  {name}{timing}", flush=True)  # noqa: T201


def step_times(rounds: int) -> None:
    """Milliseconds per step of the recipe and of the peer, measured in turns."""
    import torch

    from glassformer.config.data import DataConfig
    from glassformer.config.recipes import load_recipe, merge
    from glassformer.config.schema import build
    from glassformer.data.datasets import open_corpus
    from glassformer.runs.machine import measure_step
    from glassformer.tasks.language_model import LanguageTask
    from glassformer.tokenizers.load import train_tokenizer

    corpus = open_corpus("shakespeare")
    tokenizer = train_tokenizer("char", corpus.texts(), 512)
    task = LanguageTask(corpus, tokenizer, DataConfig())
    recipe = merge(load_recipe(RECIPE), task.settings())
    nested: Settings = {}
    for key, value in PEER.items():
        section, _, field = key.partition(".")
        nested = merge(nested, {section: {field: value}})
    configs = {"recipe": build(recipe), "peer": build(merge(recipe, nested))}
    times: dict[str, list[float]] = {name: [] for name in configs}
    for _ in range(rounds):
        for name, config in configs.items():
            times[name].append(1000 * measure_step(task, config, torch.device("cpu"), repeats=20))
    for name, values in times.items():
        print(f"{name}: {statistics.median(values):.1f} ms/step (best {min(values):.1f})")  # noqa: T201
    ratio = statistics.median(times["recipe"]) / statistics.median(times["peer"])
    print(f"recipe / peer: {ratio:.2f}")  # noqa: T201


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ladder", action="store_true")
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side (timings mean nothing then)")
    options = parser.parse_args()
    if not options.times:
        settings: Settings = dict(PEER)
        rungs: list[tuple[str, Settings]] = []
        for name, change in RUNGS:
            settings = {**settings, **change}
            rungs.append((name, dict(settings)))
        chosen = rungs if options.ladder else [("the recipe", {})]
        report(
            [(n, s, seed, options.jobs == 1) for n, s in chosen for seed in range(options.seeds)],
            options.jobs,
        )
    if not options.ladder:
        step_times(rounds=12)


if __name__ == "__main__":
    main()
