"""How deep a stack can be trained: norm before or after, residuals or none, warm-up or none.

    python benchmarks/depth.py                       all 32 runs, one after the other (half an hour on a CPU)
    python benchmarks/depth.py --jobs 12             side by side, where there are so many cores
    python benchmarks/depth.py --plot depth.json     only draw what was measured

Each run is a character model of Shakespeare with the plain block of the papers: GPT-2's initialisation,
Adam, no normalised queries. Only depth, norm placement, residual connections and warm-up differ. A run that
breaks (NaN, or no better than guessing by frequency) is drawn as a cross.
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

DEPTHS = (6, 12, 24, 48)
UNIGRAM = 3.35  # nats per character of a model that knows frequencies only
ROOT = Path(__file__).parents[1]


def settings(layers: int, placement: str, residual: bool, warmup: bool, steps: int) -> dict[str, Any]:
    return {
        "tokenizer.kind": "char",
        "model.layers": layers,
        "model.heads": 4,
        "model.width": 64,
        "model.context": 32,
        "model.placement": placement,
        "model.residual": residual,
        "model.init": "gpt2",
        "model.qk_norm": False,
        "model.position": "learned",
        "model.dropout": 0.0,
        "model.tied": True,
        "model.bias": True,
        "training.steps": steps,
        "training.batch": 16,
        "training.optimizer": "adamw",
        "training.lr": 1e-3,
        "training.clip": 0.0,
        "training.schedule": "constant",
        "training.warmup": steps // 4 if warmup else 0,
        "training.eval_every": steps,
        "training.checkpoint_every": 10 * steps,
        "training.sample_every": 0,
        "training.patience": 0,
        "training.compile": "off",
    }


def one(case: dict[str, Any]) -> None:
    """Train one case in this process and print its result."""
    import glassformer as gf

    with tempfile.TemporaryDirectory() as folder:
        try:
            run = gf.train("shakespeare", out=Path(folder) / "run", settings=settings(**case))
            loss = run.result["valid"]["loss"]
            grads = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
            first = next(g["grad_norm"] for g in grads if "grad_norm" in g)
        except gf.GlassformerError as error:
            loss, first = None, None
            sys.stderr.write(f"{case}: {error}\n")
    sys.stdout.write(json.dumps({**case, "loss": loss, "first_gradient": first}) + "\n")


def measure(jobs: int, steps: int) -> list[dict[str, Any]]:
    cases = [
        {"layers": n, "placement": p, "residual": r, "warmup": w, "steps": steps}
        for n, p, r, w in itertools.product(
            sorted(DEPTHS, reverse=True), ("pre", "post"), (True, False), (True, False)
        )
    ]

    def call(case: dict[str, Any]) -> dict[str, Any]:
        command = [sys.executable, __file__, "--one", json.dumps(case)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        sys.stderr.write(done.stdout)
        return json.loads(done.stdout.splitlines()[-1])

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(call, cases))


def plot(results: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, places = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained", sharey=True)
    for axes, residual in zip(places, (True, False), strict=True):
        for placement, colour in (("pre", "#1f5fa8"), ("post", "#c8501e")):
            for warmup, style in ((True, "-"), (False, "--")):
                mine = sorted(
                    (r["layers"], r["loss"])
                    for r in results
                    if (r["placement"], r["residual"], r["warmup"]) == (placement, residual, warmup)
                )
                x = [n for n, _ in mine]
                y = [min(loss, UNIGRAM + 0.1) if loss is not None else UNIGRAM + 0.1 for _, loss in mine]
                label = f"{placement}-norm, {'with' if warmup else 'no'} warm-up"
                axes.plot(x, y, style, color=colour, linewidth=1.6, label=label)
                sound = [(a, b) for a, b in zip(x, y, strict=True) if b < UNIGRAM - 0.02]
                broken = [(a, b) for a, b in zip(x, y, strict=True) if b >= UNIGRAM - 0.02]
                axes.plot(*zip(*sound, strict=True), "o", color=colour, markersize=5) if sound else None
                axes.plot(*zip(*broken, strict=True), "x", color=colour, markersize=9) if broken else None
        axes.axhline(UNIGRAM, color="#999999", linewidth=1, linestyle=":")
        axes.annotate("frequencies alone", (6, UNIGRAM), fontsize=8, color="#777777", va="bottom")
        axes.set_xscale("log", base=2)
        axes.set_xticks(DEPTHS, [str(d) for d in DEPTHS])
        axes.set_xlabel("layers")
        axes.set_title("with residual connections" if residual else "without residual connections")
        axes.grid(alpha=0.25)
    places[0].set_ylabel("validation loss, nats per character")
    places[0].legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "depth.json")
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    if arguments.one:
        one(json.loads(arguments.one))
        return
    if arguments.plot:
        results = json.loads(arguments.plot.read_text(encoding="utf-8"))
    else:
        results = measure(arguments.jobs, arguments.steps)
        arguments.out.write_text(
            "[\n" + ",\n".join(json.dumps(r) for r in results) + "\n]\n", encoding="utf-8"
        )
    plot(results, ROOT / "docs" / "pictures" / "depth.png")


if __name__ == "__main__":
    main()
