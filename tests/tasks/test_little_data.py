"""Little data, and labels that are no labels: what is made of them, and what a person is told."""

from pathlib import Path

import numpy as np
import pytest

import glassformer as gf
from glassformer.config.data import DataConfig
from glassformer.core.errors import DataError
from glassformer.core.files import in_bytes
from glassformer.data.datasets import open_corpus
from glassformer.data.examples import Examples
from glassformer.evaluation.accuracy import classification
from glassformer.evaluation.likelihood import Likelihood
from glassformer.tasks.classifier import ClassifyTask
from glassformer.tasks.language_model import LanguageTask
from glassformer.tokenizers.load import Byte
from glassformer.training.display import Display


def classifier(labels: list[str]) -> ClassifyTask:
    examples = [(f"text {i}", label) for i, label in enumerate(labels)]
    splits = {"train": examples[:-5], "valid": examples[-5:]}
    return ClassifyTask(Examples("mine.tsv", splits, ""), Byte(), DataConfig())


def test_numbers_on_a_scale_and_too_many_labels_are_named() -> None:
    (line,) = classifier([f"{i % 100 / 7:.3f}" for i in range(500)]).report()
    assert "100 different numbers" in line and "regression" in line
    (line,) = classifier([f"name {i % 200}" for i in range(505)]).report()
    assert "200 labels for 500 training examples, 2.5 for each" in line
    with pytest.raises(DataError, match=r"500 different labels, none of them twice.*data.label_column"):
        classifier([str(i / 7) for i in range(500)]).settings()
    assert classifier([str(i % 5) for i in range(500)]).report() == []  # stars are classes


def test_what_the_majority_scores_is_said() -> None:
    (line,) = classifier(["spam"] * 4 + ["ham"] * 101).report()
    assert "96.0% of the training labels are 'ham'" in line and "majority" in line
    assert classifier(["ham"] * 70 + ["spam"] * 30).report() == []


@pytest.mark.parametrize(
    ("size", "words"), [(140, "140 bytes"), (3210, "3.2 KB"), (98_000, "98.0 KB"), (2_280_000, "2.28 MB")]
)
def test_sizes_are_read_by_people(size: int, words: str) -> None:
    assert in_bytes(size) == words


def test_scores_have_the_digits_that_their_data_gives_them() -> None:
    few, many = (Likelihood.from_nats("valid", 2.0 * n, n, n, 8, 8) for n in (140, 14_000))
    assert few.summary() == (
        "loss 2.00  perplexity 7.4  2.89 bits/byte (of 140 bytes only: on other text it may differ much)"
    )
    assert many.summary() == "loss 2.0000  perplexity 7.39  2.8854 bits/byte"
    few_right, many_right = (classification("valid", np.ones(n), np.arange(n) % 3 > 0) for n in (12, 1200))
    assert few_right.summary() == "loss 1.00  accuracy 67% of 12"
    assert many_right.summary() == "loss 1.0000  accuracy 66.67%"
    assert ("accuracy", "67%  (95 %: 39% to 86%)") in few_right.table()


class Notes(Display):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)


def test_three_kilobytes_are_trained_on_and_called_so(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"Line {i} of {i * i} in all.\n" for i in range(130)))
    small = {"model.layers": 1, "model.width": 16, "model.heads": 2, "model.context": 16, "training.steps": 2}
    notes = Notes()
    gf.train(tmp_path / "a.txt", out=tmp_path / "run", settings=small, display=notes)
    (data,) = [line for line in notes.lines if line.startswith("Data:")]
    assert " KB to train on" in data and "0.00" not in data and " 0 KB" not in data


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("too little\n" * 12, r"127 tokens to train on, and at least 256 are needed.*Give more text"),
        ("a b c d e f " * 30 + "\n" + "x" * 8, r"nothing was left to validate on.*data\.valid.: 0\.2"),
    ],
)
def test_too_little_says_what_is_needed(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    task = LanguageTask(open_corpus(str(tmp_path / "a.txt"), 0.02, 0.02), Byte(), DataConfig())
    with pytest.raises(DataError, match=message):
        task.settings()
