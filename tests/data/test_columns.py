"""Tables of one's own: which column is what, which rows count, and what a person is told."""

import random
from pathlib import Path
from typing import Any

import pytest

from glassformer.core.errors import DataError, UsageError
from glassformer.data.columns import TableWish, find_columns
from glassformer.data.datasets import load_dataset, task_of
from glassformer.data.examples import divide_examples
from glassformer.data.tables import own_examples, read_examples, read_table
from glassformer.runs.asked import gather_asked

TEXTS = [f"a film that is number {i} of all" for i in range(40)]
LABELS = [("good", "bad", "so-so")[i % 3] for i in range(40)]


def table(path: Path, columns: list[list[str]], header: str = "") -> Path:
    lines = [header] * bool(header) + ["\t".join(row) for row in zip(*columns, strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return path


IDS = [str(i) for i in range(40)]
EXPECTED = list(zip(TEXTS, LABELS, strict=True))


@pytest.mark.parametrize(
    ("columns", "header", "says"),
    [
        ([TEXTS, LABELS], "", ""),
        ([LABELS, TEXTS], "", "text is taken from column 2, the label from column 1"),
        (
            [LABELS, TEXTS],
            "what\tfilm",
            r"column 2 \(film\).*column 1 \(what\) and the first line as their names",
        ),
        ([TEXTS, LABELS], "film\twhat", "the first line as their names"),
        ([IDS, LABELS, TEXTS], "", "text is taken from column 3, the label from column 2"),
        ([LABELS, TEXTS], "label\ttext", ""),
        ([IDS, TEXTS, LABELS], "id\treview\trating", ""),
        ([IDS, TEXTS, LABELS], "id\twords\tlabel", r"column 2 \(words\)"),
    ],
)
def test_columns_are_found(tmp_path: Path, columns: list[list[str]], header: str, says: str) -> None:
    found = read_table(table(tmp_path / "a.tsv", columns, header), "classify")
    assert found.examples == EXPECTED
    if says:
        with pytest.raises(AssertionError, match=says):
            raise AssertionError(found.notes[0])
    else:
        assert found.notes == []


def test_columns_are_named_by_the_user(tmp_path: Path) -> None:
    other = ["x" if i % 2 else "y" for i in range(40)]
    path = table(tmp_path / "a.tsv", [other, IDS, TEXTS, LABELS], "first\tid\tfilm\twhat")
    with pytest.raises(DataError, match=r"4 columns.*not clear.*data.label_column.*1 first, 2 id, 3 film"):
        read_examples(path, "classify")
    for wish in (TableWish("film", "What"), TableWish("3", "4"), TableWish(label_column="what")):
        assert read_examples(path, "classify", None, wish) == EXPECTED
    assert read_examples(path, "classify", None, TableWish("film", "1"))[:2] == [
        (TEXTS[0], "y"),
        (TEXTS[1], "x"),
    ]
    with pytest.raises(DataError, match=r"label_column.: .whatever.*there is no such column"):
        read_examples(path, "classify", None, TableWish(label_column="whatever"))
    with pytest.raises(DataError, match="cannot be both"):
        read_examples(path, "classify", None, TableWish("film", "film"))
    (tmp_path / "a.jsonl").write_text('{"film": "f", "what": 1, "text": "t", "label": 2}\n')
    assert read_examples(tmp_path / "a.jsonl", "classify", None, TableWish("film", "what")) == [("f", "1")]


def test_known_labels_say_which_column_they_are_in() -> None:
    """A run made when the second column was always the label finds it there again."""
    rows = [[LABELS[i], TEXTS[i]] for i in range(40)]
    found = find_columns("", rows, "classify", TableWish(labels=tuple(TEXTS)))
    assert (found.first, found.second, found.header) == (0, 1, False)


def test_rows_without_a_label_are_left_out_and_counted(tmp_path: Path) -> None:
    labels = ["" if i in (0, 7, 30) else label for i, label in enumerate(LABELS)]
    path = table(tmp_path / "a.tsv", [TEXTS, labels])
    examples = own_examples(str(path), "classify", None, 0.1, 0.1)
    assert len(examples.whole().splits["all"]) == 37
    assert "3 of 40 rows have no label and were left out (line 1, 8, 31)" in examples.warnings[0]
    assert len(read_examples(path, "classify", None, TableWish(labels=("", "good", "bad", "so-so")))) == 40
    (tmp_path / "a.jsonl").write_text('{"text": "a", "label": null}\n{"text": "b", "label": "x"}\n')
    assert read_examples(tmp_path / "a.jsonl", "classify") == [("b", "x")]


def test_a_table_says_what_it_is_for(tmp_path: Path) -> None:
    draw = random.Random(0)
    labelled = table(tmp_path / "a.tsv", [LABELS, TEXTS])
    headed = table(tmp_path / "h.tsv", [IDS, TEXTS, LABELS], "id\ttext\tlabel")
    pairs = table(tmp_path / "p.tsv", [TEXTS, [text.upper() for text in TEXTS]])
    numbers = table(tmp_path / "n.tsv", [TEXTS, [str(draw.random()) for _ in TEXTS]])
    tagged = table(tmp_path / "t.tsv", [["sun", "rain"] * 20, ["good", "bad"] * 20])
    ragged = tmp_path / "r.tsv"
    ragged.write_text("a list\twith 2\n" * 20 + "and a line without\n")
    assert [task_of(str(path)) for path in (labelled, headed)] == ["classify", "classify"]
    assert {task_of(str(path)) for path in (pairs, numbers, tagged, ragged)} == {"language"}
    assert load_dataset(labelled).rule.startswith("by a hash of the input")
    said: list[str] = []
    for path in (labelled, pairs):
        gather_asked(path, None, None, None, None, say=said.append)
    assert "taken for texts with labels (--task classify); for plain text say --task language" in said[0]
    assert "read as plain text; for labels say --task classify" in said[1]
    gather_asked(labelled, "language", None, None, None, say=said.append)
    assert len(said) == 3 and "has seen labels" in said[2]
    assert gather_asked(pairs, None, None, None, {"data.label_column": 2})["task"] == "classify"
    with pytest.raises(UsageError, match=r"data.label_column is of a table to classify"):
        gather_asked(pairs, "language", None, None, {"data.label_column": 2})


def test_of_few_examples_some_are_held_out(tmp_path: Path) -> None:
    """By chance the hash chooses none of these fourteen."""
    few = [(f"text {i}", "ab"[i % 2]) for i in range(9, 300)]
    none = next(
        few[at : at + 14]
        for at in range(270)
        if not any(divide_examples([e], 0.05, 0.0)[0]["valid"] for e in few[at : at + 14])
    )
    splits, _ = divide_examples(none, 0.05, 0.0)
    assert len(splits["valid"]) == 1 and len(splits["train"]) == 13
    assert not divide_examples(none[:8], 0.05, 0.0)[0]["valid"]


@pytest.mark.parametrize(
    ("row", "columns"), [(["hello there you", "1"], ("1", "2")), (["2", "hello there you"], ("2", "1"))]
)
def test_a_number_is_a_place_also_where_the_first_line_holds_it(row: list[str], columns: Any) -> None:
    found = find_columns("t", [row, *([*row] for _ in range(20))], "classify", TableWish(*columns))
    assert (found.first, found.second) == tuple(int(c) - 1 for c in columns) and not found.header


def test_a_label_that_is_called_like_a_column_is_no_header() -> None:
    rows = [[f"a great product number {i}", ("comment", "question")[i % 2]] for i in range(40)]
    found = find_columns("t", rows, "classify")
    assert (found.first, found.second, found.header) == (0, 1, False)
