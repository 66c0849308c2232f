"""Accuracy and its interval, on models whose answers are known."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.data.shards import Tokens
from glassformer.evaluation.accuracy import (
    BATCH_TOKENS,
    Classification,
    answers,
    evaluate_labels,
    evaluate_masked,
    length_batches,
    masked_answers,
)
from glassformer.evaluation.result import wilson
from glassformer.objectives.labelling import Labelling
from glassformer.objectives.loss import NOT_SCORED
from glassformer.objectives.masked import MaskedModelling
from tests.evaluation.fakes import FirstLookup, Lookup, log_table

TABLE = log_table([0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5])  # id → probabilities of three labels


def tagging(inputs: list[list[int]], labels: list[list[int]]) -> Labelling:
    return Labelling("tag", [np.array(x) for x in inputs], [np.array(y) for y in labels])


@pytest.mark.parametrize(
    ("right", "n", "below", "above"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (20, 20, 0.8389, 1.0),
    ],
)
def test_the_wilson_interval_has_its_known_values(right: int, n: int, below: float, above: float) -> None:
    """Those of Newcombe (1998), table I."""
    assert wilson(right, n) == (pytest.approx(below, abs=1e-4), pytest.approx(above, abs=1e-4))


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_the_ends_of_the_interval_are_z_deviations_from_what_was_seen(data: st.DataObject) -> None:
    """How the interval is defined: at its ends p, |right/n − p| = z √(p(1 − p)/n)."""
    n = data.draw(st.integers(1, 10_000))
    right = data.draw(st.integers(0, n))
    for p in wilson(right, n):
        assert 0 <= p <= 1
        assert n * (right / n - p) ** 2 == pytest.approx(1.96**2 * p * (1 - p), rel=1e-9, abs=1e-9)
    low, high = wilson(right, n)
    assert low - 1e-12 <= right / n <= high + 1e-12
    mirrored = wilson(n - right, n)
    assert mirrored == (pytest.approx(1 - high, abs=1e-12), pytest.approx(1 - low, abs=1e-12))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 3000), max_size=60))
def test_batches_by_length_hold_every_example_once(lengths: list[int]) -> None:
    batches = list(length_batches(lengths))
    order = [i for batch in batches for i in batch]
    assert sorted(order) == list(range(len(lengths)))
    assert [lengths[i] for i in order] == sorted(lengths)
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= BATCH_TOKENS


def test_answers_of_a_tagger_are_those_of_its_table() -> None:
    """Padding and positions without a label are left out; each answer knows its example and position."""
    objective = tagging([[0, 1, 2], [2, 0]], [[0, NOT_SCORED, 0], [2, 1]])
    (result,) = answers(Lookup(TABLE), objective)  # the shorter example first
    assert result.rows.tolist() == [1, 1, 0, 0]
    assert result.positions.tolist() == [0, 1, 0, 2]
    assert result.targets.tolist() == [2, 1, 0, 0]
    assert result.predictions.tolist() == [2, 0, 0, 2]
    np.testing.assert_allclose(result.probabilities, [0.5, 0.7, 0.7, 0.5], rtol=1e-6)
    np.testing.assert_allclose(result.nats, -np.log([0.5, 0.2, 0.7, 0.25]), rtol=1e-6)


def test_answers_of_a_classifier_are_one_for_each_example() -> None:
    inputs, labels = [np.array([1, 0, 0]), np.array([2]), np.array([0, 1])], [np.array(y) for y in (1, 0, 0)]
    (result,) = answers(FirstLookup(TABLE), Labelling("classify", inputs, labels))
    assert result.rows.tolist() == [1, 2, 0] and result.positions.tolist() == [0, 0, 0]
    assert result.predictions.tolist() == [2, 0, 1] and result.targets.tolist() == [0, 0, 1]
    np.testing.assert_allclose(result.nats, -np.log([0.25, 0.7, 0.6]), rtol=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=12))
def test_accuracy_and_loss_are_means_over_all_labels(inputs: list[list[int]]) -> None:
    draw = np.random.default_rng(sum(map(len, inputs)))
    labels = [draw.integers(0, 3, len(x)).tolist() for x in inputs]
    result = evaluate_labels(Lookup(TABLE), tagging(inputs, labels), "valid")
    pairs = [(i, y) for x, ys in zip(inputs, labels, strict=True) for i, y in zip(x, ys, strict=True)]
    right = sum(int(TABLE[i].argmax()) == y for i, y in pairs)
    assert (result.split, result.n) == ("valid", len(pairs))
    assert result.accuracy == pytest.approx(right / len(pairs))
    assert result.loss == pytest.approx(-sum(TABLE[i, y].item() for i, y in pairs) / len(pairs), rel=1e-5)
    assert result.interval == wilson(right, len(pairs))


def test_labels_beyond_the_context_count_as_wrong() -> None:
    objective = tagging([[0, 1]], [[0, 1]])  # both right
    result = evaluate_labels(Lookup(TABLE), objective, "valid", 6)
    assert (result.accuracy, result.n, result.interval) == (0.25, 8, wilson(2, 8))
    assert result.loss == pytest.approx(-math.log(0.7 * 0.6) / 2)  # nothing was said about the others


def test_the_better_of_two_is_the_more_accurate_then_the_surer() -> None:
    def result(accuracy: float, loss: float) -> Classification:
        return Classification("valid", loss, accuracy, 100, (0.0, 1.0))

    ranked = [result(0.9, 3.0), result(0.9, 5.0), result(0.89, 0.1)]
    assert ranked[0].criterion < ranked[1].criterion < ranked[2].criterion
    assert ranked[0].score == ("accuracy", 0.9, True)
    assert ranked[0].summary() == "loss 3.00  accuracy 90.0%"
    assert ("accuracy", "90.0%  (95 %: 0.0% to 100.0%)") in ranked[0].table()
    assert ranked[0].as_dict().keys() == {"split", "loss", "accuracy", "n", "interval"}


def test_hidden_tokens_are_the_same_each_time_and_every_window_is_read_once() -> None:
    ids = np.random.default_rng(0).integers(0, 7, 101)
    objective = MaskedModelling(Tokens([ids], 101), context=10, seed=0, mask=7)
    model = Lookup(torch.eye(8)[torch.arange(8) % 7])  # says the token that stands there, for the mask 0
    parts = list(masked_answers(model, objective))
    assert sum(len(batch["inputs"]) for batch, _ in parts) == objective.windows.per_epoch
    inputs = torch.cat([batch["inputs"] for batch, _ in parts])
    targets = torch.cat([batch["targets"] for batch, _ in parts])
    hidden = targets != NOT_SCORED
    result = evaluate_masked(model, objective, "valid")
    assert result.n == int(hidden.sum())
    assert result.accuracy == pytest.approx((inputs[hidden] % 7 == targets[hidden]).double().mean().item())
    assert result == evaluate_masked(model, objective, "valid")


def test_evaluating_leaves_the_model_as_it_was() -> None:
    model = Lookup(TABLE).train()
    evaluate_labels(model, tagging([[0]], [[0]]), "valid")
    assert model.training and model.table.grad is None
