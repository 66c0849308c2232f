"""Tables of mistakes, counted again by hand."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.evaluation.accuracy import Answers
from glassformer.evaluation.error_analysis import (
    WORST,
    Mistakes,
    Table,
    label_mistakes,
    text_mistakes,
    translation_mistakes,
)
from glassformer.evaluation.likelihood import TokenLosses

LABELS = ["no", "yes", "maybe"]


def show_ids(ids: np.ndarray) -> str:
    return " ".join(map(str, ids.tolist()))


def tables(mistakes: Mistakes) -> dict[str, Table]:
    return {table.title: table for table in mistakes.tables}


def answers(targets: list[int], predictions: list[int], probabilities: list[float] | None = None) -> Answers:
    n = len(targets)
    return Answers(
        np.arange(n),
        np.zeros(n, int),
        np.array(targets, int),
        np.ones(n),
        np.array(predictions, int),
        np.array(probabilities or [0.5] * n),
    )


def test_bins_of_depth_double() -> None:
    """1, 2–3, 4–7, 8–15, …, each with its mean."""
    depth = np.arange(1, 21)
    by_depth = text_mistakes([TokenLosses(depth, depth, depth.astype(float))], np.arange(21), None, show_ids)
    assert tables(by_depth)["loss by the tokens seen before"].rows == [
        ["1", 1, 1.0],
        ["2–3", 2, 2.5],
        ["4–7", 4, 5.5],
        ["8–15", 8, 11.5],
        ["16–31", 5, 18.0],
    ]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 5000), min_size=1, max_size=50))
def test_every_value_is_in_the_bin_of_its_size(frequency: list[int]) -> None:
    ids = np.arange(len(frequency) + 1)  # each once; the first is not predicted
    index = ids[1:]
    nats = index.astype(float)
    counts = np.array([0, *frequency])
    result = text_mistakes([TokenLosses(index, index, nats)], ids, counts, show_ids)
    rows = tables(result)["loss by how often a token is in the training text"].rows
    assert sum(n for _, n, _ in rows) == len(frequency)
    for name, n, mean in rows:
        low, _, high = name.partition("–")
        inside = [(int(low) <= f <= int(high or low)) for f in frequency]
        assert int(high or low) in (int(low), 2 * int(low) - 1)
        assert n == sum(inside) and mean == pytest.approx(nats[inside].mean())


def test_the_worst_predictions_are_sorted_and_show_what_came_before() -> None:
    ids = np.arange(100, 140)
    index = np.arange(1, 40)
    nats = np.where(index == 30, 9.0, np.where(index == 5, 8.0, index / 100))
    parts = [TokenLosses(index[:20], index[:20], nats[:20]), TokenLosses(index[20:], index[20:], nats[20:])]
    counts = np.zeros(140, int)
    counts[130] = 7
    table = tables(text_mistakes(parts, ids, counts, show_ids))["the worst predictions"]
    assert table.columns == ["nats", "token", "times in training", "after"]
    assert table.rows[0] == [9.0, "130", 7, show_ids(np.arange(114, 130))]  # sixteen tokens
    assert table.rows[1] == [8.0, "105", 0, "100 101 102 103 104"]  # all there are
    losses = [row[0] for row in table.rows]
    assert len(losses) == WORST and losses == sorted(losses, reverse=True)


def test_of_another_text_nothing_is_said_about_frequencies() -> None:
    result = text_mistakes(
        [TokenLosses(np.array([1]), np.array([1]), np.ones(1))], np.arange(2), None, show_ids
    )
    assert list(tables(result)) == ["loss by the tokens seen before", "the worst predictions"]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=60), st.integers(1, 60))
def test_confusions_are_counted(pairs: list[tuple[int, int]], cut: int) -> None:
    targets, predictions = ([pair[side] for pair in pairs] for side in (0, 1))
    parts = [answers(targets[:cut], predictions[:cut]), answers(targets[cut:], predictions[cut:])]
    table = label_mistakes(parts, LABELS, lambda row, place: "").tables[0]
    assert table.columns == ["", *LABELS, "right"]
    counts = Counter(pairs)
    for i, (name, *row, right) in enumerate(table.rows):
        assert name == LABELS[i] and row == [counts[i, j] for j in range(3)]
        assert right == pytest.approx(counts[i, i] / max(1, sum(row)))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.floats(0.01, 1)), min_size=1, max_size=30))
def test_the_surest_mistakes_come_first(triples: list[tuple[int, int, float]]) -> None:
    targets, predictions, probabilities = (list(column) for column in zip(*triples, strict=True))
    parts = [answers(targets, predictions, probabilities)]
    table = label_mistakes(parts, LABELS, lambda row, place: f"example {row}").tables[1]
    assert table.columns == ["probability", "said", "is", "text"]
    wrong = [i for i in range(len(triples)) if targets[i] != predictions[i]]
    wrong.sort(key=lambda i: -probabilities[i])
    assert table.rows == [
        [probabilities[i], LABELS[predictions[i]], LABELS[targets[i]], f"example {i}"] for i in wrong[:WORST]
    ]


def test_the_tables_of_a_translator() -> None:
    sources = ["a", "a b c", "a b", "a b c d e"]
    references = ["x", "x y z", "x y", "v w x y z"]
    hypotheses = ["x", "x", "x y z", "v w x y q"]
    result = tables(translation_mistakes(sources, references, hypotheses, [100.0, 20.0, 60.0, 70.0]))
    assert result["chrF by the words of the source"].rows == [
        ["1", 1, 100.0],
        ["2–3", 2, 40.0],
        ["4–7", 1, 70.0],
    ]
    lengths = result["translations against their references"]
    assert dict(lengths.rows) == {"as long": 2, "shorter": 1, "longer": 1}
    assert result["the worst translations"].rows == [
        [20.0, "a b c", "x", "x y z"],
        [60.0, "a b", "x y z", "x y"],
        [70.0, "a b c d e", "v w x y q", "v w x y z"],
        [100.0, "a", "x", "x"],
    ]


def test_a_table_is_aligned_and_cut_for_people() -> None:
    table = Table("title", ["name", "n", "text"], [["a", 5, "x\ny"], ["long name", 1234, "z" * 200]])
    assert table.show().splitlines() == [
        "title",
        "  name          n  text",
        "  a             5  x⏎y",
        f"  long name  1234  {'z' * 87}…",
    ]
    both = Mistakes([table, Table("other", ["share"], [[0.5]])])
    assert both.show() == table.show() + "\n\nother\n  share\n  0.500"
    assert both.as_dict()["title"][1] == {
        "name": "long name",
        "n": 1234,
        "text": "z" * 200,
    }  # numbers are whole
