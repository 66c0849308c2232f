"""What products in 8 bits cost: the same trainings in bf16 and in fp8, beside each other.

    python benchmarks/fp8.py train FOLDER     the trainings, on a GPU; then their losses into fp8.json
    python benchmarks/fp8.py keep FOLDER      only the latter, of those that are there; others stay
    python benchmarks/fp8.py draw             the picture of docs/training.md (`make docs`)

A model of six layers of width 768 on WikiText-2 in 8,192 BPE entries; all else as `train` has it.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import mean
from typing import Any

from glassformer.core.drawing import Drawing
from glassformer.training.log import read_metrics

ROOT = Path(__file__).parents[1]
KEPT, PICTURE = ROOT / "benchmarks/fp8.json", ROOT / "docs/pictures/fp8.png"
PRECISIONS, SEEDS = ("bf16", "fp8"), (0, 1)
SETTINGS = {
    "tokenizer.kind": "bpe", "tokenizer.vocab": 8192, "model.layers": 6, "model.heads": 12,
    "model.width": 768, "model.context": 512, "model.dropout": 0.1, "training.batch": 32,
    "training.steps": 1200, "training.eval_every": 200, "training.checkpoint_every": 1200,
}  # fmt: skip
PIECE = 20  # steps that a point of a training curve is the mean of
COLORS = {"bf16": "#1f5fa8", "fp8": "#c8501e"}


def train(folder: Path) -> None:
    for precision in PRECISIONS:
        for seed in SEEDS:
            settings = SETTINGS | {"training.precision": precision, "training.seed": seed}
            words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
            out = str(folder / f"{precision}-{seed}")
            command = [sys.executable, "-m", "glassformer", "train", "wikitext-2", *words, "--out", out]
            subprocess.run(command, check=True)


def keep(folder: Path) -> None:
    names = [f"{precision}-{seed}" for precision in PRECISIONS for seed in SEEDS]
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    for name in names:
        if (record := folder / name / "metrics.jsonl").exists():
            kept[name] = _curves(read_metrics(record))
    lines = (f'"{name}": {json.dumps(curves)}' for name, curves in kept.items())
    KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _curves(rows: list[dict[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    losses = {r["step"]: r["loss"] for r in rows if r["split"] == "train"}
    steps = max(losses, default=0) // PIECE * PIECE
    ends = range(PIECE, steps + 1, PIECE)
    return {
        "train": [(end, round(mean(losses[s] for s in range(end - PIECE + 1, end + 1)), 4)) for end in ends],
        "valid": [
            (r["step"], round(r["loss"], 4)) for r in rows if r["split"] == "valid" and r["step"] <= steps
        ],
    }


def alike(kept: dict[str, dict[str, Any]], precision: str) -> dict[int, list[float]]:
    """The validation losses of all seeds in a precision, at the steps where every run was measured."""
    steps = set.intersection(*({step for step, _ in curves["valid"]} for curves in kept.values()))
    runs = [dict(curves["valid"]) for name, curves in kept.items() if name.startswith(precision)]
    return {step: [run[step] for run in runs] for step in sorted(steps)}


def drawing(kept: dict[str, dict[str, Any]]) -> Drawing:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for name, curves in kept.items():
        precision, seed = name.split("-")
        line = "-" if seed == "0" else ":"
        axes.plot(*zip(*curves["train"], strict=True), line, color=COLORS[precision], linewidth=1.2)
        label = {"label": f"{precision}, training"} if seed == "0" else {}
        axes.lines[-1].set(**label)
        valid = axes.plot(*zip(*curves["valid"], strict=True), "o", color=COLORS[precision], markersize=5)
        valid[0].set(**({"label": f"{precision}, validation"} if seed == "0" else {}))
    axes.set(ylim=(2.2, 5.2), xlabel="step of training", ylabel="nats per token")
    axes.set_title("What products in 8 bits cost", fontsize=10)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=9)
    ends = {precision: alike(kept, precision) for precision in PRECISIONS}
    step = max(ends["bf16"])
    said = "; ".join(
        f"{precision} {mean(losses[step]):.3f} (mean of {len(losses[step])})"
        for precision, losses in ends.items()
    )
    caption = f"Training and validation loss in bf16 and fp8; validation at step {step}: {said}."
    return Drawing(figure, caption)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("train", "keep", "draw"))
    parser.add_argument("folder", type=Path, nargs="?")
    arguments = parser.parse_args()
    if arguments.what == "draw":
        PICTURE.write_bytes(drawing(json.loads(KEPT.read_text(encoding="utf-8"))).render("png", dpi=100))
        return
    if arguments.folder is None:
        parser.error(f"{arguments.what} needs the folder of the runs")
    if arguments.what == "train":
        train(arguments.folder)
    keep(arguments.folder)


if __name__ == "__main__":
    main()
