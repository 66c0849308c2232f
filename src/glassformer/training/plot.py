"""The loss curve of a run, as SVG and PNG, with its caption."""

from pathlib import Path
from typing import Any

from glassformer.core.drawing import Drawing
from glassformer.core.terminal import caption
from glassformer.training.log import read_metrics


def plot_losses(metrics: Path, title: str, per: str = "token") -> list[Path]:
    """Draw training and validation loss over steps beside `metrics`; nothing to draw makes no files."""
    drawing = draw_losses(read_metrics(metrics), title, per)
    return [] if drawing is None else drawing.save(metrics.with_name("loss"), dpi=120, tight=False)


def draw_losses(records: list[dict[str, Any]], title: str, per: str = "token") -> Drawing | None:
    """`per`: what a loss is the mean over."""
    records = [r for r in records if r.get("loss") is not None]
    train = [(r["step"], r["loss"]) for r in records if r.get("split") == "train"]
    valid = [(r["step"], r["loss"]) for r in records if r.get("split") == "valid"]
    if len(train) < 2:
        return None
    from matplotlib.figure import Figure  # without pyplot: it belongs to the process, and takes long to load

    figure = Figure(figsize=(8, 4.5))
    axes = figure.add_axes((0.1, 0.11, 0.88, 0.81))  # fixed: finding a layout draws everything twice
    steps, losses = zip(*train, strict=True)
    axes.plot(steps, losses, color="#9db8d6", linewidth=0.8, label="training, each step")
    axes.plot(steps, _smooth(losses), color="#1f5fa8", linewidth=1.6, label="training, smoothed")
    if valid:
        axes.plot(*zip(*valid, strict=True), "o-", color="#c8501e", markersize=4, label="validation")
    axes.set_xlabel("step of training")
    axes.set_ylabel(f"loss (nats per {per})")
    axes.set_title(f"Loss of {caption(title)}")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, loc="upper right")  # where a falling curve leaves room
    measured = [v for _, v in valid]
    lowest, highest = min([*losses, *measured]), max([losses[0], *measured])
    if highest > lowest:  # a spike of training must not flatten the curve
        axes.set_ylim(lowest - 0.05 * (highest - lowest), highest + 0.05 * (highest - lowest))
    best = f"; the lowest validation loss is {min(measured):.4f}" if measured else ""
    both = "training and validation loss" if valid else "training loss"
    return Drawing(figure, f"The {both} of {title} in nats per {per}, over {steps[-1]:,} steps{best}.")


def _smooth(values: tuple[float, ...]) -> list[float]:
    """A running mean over a hundredth of the curve, corrected for its start."""
    keep = 1 - 1 / max(2, len(values) / 100)
    out: list[float] = []
    total = weight = 0.0
    for value in values:
        total = keep * total + (1 - keep) * value
        weight = keep * weight + (1 - keep)
        out.append(total / weight)
    return out
