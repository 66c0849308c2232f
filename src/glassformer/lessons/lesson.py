"""What a lesson is: a question, a table of numbers, what they say, and curves of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.figure import Figure

Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Curve:
    label: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True)
class Plot:
    title: str
    x: str  # what the axis is, with its unit
    y: str
    curves: list[Curve]
    log_x: bool = False
    log_y: bool = False

    def draw(self) -> Figure:
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        axes = figure.add_subplot()
        for curve in self.curves:
            style = "o:" if "without" in curve.label else "o-"
            axes.plot(curve.x, curve.y, style, markersize=3, linewidth=1.4, label=curve.label)
        if self.log_x:
            axes.set_xscale("log", base=2)
        if self.log_y:
            axes.set_yscale("log")
        axes.set_xlabel(self.x, fontsize=9)
        axes.set_ylabel(self.y, fontsize=9)
        axes.set_title(self.title, fontsize=10, loc="left")
        axes.legend(frameon=False, fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        return figure


@dataclass(frozen=True)
class Lesson:
    question: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    answer: list[str]  # sentences
    plot: Plot
    subject: str = ""  # what it was computed on
    figures: dict[str, float] = field(default_factory=dict)  # single numbers that the answer names

    def as_dict(self) -> dict[str, Any]:
        return {
            "question": self.question,
            "subject": self.subject,
            "rows": [dict(zip(self.columns, row, strict=True)) for row in self.rows],
            "figures": self.figures,
            "answer": " ".join(self.answer),
        }

    def show(self) -> str:
        cells = [list(self.columns), *([_cell(value) for value in row] for row in self.rows)]
        widths = [max(len(line[i]) for line in cells) for i in range(len(self.columns))]
        words = [all(isinstance(row[i], str) for row in self.rows) for i in range(len(self.columns))]
        lines = [
            "  ".join(
                cell.ljust(width) if left else cell.rjust(width)
                for cell, width, left in zip(line, widths, words, strict=True)
            ).rstrip()
            for line in cells
        ]
        about = [f"({self.subject})"] if self.subject else []
        return "\n".join([self.question, *about, "", *(f"  {line}" for line in lines), "", *self.answer])


def _cell(value: Cell) -> str:
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.3g}"
        case _:
            return str(value)


def times(ratio: float) -> str:
    """A ratio in words that a person can weigh."""
    if ratio == 0:
        return "nothing of it"
    if 0.5 <= ratio <= 2:
        return f"about as long ({ratio:.2f} times)"
    return f"{ratio:.3g} times as long"
