"""The loss curve of a run, as SVG and PNG."""

from pathlib import Path

from glassformer.core.files import replacing
from glassformer.core.terminal import caption
from glassformer.training.log import read_metrics


def plot_losses(metrics: Path, title: str) -> list[Path]:
    """Draw training and validation loss over steps beside `metrics`; nothing to draw makes no files."""
    records = [r for r in read_metrics(metrics) if r.get("loss") is not None]
    train = [(r["step"], r["loss"]) for r in records if r.get("split") == "train"]
    valid = [(r["step"], r["loss"]) for r in records if r.get("split") == "valid"]
    if len(train) < 2:
        return []
    from matplotlib.figure import Figure  # without pyplot: it belongs to the process, and takes long to load

    figure = Figure(figsize=(8, 4.5))
    axes = figure.add_axes((0.1, 0.11, 0.88, 0.81))  # fixed: finding a layout draws everything twice
    steps, losses = zip(*train, strict=True)
    axes.plot(steps, losses, color="#9db8d6", linewidth=0.8, label="train, each step")
    axes.plot(steps, _smooth(losses), color="#1f5fa8", linewidth=1.6, label="train, smoothed")
    if valid:
        axes.plot(*zip(*valid, strict=True), "o-", color="#c8501e", markersize=4, label="validation")
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats per token)")
    axes.set_title(caption(title))
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, loc="upper right")  # where a falling curve leaves room
    lowest, highest = min(losses), losses[0]
    if valid:
        lowest = min(lowest, min(v for _, v in valid))
    if highest > lowest:  # a spike must not flatten the curve
        axes.set_ylim(lowest - 0.05 * (highest - lowest), highest + 0.05 * (highest - lowest))
    paths = [metrics.with_name("loss.svg"), metrics.with_name("loss.png")]
    for path in paths:
        with replacing(path) as temporary:
            figure.savefig(temporary, format=path.suffix[1:], dpi=120)
    return paths


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
