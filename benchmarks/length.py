"""Does the advantage of attention grow with the length? Two experiments.

    python benchmarks/length.py copy --jobs 16        words that are repeated, of growing length, six families
    python benchmarks/length.py overtake --jobs 16    LSTM and transformer as sizes, tokens and context grow
    python benchmarks/length.py draw                  the figures of docs/models.md from what was measured

`copy`: a word of n random letters, n drawn from N/2 to N, is said again and again; counted is the loss of
each letter that can be known, from the second letter of the second time on. The families have about as many
weights. Only looking back by content helps: the distance changes from word to word.

`overtake`: characters of WikiText-2. One thing grows at a time from a middle: 1 million weights, 8 million
characters, 256 of context. Each case is trained with two learning rates; the one that is better on validation
for seed 0 is taken for the other seeds. Every model is scored on the whole validation split, the transformer
with a stride of a quarter of its context, the LSTM with its state carried along.

Jobs run side by side, one thread each; `overtake` on a GPU if there is one. What was measured before
(length.json) is kept, and what is missing is added.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from statistics import mean, stdev
from typing import Any

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "benchmarks" / "length.json"

# Words that are repeated

LETTERS, SEEDS = 256, (0, 1, 2)
WORDS = (8, 16, 32, 64, 128)
STEPS, BATCH = 1000, 32
FAMILIES: dict[str, dict[str, Any]] = {  # about 130,000 weights beside embedding and unembedding
    "rnn": {"family": "rnn", "layers": 1, "width": 256, "lr": 0.01},
    "gru": {"family": "gru", "layers": 1, "width": 148, "lr": 0.01},
    "lstm": {"family": "lstm", "layers": 1, "width": 128, "lr": 0.02},
    "window": {"family": "window", "window": 10, "layers": 2, "width": 32, "hidden": 192, "lr": 0.01},
    "convolution": {
        "attention": "convolution",
        "position": "none",
        "layers": 2,
        "heads": 8,
        "width": 80,
        "lr": 0.006,
    },
    "transformer": {"layers": 2, "heads": 4, "width": 72, "lr": 0.006, "qk_norm": False},
}

# LSTM and transformer

MIDDLE = {"parameters": 1.0, "tokens": 8.0, "context": 256}
GROWING = {"parameters": (0.25, 1.0, 4.0), "tokens": (2.0, 8.0, 24.0), "context": (64, 256, 1024)}
WIDTHS = {  # millions of weights → (layers, width); a transformer's block has 12 C², an LSTM's layer 8 C²
    "transformer": {0.25: (3, 80), 1.0: (4, 144), 4.0: (6, 240)},
    "lstm": {0.25: (1, 176), 1.0: (1, 352), 4.0: (2, 496)},
}
RATES = {"transformer": (0.003, 0.006), "lstm": (0.005, 0.015)}
PER_STEP = 16384  # characters


def copy_case(family: str, longest: int, seed: int) -> dict[str, Any]:
    """Train one family on words of at most so many letters; the loss of letters that can be known."""
    import numpy as np
    import torch
    from torch.nn import functional as F

    from glassformer.config.model import ModelConfig
    from glassformer.config.training import TrainingConfig
    from glassformer.data.order import fold_seed
    from glassformer.models.build import make_language_model
    from glassformer.models.model import parameter_count
    from glassformer.models.tap import Tap, off
    from glassformer.objectives.loss import NOT_SCORED
    from glassformer.objectives.objective import Stateless
    from glassformer.training.step import Steps

    torch.set_num_threads(1)
    T = 2 * longest

    class Words(Stateless):
        name = "words"

        def __init__(self, seed: int):
            self.seed = seed

        def batch(self, first: int, count: int) -> dict[str, torch.Tensor]:
            rows, targets = np.empty((count, T + 1), np.int64), np.full((count, T), NOT_SCORED)
            for i in range(count):
                random = np.random.Generator(np.random.PCG64(fold_seed(self.seed, first + i)))
                n = int(random.integers(longest // 2, longest + 1))
                rows[i] = np.resize(random.permutation(LETTERS)[:n], T + 1)
                targets[i, n:] = rows[i, n + 1 :]
            return {"inputs": torch.from_numpy(rows[:, :-1]), "targets": torch.from_numpy(targets)}

        def targets(self, batch: dict[str, torch.Tensor]) -> int:
            return int((batch["targets"] != NOT_SCORED).sum())

        def tokens(self, batch: dict[str, torch.Tensor]) -> int:
            return batch["inputs"].numel()

        def loss(
            self, model: Any, batch: dict[str, torch.Tensor], smoothing: float = 0.0, tap: Tap = off
        ) -> torch.Tensor:
            scores = model(batch["inputs"], tap=tap).flatten(0, 1)
            return F.cross_entropy(
                scores, batch["targets"].flatten(), reduction="sum", ignore_index=NOT_SCORED
            )

    settings = dict(FAMILIES[family])
    lr = settings.pop("lr")
    torch.manual_seed(seed)
    model = make_language_model(ModelConfig.model_validate({"context": T, "vocab": LETTERS, **settings}))
    config = TrainingConfig(steps=STEPS, batch=BATCH, lr=lr, warmup=100, seed=seed, precision="float32")
    objective = Words(fold_seed(seed, longest))
    steps = Steps(model, objective, config, device=torch.device("cpu"), width=model.config.width)
    began = time.perf_counter()
    for _ in range(STEPS):
        steps.step(model)
    steps.reader.close()
    model.eval()
    held_out = Words(fold_seed(seed, longest, 1)).batch(0, 256)
    with torch.no_grad():
        loss = sum(
            float(objective.loss(model, {k: v[i : i + 32] for k, v in held_out.items()}))
            for i in range(0, 256, 32)
        )
    embeddings = 2 * LETTERS * model.config.width
    return {
        "loss": loss / objective.targets(held_out),
        "weights": parameter_count(model) - embeddings,
        "seconds": time.perf_counter() - began,
    }


def overtake_case(family: str, parameters: float, tokens: float, context: int) -> dict[str, Any]:
    """Two learning rates with seed 0, the better one with the others; bits per byte of each seed."""
    import torch

    import glassformer as gf
    from glassformer.config.data import DataConfig
    from glassformer.config.schema import build
    from glassformer.core.device import choose_device
    from glassformer.models.model import parameter_count
    from glassformer.tasks.language_model import LanguageTask
    from glassformer.tasks.task import EvalOptions
    from glassformer.training.step import Steps

    torch.set_num_threads(1)
    layers, width = WIDTHS[family][parameters]
    steps = max(1, round(tokens * 1e6 / PER_STEP))
    corpus = gf.load_dataset("wikitext-2", "language")
    tokenizer = gf.train_tokenizer("char", corpus.texts(), 512)
    task = LanguageTask(corpus, tokenizer, DataConfig())
    model_settings = {
        "family": family,
        "layers": layers,
        "width": width,
        "context": context,
        "vocab": len(tokenizer),
        **({"heads": 8} if family == "transformer" else {}),
    }
    batch, warmup = max(1, PER_STEP // context), max(1, min(100, steps // 10))
    device = choose_device()

    def train(lr: float, seed: int) -> dict[str, float]:
        training = {"steps": steps, "batch": batch, "warmup": warmup, "lr": lr, "seed": seed}
        config = build({"model": model_settings, "training": training})
        torch.manual_seed(seed)
        model = task.build(config.model).to(device)
        stepping = Steps(model, task.objective(model, config), config.training, device=device, width=width)
        began = time.perf_counter()
        for _ in range(steps):
            stepping.step(model)
        stepping.reader.close()
        seconds = time.perf_counter() - began
        stride = context // 4 if family == "transformer" else None
        with torch.no_grad():
            whole = task.evaluate(model, config, "valid")
            strided = task.evaluate(model, config, "valid", EvalOptions(stride=stride))
        return {
            "bits": strided.as_dict()["bits_per_byte"],
            "windows": whole.as_dict()["bits_per_byte"],
            "weights": parameter_count(model),
            "seconds": seconds,
        }

    tried = {lr: train(lr, 0) for lr in RATES[family]}
    best = min(tried, key=lambda lr: tried[lr]["bits"])
    each = [tried[best], *(train(best, seed) for seed in SEEDS[1:])]
    return {
        "lr": best,
        "tried": {str(lr): t["bits"] for lr, t in tried.items()},
        "bits": [t["bits"] for t in each],
        "windows": [t["windows"] for t in each],
        "weights": each[0]["weights"],
        "seconds": mean(t["seconds"] for t in each),
    }


def cases(what: str) -> list[dict[str, Any]]:
    if what == "copy":
        return [
            {"family": family, "longest": n, "seed": seed}
            for seed in SEEDS
            for n in WORDS
            for family in FAMILIES
        ]
    points = {tuple({**MIDDLE, axis: value}.items()) for axis, values in GROWING.items() for value in values}
    ordered = sorted((dict(p) for p in points), key=lambda p: -p["tokens"] * (1 + p["parameters"]))
    return [{"family": family, **point} for point in ordered for family in WIDTHS]


def measure(what: str, jobs: int, done: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The cases that are not done yet, as they end."""

    def call(case: dict[str, Any]) -> dict[str, Any] | None:
        command = [sys.executable, __file__, what, "--one", json.dumps(case)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if ended.returncode:
            sys.stderr.write(f"{case}: {ended.stderr[-600:]}\n")
            return None
        sys.stderr.write(ended.stdout)
        return json.loads(ended.stdout.splitlines()[-1])

    missing = [case for case in cases(what) if not any(case.items() <= row.items() for row in done)]
    with ThreadPoolExecutor(jobs) as pool:
        for future in as_completed([pool.submit(call, case) for case in missing]):
            if (row := future.result()) is not None:
                yield row


def keep(kept: dict[str, list[dict[str, Any]]], path: Path) -> None:
    parts = [
        f'"{name}": [\n' + ",\n".join(json.dumps(r) for r in rows) + "\n]" for name, rows in kept.items()
    ]
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def draw(kept: dict[str, list[dict[str, Any]]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    pictures = ROOT / "docs" / "pictures"
    if rows := kept.get("copy"):
        figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
        for family in FAMILIES:
            mine = {n: [r["loss"] for r in rows if (r["family"], r["longest"]) == (family, n)] for n in WORDS}
            x = [n for n in WORDS if mine[n]]
            line = axes.plot(x, [mean(mine[n]) for n in x], "o-", markersize=4, linewidth=1.5, label=family)[
                0
            ]
            axes.fill_between(
                x, [min(mine[n]) for n in x], [max(mine[n]) for n in x], color=line.get_color(), alpha=0.15
            )
        axes.axhline(math.log(LETTERS), color="#999999", linewidth=1, linestyle=":")
        axes.annotate("guessing", (WORDS[0], math.log(LETTERS)), fontsize=8, color="#777777", va="bottom")
        axes.set_xscale("log", base=2)
        axes.set_xticks(WORDS, [str(n) for n in WORDS])
        axes.set_xlabel("letters of the longest word")
        axes.set_ylabel("nats per letter that can be known")
        axes.set_title(
            f"Copying a word, {STEPS:,} steps, one to three seeds (band: all of them)", fontsize=10
        )
        axes.legend(frameon=False, fontsize=8)
        axes.grid(alpha=0.25)
        figure.savefig(pictures / "length-copy.png", dpi=110)
    if rows := kept.get("overtake"):
        names = {"parameters": "million weights", "tokens": "million characters read", "context": "context"}
        figure, places = plt.subplots(1, 3, figsize=(11, 3.9), layout="constrained", sharey=True)
        for axes, (axis, values) in zip(places, GROWING.items(), strict=True):
            for family in ("lstm", "transformer"):
                mine = {
                    r[axis]: r["bits"]
                    for r in rows
                    if r["family"] == family and all(r[a] == v for a, v in MIDDLE.items() if a != axis)
                }
                x = [v for v in values if v in mine]
                y = [mean(mine[v]) for v in x]
                spread = [stdev(mine[v]) if len(mine[v]) > 1 else 0.0 for v in x]
                axes.errorbar(x, y, spread, fmt="o-", markersize=4, capsize=2, linewidth=1.5, label=family)
            axes.set_xscale("log", base=2)
            axes.set_xticks(values, [f"{v:g}" for v in values])
            axes.minorticks_off()
            axes.set_xlabel(names[axis])
            axes.grid(alpha=0.25)
        places[0].set_ylabel("bits per byte, whole validation split")
        places[0].legend(frameon=False, fontsize=9)
        figure.suptitle(
            "Characters of WikiText-2: one thing grows, the others stay at 1 million weights, 8 million "
            "characters, context 256; 3 seeds",
            fontsize=10,
        )
        figure.savefig(pictures / "length-overtake.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("copy", "overtake", "draw"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=KEPT)
    arguments = parser.parse_args()
    if arguments.one:
        case = json.loads(arguments.one)
        result = copy_case(**case) if arguments.what == "copy" else overtake_case(**case)
        sys.stdout.write(json.dumps({**case, **result}) + "\n")
        return
    kept = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.out.is_file() else {}
    if arguments.what != "draw":
        rows = kept.setdefault(arguments.what, [])
        for row in measure(arguments.what, arguments.jobs, rows):
            rows.append(row)
            keep(kept, arguments.out)
    draw(kept)


if __name__ == "__main__":
    main()
