"""Runs side by side, in pictures: curves over steps, tokens, time and operations; a page with the table."""

import html
from collections.abc import Sequence

from glassformer.core.drawing import Drawing, use_logarithm
from glassformer.core.terminal import caption
from glassformer.evaluation.budgets import budget_notes
from glassformer.evaluation.comparison import SETTINGS, Line, Row, table

AXES = {
    "step": "steps of training",
    "tokens": "tokens read",
    "seconds": "seconds of training",
    "operations": "operations (floating-point)",
}
COLOURS = ("#1f5fa8", "#c8501e", "#2f8f4e", "#8a4fa8", "#b08a00", "#5a5a5a", "#d14a7c", "#2a9d9d")
STYLES = ("-", "--", ":", "-.")  # one for each time round the colours
UNITS = {"loss": "nats per token", "accuracy": "share of all"}
WIDE = 1.5  # largest over smallest score from which an axis is logarithmic: the first steps flatten nothing


def draw(rows: Sequence[Row]) -> Drawing:
    """The validation curves, all of them whole."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    score, data = rows[0].curve_name, rows[0].data
    curves = [r for r in rows if (r.curve_name, r.data) == (score, data) and r.curve]
    figure = Figure(figsize=(11, 8.2), layout="constrained")
    grid = figure.subplots(2, 2, sharey=True)
    baselines = rows[0].baselines if curves and rows[0].score[0] == score else {}
    groups = list(dict.fromkeys(r.group for r in curves))
    for axes, (axis, label) in zip(grid.flat, AXES.items(), strict=True):
        for row in curves:
            place = groups.index(row.group)
            group = [r for r in curves if r.group == row.group]
            axes.plot(
                [_coordinate(row, point, axis) for point in row.curve],
                [point["score"] for point in row.curve],
                STYLES[place // len(COLOURS) % len(STYLES)],
                marker="o",
                markersize=3,
                linewidth=1.4,
                color=COLOURS[place % len(COLOURS)],
                label=caption(Line(group).name) if row is group[0] else None,  # in the legend once
            )
        for name, value in baselines.items():
            axes.axhline(value, color="#999999", linestyle="--", linewidth=1)
            axes.annotate(
                caption(name),
                (0.99, value),
                xycoords=("axes fraction", "data"),
                ha="right",
                va="bottom",
                fontsize=8,
                color="#777777",
            )
        axes.set_xlabel(label)
        axes.set_title(f"over {label.partition(' ')[0]}", fontsize=10, loc="left")
        if axis in ("tokens", "operations"):
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.grid(alpha=0.25)
        unit = UNITS.get(score)
        axes.set_ylabel(f"validation {score}" + (f" ({unit})" if unit else ""))
    scores = [*(p["score"] for r in curves for p in r.curve), *baselines.values()]
    if scores and max(scores) > WIDE * min(scores) > 0:
        use_logarithm(grid.flat[0], scores)
    figure.suptitle(f"Validation {score} on {caption(data)}" if data else f"Validation {score}", fontsize=12)
    if curves:
        figure.legend(
            *grid.flat[0].get_legend_handles_labels(),
            loc="outside lower center",
            ncols=min(4, len(groups)),
            frameon=False,
            fontsize=9,
        )
    return Drawing(figure, _caption(rows, curves, score))


def _caption(rows: Sequence[Row], curves: Sequence[Row], score: str) -> str:
    lower = "higher" if rows[0].score[0] == score and rows[0].score[2] else "lower"
    floor = "; dashed, what models that know next to nothing reach" if rows[0].baselines else ""
    left = [row.name for row in rows if not any(row is r for r in curves)]
    missing = f"; not drawn, having no such curve on this data: {', '.join(left)}" if left else ""
    return (
        f"The validation {score} of each run as it was trained, over steps, tokens, seconds and operations "
        f"({lower} is better{floor}{missing})."
    )


def page(rows: Sequence[Row], title: str) -> str:
    """Table and curves as one HTML file that needs nothing else."""
    drawing = ""
    if any(r.curve for r in rows):
        drawn = draw(rows)
        picture = drawn.render("svg").decode()
        picture = picture[picture.find("<svg") :]
        drawing = f"<figure>{picture}<figcaption>{html.escape(drawn.caption)}</figcaption></figure>"
    return PAGE.format(title=html.escape(title), table=table_html(rows), drawing=drawing)


def table_html(rows: Sequence[Row]) -> str:
    """The table and what has to be said under it."""
    names, cells = table(rows, most=None)
    marks = [' class="settings"' if name == SETTINGS else "" for name in names]
    head = "".join(f"<th{mark}>{html.escape(n)}</th>" for n, mark in zip(names, marks, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{m}>{html.escape(c)}</td>" for c, m in zip(line, marks, strict=True)) + "</tr>"
        for line in cells
    )
    notes = "".join(f"<p><strong>Note</strong>: {html.escape(note)}</p>" for note in budget_notes(rows))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"


PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
* {{ box-sizing: border-box }}
body {{ font: 14px/1.45 system-ui, sans-serif; color: #1c1f24 }}
body {{ margin: 0 auto; padding: 1.5rem; max-width: 84rem }}
div {{ overflow-x: auto }}
table {{ border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums }}
th, td {{ text-align: right; padding: .35rem .5rem; border-bottom: 1px solid #e3e6ea; vertical-align: top }}
td {{ white-space: nowrap }}
th {{ color: #5b6470; font-weight: 600 }}
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) {{ text-align: left }}
td:first-child, td.settings {{ white-space: normal; overflow-wrap: anywhere; min-width: 9rem }}
.settings {{ text-align: left }}
figure {{ margin: 1.5rem 0 0 }}
figcaption {{ color: #5b6470 }}
svg {{ display: block; width: 100%; height: auto }}
</style>
<h1>{title}</h1>
<div>{table}</div>
{drawing}
</html>
"""


def _coordinate(row: Row, point: dict[str, float], axis: str) -> float:
    return point["tokens"] * row.operations_per_token if axis == "operations" else point[axis]
