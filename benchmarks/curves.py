"""The curves of the recipes: what was kept of their trainings, and docs/curves.md with its picture.

    python benchmarks/curves.py keep RUN…     of finished runs, one for each recipe, into curves.json
    python benchmarks/curves.py draw          docs/curves.md and its picture from it (`make docs`)

Kept of a run are its training loss in at most POINTS pieces, every validation loss, what it ended at, and on
what it ran. A run is kept under the name of its folder, in place of what had that name before.
"""

import argparse
import json
import math
import sys
from pathlib import Path
from statistics import mean
from typing import Any

from glassformer.config.recipes import recipe_names
from glassformer.config.saved import load_config
from glassformer.core.drawing import Drawing
from glassformer.core.files import read_json
from glassformer.training.log import read_metrics

ROOT = Path(__file__).parents[1]
KEPT, PAGE, PICTURE = (
    ROOT / p for p in ("benchmarks/curves.json", "docs/curves.md", "docs/pictures/curves.png")
)
POINTS = 100  # of a training curve; each is the mean of the steps since the one before
COLUMNS = 3

INTRO = """# How the recipes learn

The training and validation loss of recipes (and of `glassformer train dates`), from the `metrics.jsonl` of
one run each. Training loss is what a step learns from: with dropout, and with the targets smoothed where the
recipe smooths them, so it may lie above the validation loss. Runs on a CPU had one thread of a machine that
others used, so their seconds are no measure. Made by `python benchmarks/curves.py draw` from
[curves.json](../benchmarks/curves.json), as are the figures below; what several seeds reach is in
[RESULTS.md](../benchmarks/RESULTS.md). `glassformer train --recipe NAME --out RUN` draws the same of a run
of yours, in `RUN/loss.png`.
"""


def curve_of(run: Path) -> dict[str, Any]:
    """What is kept of a run; of one that has not ended, what there is so far."""
    config, records = load_config(run / "config.yaml"), read_metrics(run / "metrics.jsonl")
    train = [r for r in records if r.get("split") == "train" and r.get("loss") is not None]
    valid = [r for r in records if r.get("split") == "valid" and r.get("loss") is not None]
    ends = sorted({round((i + 1) * len(train) / POINTS) for i in range(POINTS)} - {0})
    pieces = [train[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    result: dict[str, Any] = read_json(run / "result.json") if (run / "result.json").is_file() else {}
    return {
        "task": config.task,
        "seed": config.training.seed,
        "steps": config.training.steps,
        "device": result.get("environment", {}).get("device"),
        "seconds": result.get("seconds"),
        "score": result.get("score"),
        "train": [[p[-1]["step"], _short(mean(r["loss"] for r in p))] for p in pieces],
        "valid": [[r["step"], _short(r["loss"])] for r in valid],
    }


def _short(loss: float) -> float:
    return float(f"{loss:.5g}")


def keep(runs: list[Path], path: Path = KEPT) -> None:
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    kept |= {run.name: curve_of(run) for run in runs}
    lines = (f'"{name}": {json.dumps(kept[name])}' for name in sorted(kept))
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def drawing(kept: dict[str, dict[str, Any]]) -> Drawing:
    """A panel for each run, in the order of their names."""
    from matplotlib.figure import Figure

    rows = math.ceil(len(kept) / COLUMNS)
    figure = Figure(figsize=(4.2 * min(COLUMNS, len(kept)), 3.2 * rows), layout="constrained")
    for i, (name, run) in enumerate(sorted(kept.items())):
        axes = figure.add_subplot(rows, min(COLUMNS, len(kept)), i + 1)
        axes.plot(*zip(*run["train"], strict=True), color="#1f5fa8", linewidth=1.3, label="training")
        axes.plot(*zip(*run["valid"], strict=True), "o-", color="#c8501e", markersize=3, label="validation")
        losses = [loss for _, loss in [*run["train"][2:], *run["valid"]]]  # the first steps say little
        margin = 0.06 * (max(losses) - min(losses))
        axes.set_ylim(min(losses) - margin, max(losses) + margin)
        axes.set_title(name, fontsize=10)
        axes.grid(alpha=0.25)
        if i == 0:
            axes.legend(frameon=False, fontsize=9)
    figure.supxlabel("step of training", fontsize=10)
    figure.supylabel("nats per token, character or text", fontsize=10)
    lowest = "; ".join(f"{name} {min(v for _, v in run['valid']):.4g}" for name, run in sorted(kept.items()))
    return Drawing(
        figure, f"Training and validation loss of one run of each recipe; lowest on validation: {lowest}."
    )


def page(kept: dict[str, dict[str, Any]]) -> str:
    lines = [INTRO, f"![{drawing(kept).caption.rstrip('.')}](pictures/{PICTURE.name})\n"]
    lines.append("| run | steps | lowest validation loss, at step | validation at the end | on | training |")
    lines.append("|---|---|---|---|---|---|")
    for name, run in sorted(kept.items()):
        step, loss = min(run["valid"], key=lambda point: point[1])
        cells = [f"`{name}`, seed {run['seed']}", f"{run['steps']:,}", f"{loss:.4g}, {step:,}"]
        cells += [_score(run["score"]), run["device"] or "", _time(run["seconds"])]
        lines.append(f"| {' | '.join(cells)} |")
    missing = [name for name in recipe_names() if name not in kept]
    if missing:
        lines.append(f"\nNo curve is kept yet of {', '.join(f'`{name}`' for name in missing)}.")
    return "\n".join(lines) + "\n"


def _score(score: dict[str, Any] | None) -> str:
    """What result.json ended with, in words; of a run that did not get there, nothing."""
    return f"{score['name'].replace('_', ' ')} {score['value']:.4g}" if score else ""


def _time(seconds: float | None) -> str:
    return f"{seconds:.0f} s" if seconds else ""


def draw() -> None:
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    PICTURE.write_bytes(drawing(kept).render("png", dpi=100))
    PAGE.write_text(page(kept), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("keep", "draw"))
    parser.add_argument("runs", type=Path, nargs="*")
    arguments = parser.parse_args()
    if arguments.what == "draw":
        draw()
        return
    lacking = [str(run) for run in arguments.runs if not (run / "metrics.jsonl").is_file()]
    if lacking or not arguments.runs:
        sys.exit(
            f"expected runs, folders with a metrics.jsonl; not one: {', '.join(lacking) or 'none given'}"
        )
    keep(arguments.runs)


if __name__ == "__main__":
    main()
