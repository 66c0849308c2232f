"""Runs side by side: which are one line, in which order, in which words, and under which curves."""

import json
import math
import re
import statistics
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.evaluation.budgets import budget_notes, budgets
from glassformer.evaluation.comparison import (
    SETTINGS,
    Row,
    as_dicts,
    baseline_rows,
    columns,
    lines,
    show_settings,
    table,
)
from glassformer.evaluation.comparison_page import draw, page

PNG = b"\x89PNG\r\n\x1a\n"


def row(name: str, value: float = 1.0, group: str = "", **changes: Any) -> Row:
    """A language model's row, unless told otherwise; a group of its own unless told."""
    facts: dict[str, Any] = {
        "task": "language",
        "family": "transformer",
        "parameters": 1_234_567,
        "tokens": 1000,
        "seconds": 2.0,
        "tokens_per_second": 500.0,
        "operations_per_token": 6e6,
        "numbers": {"perplexity": 8.0 * value},
        "score": ("bits per byte", value, False),
        "data": "shakespeare",
        "window": "128 / 64",
    }
    return Row(name=name, group=group or name, **{**facts, **changes})


def curve(*scores: float) -> list[dict[str, float]]:
    return [
        {"step": 10.0 * i, "tokens": 100.0 * i, "seconds": float(i), "score": score}
        for i, score in enumerate(scores, 1)
    ]


def plot(rows: list[Row], kind: str = "svg") -> bytes:
    return draw(rows).render(kind)


def test_runs_that_differ_in_their_seed_alone_are_one_line() -> None:
    runs = [row(f"base-seed={i}", value, "base") for i, value in enumerate((1.0, 1.2, 1.7))]
    (line,) = lines(runs)
    assert line.rows == runs and line.name == "base × 3"
    assert line.mean(lambda r: r.score[1]) == (
        pytest.approx(1.3),
        pytest.approx(statistics.stdev((1, 1.2, 1.7))),
    )
    assert columns(line)["bits per byte"] == "1.3000 ± 0.3606"
    assert columns(line)["perplexity"] == "10.40 ± 2.88"


def test_runs_of_other_data_or_another_score_are_not_one_line() -> None:
    runs = [
        row("a", group="g"),
        row("b", group="g", data="pydocs"),
        row("c", group="g", score=("loss", 1.0, False)),
        row("d", group="g", task="masked"),
    ]
    assert sorted(line.name for line in lines(runs)) == ["a", "b", "c", "d"]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=8, unique=True), st.booleans())
def test_the_best_comes_first(values: list[float], more_is_better: bool) -> None:
    runs = [row(f"run {i}", v, score=("score", v, more_is_better)) for i, v in enumerate(values)]
    ordered = [line.rows[0].score[1] for line in lines(runs)]
    assert ordered == sorted(values, reverse=more_is_better)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.1, 10)), min_size=1, max_size=12))
def test_every_run_is_in_one_line_and_lines_are_means(pairs: list[tuple[str, float]]) -> None:
    runs = [row(f"{group}-seed={i}", value, group) for i, (group, value) in enumerate(pairs)]
    ordered = lines(runs)
    assert sorted(r.name for line in ordered for r in line.rows) == sorted(r.name for r in runs)
    means = [line.mean(lambda r: r.score[1])[0] for line in ordered]
    assert means == sorted(means)
    for line in ordered:
        own = [value for group, value in pairs if group == line.rows[0].group]
        mean, deviation = line.mean(lambda r: r.score[1])
        assert mean == pytest.approx(statistics.fmean(own))
        assert deviation == (pytest.approx(statistics.stdev(own)) if len(own) > 1 else 0.0)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["lr=1-seed=0", "lr=1-seed=1"], "lr=1 × 2"),
        (["big_seed_3", "big_seed_4", "big_seed_5"], "big × 3"),
        (["one", "two"], "seeds × 2"),
        (["same", "same"], "same × 2"),
        (["alone"], "alone"),
    ],
)
def test_a_line_is_called_what_its_runs_have_in_common(names: list[str], expected: str) -> None:
    assert lines([row(name, group="g") for name in names])[0].name == expected


def test_the_cells_of_a_line() -> None:
    assert columns(lines([row("a", 1.25)])[0]) == {
        "run": "a",
        "model": "transformer",
        "data": "shakespeare",
        "parameters": "1,234,567",
        "tokens": "1,000",
        "bits per byte": "1.2500",
        "perplexity": "10.00",
        "tokens/s": "500",
        "seconds": "2.0",
        "window / stride": "128 / 64",
        "operations": "6.00e+09",
    }
    translator = row("t", numbers={"exact_match": 0.25}, score=("BLEU", 41.236, True), window="")
    cells = columns(lines([translator])[0])
    assert cells["BLEU"] == "41.24" and cells["exact match"] == "0.2500"
    assert "perplexity" not in cells and "window / stride" not in cells
    measured = {"bleu": 41.2, "tokens": 140, "n": 10, "unknown_share": 0.0123}
    cells = columns(lines([row("t", numbers=measured, score=("BLEU", 41.2, True))])[0])
    assert cells["tokens/sentence"] == "14.0" and cells["unknown"] == "1.23%"
    assert columns(lines([row("w", lossless=False)])[0])["bits per byte"] == "1.0000 (<unk>)"


def test_each_baseline_is_there_once() -> None:
    same = {"5-gram, Kneser-Ney": 2.5}
    runs = [
        row("a", baselines=same),
        row("b", baselines=same),
        row("c", data="pydocs", baselines={"5-gram, Kneser-Ney": 2.0}),
    ]
    assert baseline_rows(runs) == [
        {"run": "baseline: 5-gram, Kneser-Ney", "data": "shakespeare", "bits per byte": "2.5000"},
        {"run": "baseline: 5-gram, Kneser-Ney", "data": "pydocs", "bits per byte": "2.0000"},
    ]
    copied = row("t", score=("BLEU", 40.0, True), baselines={"the source itself": 3.14159})
    assert baseline_rows([copied]) == [
        {"run": "baseline: the source itself", "data": "shakespeare", "BLEU": "3.14"}
    ]


def test_the_table_has_the_columns_of_all_lines_and_fills_gaps() -> None:
    runs = [row("b", 2.0, baselines={"5-gram": 3.0}), row("a", 1.0, numbers={}, window="")]
    names, cells = table(runs)
    assert names == [
        *("run", "model", "parameters", "tokens", "bits per byte", "tokens/s", "seconds", "operations"),
        *("perplexity", "window / stride"),
    ]
    assert [line[0] for line in cells] == ["a", "b", "baseline: 5-gram"]
    assert cells[0][-2:] == ["", ""] and cells[1][-2:] == ["16.00", "128 / 64"]
    assert cells[2] == ["baseline: 5-gram", "", "", "", "3.0000", "", "", "", "", ""]


def test_the_data_is_a_column_only_where_it_differs() -> None:
    assert "data" not in table([row("a"), row("b")])[0]
    assert "data" in table([row("a"), row("b", data="pydocs")])[0]


def test_the_numbers_of_compare_keep_their_keys() -> None:
    """`compare --json` prints these; scripts read them."""
    runs = [
        row("s-seed=0", 1.0, "s", baselines={"5-gram": 2.5}),
        row("s-seed=1", 2.0, "s", baselines={"5-gram": 2.5}),
    ]
    alone = row("t", 3.0)
    assert json.loads(json.dumps(as_dicts([*runs, alone]))) == [
        {
            "runs": ["s-seed=0", "s-seed=1"],
            "task": "language",
            "family": "transformer",
            "data": "shakespeare",
            "parameters": 1_234_567,
            "tokens": 1000,
            "steps": 0,
            "settings": {},
            "score": {"name": "bits per byte", "mean": 1.5, "deviation": math.sqrt(0.5)},
            "numbers": [{"perplexity": 8.0}, {"perplexity": 16.0}],
            "seconds": 2.0,
            "tokens_per_second": 500.0,
            "operations": 6e9,
            "floor": {"5-gram": 2.5},
        },
        {
            "runs": ["t"],
            "task": "language",
            "family": "transformer",
            "data": "shakespeare",
            "parameters": 1_234_567,
            "tokens": 1000,
            "steps": 0,
            "settings": {},
            "score": {"name": "bits per byte", "mean": 3.0, "deviation": 0.0},
            "numbers": {"perplexity": 24.0},
            "seconds": 2.0,
            "tokens_per_second": 500.0,
            "operations": 6e9,
            "floor": {},
        },
    ]


@pytest.fixture(scope="module")
def svg() -> str:
    """Two seeds of one run, another run, one without a curve and one of other data."""
    facts: dict[str, Any] = {"curve_name": "bits per byte", "baselines": {"5-gram": 2.5}}
    return plot(
        [
            row("base-seed=0", group="base", curve=curve(3.0, 2.0, 1.5), **facts),
            row("base-seed=1", group="base", curve=curve(3.1, 2.1), **facts),
            row("wide", curve=curve(2.9, 1.9, 1.4, 1.3), **facts),
            row("short", curve=curve(4.0), **facts),
            row("elsewhere", curve=curve(1.0, 0.5), **{**facts, "data": "pydocs"}),
        ]
    ).decode()


def test_the_plot_has_every_curve_on_every_axis(svg: str) -> None:
    """Counted by the points: matplotlib draws the marker of each as a use of one shape."""
    assert svg.lstrip().startswith("<?xml") and "</svg>" in svg
    assert "<!-- wide -->" in svg and "<!-- base × 2 -->" in svg  # matplotlib leaves the texts as comments
    assert "<!-- elsewhere -->" not in svg and "on this data: elsewhere" in svg  # the caption says so
    colours = {"#1f5fa8": 3 + 2, "#c8501e": 4, "#2f8f4e": 1}  # points of both seeds, of the other runs
    for colour, points in colours.items():
        uses = [u for u in re.findall(r"<use [^>]*>", svg) if f"stroke: {colour}" in u]
        assert len(uses) == 4 * points + 1  # four axes, and one in the legend
    assert svg.count("<!-- 5-gram -->") == 4
    for axis in ("steps of training", "tokens read", "seconds of training", "operations (floating-point)"):
        assert f"<!-- {axis} -->" in svg


def test_no_curve_leaves_the_axes() -> None:
    """A loser is seen to lose: once it was in the legend alone."""
    rows = [row("good", curve=curve(3.0, 1.1, 1.0)), row("bad", curve=curve(9.0, 8.0, 7.5))]
    for axes in draw(rows).figure.axes:
        low, high = axes.get_ylim()
        assert low < 1.0 and high > 9.0
        assert [line.get_label() for line in axes.lines] == ["good", "bad"]
    accuracy = row("a", curve=curve(0.0, 0.9), curve_name="accuracy")
    assert draw([accuracy]).figure.axes[0].get_yscale() == "linear"


def test_the_settings_that_differ_are_a_column() -> None:
    same = {"training.seed": 1, "model.heads": 4, "training.compile": "off"}
    runs = [
        row("a", 1.0, settings={**same, "model.layers": 2, "model.window": None}),
        row("b", 2.0, settings={**same, "model.layers": 4, "model.window": 8, "training.seed": 2}),
    ]
    names, cells = table(runs)
    assert names[-1] == SETTINGS
    assert [line[-1] for line in cells] == ["layers=2 window=none", "layers=4 window=8"]
    assert as_dicts(runs)[1]["settings"] == {"model.layers": 4, "model.window": 8}
    assert SETTINGS not in table([row("a", settings=same), row("b", settings=same)])[0]
    seeds = [row("c-seed=0", 3.0, "c", settings={"model.layers": n}) for n in (2, 3)]
    assert table([*seeds, row("a", settings={"model.layers": 2})])[1][-1][-1] == "layers=varies"
    assert show_settings({"a.x": 1, "b.x": 2, "b.y": 3}) == "a.x=1 b.x=2 y=3"
    assert show_settings({f"a.x{i}": i for i in range(9)}, 2) == "x0=0 x1=1 … 7 more"


def test_different_budgets_are_said() -> None:
    base = {"steps": 10, "tokens": 1000, "seconds": 60.0}
    assert budget_notes([row("a", **base), row("b", **{**base, "seconds": 90.0})]) == []  # speed has a column
    (note,) = budget_notes([row("a", **base), row("b", steps=20, tokens=2000, seconds=120.0)])
    assert note.startswith(
        "Different budgets: 10 to 20 steps and 1,000 to 2,000 tokens, in 1.0 to 2.0 minutes"
    )
    (note,) = budget_notes([row("a", **base), row("b", steps=20, tokens=2000, seconds=61.0)])
    assert note.startswith("Equal time")
    (note,) = budget_notes([row("a", **base), row("b", **{**base, "steps": 20, "seconds": 90.0})])
    assert note == "The same tokens in different steps: 10 to 20 steps."
    found = budgets([row("a", **base), row("b", **{**base, "tokens": 9}), row("c", data="pydocs", **base)])
    assert [(entry["data"], entry["same"]) for entry in found] == [("shakespeare", False), ("pydocs", True)]
    assert found[0]["tokens"] == [9, 1000]
    document = page([row("a", **base), row("b", steps=20, tokens=2000, seconds=200.0)], "t")
    assert "<strong>Note</strong>: Different budgets" in document


@pytest.mark.filterwarnings("error")
def test_the_plot_is_a_picture_file_too() -> None:
    assert plot([row("a", curve=curve(2.0, 1.0))], "png").startswith(PNG)
    assert plot([row("a")], "png").startswith(PNG)  # nothing to draw is no failure


def test_baselines_are_drawn_only_where_they_are_of_the_curve() -> None:
    """A translator's baseline is a BLEU; along the way its loss is measured."""
    run = row("t", score=("BLEU", 40.0, True), baselines={"the source itself": 3.0}, curve=curve(3.0, 2.0))
    assert "the source itself" not in plot([run]).decode()


def test_the_page_escapes_what_it_shows_and_needs_nothing_else() -> None:
    document = page([row("<b>&run</b>", curve=curve(2.0, 1.0), lossless=False)], "<i>title</i>")
    assert "<td>&lt;b&gt;&amp;run&lt;/b&gt;</td>" in document and "<td>1.0000 (&lt;unk&gt;)</td>" in document
    assert "<title>&lt;i&gt;title&lt;/i&gt;</title>" in document
    assert "<b>" not in document and "<i>" not in document
    assert document.count("<svg") == 1 and "<?xml" not in document and "<script" not in document
    assert "<svg" not in page([row("a")], "no curves")
