"""Runs side by side, as a table: in cells for a person, in numbers for a program.

Runs that differ in nothing but their seed are one line, with mean and standard deviation.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

# Settings that are no difference between models, or that have a column of their own.
NOT_COMPARED = {
    "training.seed",
    "training.sample_every",
    "training.checkpoint_every",
    "format_version",
    "task",
}
NOT_COMPARED |= {"data.source", "model.family", "model.attention"}
SETTINGS = "settings that differ"
MOST_SETTINGS = 5  # in a cell on a terminal; a page has room for all


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
    steps: int = 0
    settings: dict[str, Any] = field(default_factory=dict)  # all of them, by dotted name


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
            cells[row.data, name, number] = {"run": f"baseline: {name}", "data": row.data, score: number}
    return list(cells.values())


def differing(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Of each line, in order, the settings that are not the same in all; `varies`: not among its seeds."""
    each = [[row.settings for row in line.rows] for line in lines(rows)]
    keys = dict.fromkeys(key for line in each for settings in line for key in settings)
    found: list[dict[str, Any]] = [{} for _ in each]
    for key in (key for key in keys if key not in NOT_COMPARED):
        values = [
            line[0].get(key) if all(s.get(key) == line[0].get(key) for s in line) else "varies"
            for line in each
        ]
        if any(value != values[0] for value in values):
            for entry, value in zip(found, values, strict=True):
                entry[key] = value
    return found


def show_settings(settings: dict[str, Any], most: int | None = None) -> str:
    """`layers=2 lr=0.01`: with their sections where two have one name, and at most so many."""
    names = [key.rpartition(".")[2] for key in settings]
    shown = [
        f"{key if names.count(name) > 1 else name}={'none' if value is None else value}"
        for name, (key, value) in zip(names, settings.items(), strict=True)
    ]
    rest = len(shown) - len(shown[:most])
    return " ".join(shown[:most]) + (f" … {rest} more" if rest else "")


def table(rows: Sequence[Row], most: int | None = MOST_SETTINGS) -> tuple[list[str], list[list[str]]]:
    """Column names and cells; what a line does not have is empty. `most`: settings in a cell."""
    cells = [*(columns(line) for line in lines(rows)), *baseline_rows(rows)]
    for line, settings in zip(cells, differing(rows), strict=False):  # baselines have no settings
        if settings:
            line[SETTINGS] = show_settings(settings, most)
    names = list(dict.fromkeys(name for line in cells for name in line))
    if len({row.data for row in rows}) == 1:
        names.remove("data")
    names.sort(key=lambda name: name == SETTINGS)  # last, for it may be long
    return names, [[line.get(name, "") for name in names] for line in cells]


def as_dicts(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The table in numbers, one entry per line."""
    entries: list[dict[str, Any]] = []
    for line, settings in zip(lines(rows), differing(rows), strict=True):
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
                "steps": first.steps,
                "settings": settings,
                "score": {"name": first.score[0], "mean": value, "deviation": spread},
                "numbers": first.numbers if len(line.rows) == 1 else [r.numbers for r in line.rows],
                "seconds": line.mean(lambda r: r.seconds)[0],
                "tokens_per_second": line.mean(lambda r: r.tokens_per_second)[0],
                "operations": line.mean(lambda r: r.operations_per_token * r.tokens)[0],
                "floor": first.baselines,
            }
        )
    return entries


def _spread(mean: float, deviation: float, digits: int) -> str:
    return f"{mean:.{digits}f}" + (f" ± {deviation:.{digits}f}" if deviation else "")


def _common_prefix(names: Sequence[str]) -> str:
    """What all names begin with, without a dangling separator."""
    first, last = min(names), max(names)
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:length].rstrip("-_=,. ").removesuffix("seed").rstrip("-_=,. ") or "seeds"
