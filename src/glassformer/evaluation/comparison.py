"""Runs side by side: a table, and curves over steps, tokens, time and operations.

Runs that differ in nothing but their seed are one line, with mean and standard deviation.
"""

import html
import io
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from glassformer.core.terminal import caption

AXES = {"step": "steps", "tokens": "tokens", "seconds": "seconds of training", "operations": "operations"}
COLOURS = ("#1f5fa8", "#c8501e", "#2f8f4e", "#8a4fa8", "#b08a00", "#5a5a5a", "#d14a7c", "#2a9d9d")


@dataclass
class Row:
    """One run, as far as a comparison is concerned."""

    name: str
    task: str
    family: str
    group: str  # runs of one group differ in their seed alone
    parameters: int
    tokens: int
    seconds: float
    tokens_per_second: float
    operations_per_token: float  # of training
    numbers: dict[str, Any]  # as the evaluation gives them
    score: tuple[str, float, bool]  # name, value, whether more is better
    baselines: dict[str, float] = field(default_factory=dict)  # name → the same score
    curve: list[dict[str, float]] = field(default_factory=list)  # validation: step, tokens, seconds, score
    curve_name: str = "loss"  # what the curve's score is: BLEU is not measured along the way
    data: str = ""
    window: str = ""  # and stride, of a language model's evaluation
    lossless: bool = True  # False: unknown words cost nothing, so the score says less


@dataclass
class Line:
    """Runs of one group, as a line of the table."""

    rows: list[Row]

    @property
    def name(self) -> str:
        first = self.rows[0].name
        return (
            first
            if len(self.rows) == 1
            else f"{_common_prefix([r.name for r in self.rows])} × {len(self.rows)}"
        )

    def mean(self, value: Callable[[Row], float]) -> tuple[float, float]:
        """Over the runs, and the standard deviation: 0 of a single one."""
        values = [float(value(r)) for r in self.rows]
        return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def lines(rows: Sequence[Row]) -> list[Line]:
    """Groups in order, best first within a task and score."""
    groups: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.task, row.data, row.score[0], row.group), []).append(row)

    def order(line: Line) -> tuple[str, str, str, float]:
        first = line.rows[0]
        value, _ = line.mean(lambda r: r.score[1])
        return first.task, first.data, first.score[0], -value if first.score[2] else value

    return sorted((Line(group) for group in groups.values()), key=order)


def columns(line: Line) -> dict[str, str]:
    """The cells of a line, as a person reads them."""
    first = line.rows[0]
    score, _, _ = first.score
    cells = {
        "run": line.name,
        "model": first.family,
        "data": first.data,
        "parameters": f"{line.mean(lambda r: r.parameters)[0]:,.0f}",
        "tokens": f"{line.mean(lambda r: r.tokens)[0]:,.0f}",
        score: _spread(*line.mean(lambda r: r.score[1]), digits=2 if score == "BLEU" else 4),
    }
    if not first.lossless:
        cells[score] += " (<unk>)"
    if all("perplexity" in r.numbers for r in line.rows):
        cells["perplexity"] = _spread(*line.mean(lambda r: r.numbers["perplexity"]), digits=2)
    if all("exact_match" in r.numbers for r in line.rows):
        cells["exact match"] = _spread(*line.mean(lambda r: r.numbers["exact_match"]), digits=4)
    if all("bleu" in r.numbers for r in line.rows):  # what a tokenizer does to translation
        length = line.mean(lambda r: r.numbers["tokens"] / r.numbers["n"])[0]
        cells["tokens/sentence"] = f"{length:.1f}"
        unknown = line.mean(lambda r: r.numbers.get("unknown_share", 0.0))[0]
        cells["unknown"] = f"{unknown:.2%}"
    cells["tokens/s"] = f"{line.mean(lambda r: r.tokens_per_second)[0]:,.0f}"
    cells["seconds"] = _spread(*line.mean(lambda r: r.seconds), digits=1)
    if first.window:
        cells["window / stride"] = first.window
    cells["operations"] = f"{line.mean(lambda r: r.operations_per_token * r.tokens)[0]:.2e}"
    return cells


def baseline_rows(rows: Sequence[Row]) -> list[dict[str, str]]:
    """The baselines under the runs, each once, as cells of the same table."""
    cells: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in rows:
        score = row.score[0]
        for name, value in row.baselines.items():
            number = f"{value:.2f}" if score == "BLEU" else f"{value:.4f}"
            cells[row.data, name, number] = {"run": f"floor: {name}", "data": row.data, score: number}
    return list(cells.values())


def table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Column names and cells; what a line does not have is empty."""
    cells = [*(columns(line) for line in lines(rows)), *baseline_rows(rows)]
    names = list(dict.fromkeys(name for line in cells for name in line))
    if len({row.data for row in rows}) == 1:
        names.remove("data")
    return names, [[line.get(name, "") for name in names] for line in cells]


def as_dicts(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The table in numbers, one entry per line."""
    entries: list[dict[str, Any]] = []
    for line in lines(rows):
        first = line.rows[0]
        value, spread = line.mean(lambda r: r.score[1])
        entries.append(
            {
                "runs": [r.name for r in line.rows],
                "task": first.task,
                "family": first.family,
                "data": first.data,
                "parameters": first.parameters,
                "tokens": first.tokens,
                "score": {"name": first.score[0], "mean": value, "deviation": spread},
                "numbers": first.numbers if len(line.rows) == 1 else [r.numbers for r in line.rows],
                "seconds": line.mean(lambda r: r.seconds)[0],
                "tokens_per_second": line.mean(lambda r: r.tokens_per_second)[0],
                "operations": line.mean(lambda r: r.operations_per_token * r.tokens)[0],
                "floor": first.baselines,
            }
        )
    return entries


def plot(rows: Sequence[Row], kind: str = "svg") -> bytes:
    """The validation curves over steps, tokens, time and operations, as an SVG or PNG file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import EngFormatter

    score = rows[0].curve_name
    curves = [r for r in rows if (r.curve_name, r.data) == (score, rows[0].data) and len(r.curve) > 1]
    figure, grid = plt.subplots(2, 2, figsize=(11, 7.5), layout="constrained", sharey=True)
    baselines = rows[0].baselines if curves and rows[0].score[0] == score else {}
    groups = list(dict.fromkeys(r.group for r in curves))
    for axes, (axis, label) in zip(grid.flat, AXES.items(), strict=True):
        for row in curves:
            colour = COLOURS[groups.index(row.group) % len(COLOURS)]
            group = [r for r in curves if r.group == row.group]
            name = caption(Line(group).name) if row is group[0] else None  # in the legend once
            x = [_coordinate(row, point, axis) for point in row.curve]
            y = [point["score"] for point in row.curve]
            axes.plot(x, y, "o-", markersize=3, linewidth=1.4, color=colour, label=name)
        for name, value in baselines.items():
            axes.axhline(value, color="#999999", linestyle="--", linewidth=1)
            axes.annotate(
                name,
                (0.99, value),
                xycoords=("axes fraction", "data"),
                ha="right",
                va="bottom",
                fontsize=8,
                color="#777777",
            )
        axes.set_xlabel(label)
        if axis in ("tokens", "operations"):
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.grid(alpha=0.25)
        axes.set_ylabel(f"validation {score}" if axes in grid[:, 0] else "")
    scores = [*(p["score"] for r in curves for p in r.curve), *baselines.values()]
    if scores and score != "accuracy":  # the first steps must not flatten the rest
        grid.flat[0].set_ylim(min(scores) * 0.98, min(max(scores), min(scores) * 2.2))
    if curves:
        grid.flat[0].legend(frameon=False, fontsize=9)
    file = io.BytesIO()
    figure.savefig(file, format=kind, dpi=120)
    plt.close(figure)
    return file.getvalue()


def page(rows: Sequence[Row], title: str) -> str:
    """Table and curves as one HTML file that needs nothing else."""
    names, cells = table(rows)
    head = "".join(f"<th>{html.escape(n)}</th>" for n in names)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in line) + "</tr>" for line in cells)
    drawing = plot(rows).decode() if any(len(r.curve) > 1 for r in rows) else ""
    return PAGE.format(
        title=html.escape(title), head=head, body=body, drawing=drawing[drawing.find("<svg") :]
    )


PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ font: 14px/1.5 system-ui, sans-serif; color: #1c1f24; margin: 2rem auto; max-width: 84rem }}
body > * {{ margin-left: 1rem; margin-right: 1rem }}
div {{ overflow-x: auto }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }}
th, td {{ text-align: right; padding: .35rem .55rem; border-bottom: 1px solid #e3e6ea; white-space: nowrap }}
th {{ color: #5b6470; font-weight: 600 }}
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) {{ text-align: left }}
svg {{ width: 100%; height: auto; margin-top: 1.5rem }}
</style> <h1>{title}</h1>
<div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div> {drawing} </html>
"""


def _coordinate(row: Row, point: dict[str, float], axis: str) -> float:
    return point["tokens"] * row.operations_per_token if axis == "operations" else point[axis]


def _spread(mean: float, deviation: float, digits: int) -> str:
    return f"{mean:.{digits}f}" + (f" ± {deviation:.{digits}f}" if deviation else "")


def _common_prefix(names: Sequence[str]) -> str:
    """What all names begin with, without a dangling separator."""
    first, last = min(names), max(names)
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:length].rstrip("-_=,. ").removesuffix("seed").rstrip("-_=,. ") or "seeds"
