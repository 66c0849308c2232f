"""What a lesson is: a question, a table of numbers, what they say, and curves of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from glassformer.core.drawing import Drawing, use_logarithm

CROWDED, MARKED = 5, 40  # curves that fill a plot; points of one that have room for a mark each
Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Curve:
    label: str
    x: Sequence[float] | Sequence[str]  # names, where there is no order
    y: Sequence[float]
    of: str = ""  # curves of one thing have one colour


@dataclass(frozen=True)
class Plot:
    """Curves, and what their axes are."""

    title: str
    x: str  # what the axis is, with its unit
    y: str
    curves: list[Curve]
    log_x: bool = False
    log_y: bool = False

    def draw(self, subject: str = "") -> Drawing:
        many = len(self.curves) > CROWDED
        figure = Figure(figsize=(8.4 if many else 6.4, 4.0), layout="constrained")
        axes = figure.add_subplot()
        things = list(dict.fromkeys(curve.of or curve.label for curve in self.curves))
        for curve in self.curves:
            named = isinstance(curve.x[0], str) if len(curve.x) else False
            style = "" if named else ":" if "without" in curve.label else "-"
            marker = "o" if named or len(curve.x) <= MARKED else ""
            colour = f"C{things.index(curve.of or curve.label) % 10}"
            size = 6 if named else 3
            axes.plot(
                curve.x,
                curve.y,
                marker + style,
                markersize=size,
                linewidth=1.4,
                color=colour,
                label=curve.label,
            )
        if self.log_x:
            axes.set_xscale("log", base=2)
        elif all(isinstance(x, int) for curve in self.curves for x in curve.x):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if self.log_y:
            use_logarithm(axes, [y for curve in self.curves for y in curve.y])
        axes.set_xlabel(self.x, fontsize=9)
        axes.set_ylabel(self.y, fontsize=9)
        axes.set_title(self.title, fontsize=10, loc="left")
        if many:  # beside the curves, where it hides none of them
            figure.legend(frameon=False, fontsize=8, loc="outside right upper")
        else:
            axes.legend(frameon=False, fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        about = [self.title, f"across: {self.x}", f"upwards: {self.y}"]
        about.append(f"curves: {' | '.join(curve.label for curve in self.curves)}")
        return Drawing(figure, "; ".join([*about, *([f"computed on {subject}"] if subject else [])]) + ".")


@dataclass(frozen=True)
class Lesson:
    """A question about transformers, and its answer in numbers, words and curves."""

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

    def draw(self) -> Drawing:
        """Its curves, with a caption."""
        return self.plot.draw(self.subject)

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
