"""Cross-entropy by compiled loops beside the formula."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.models.fast import loss as fast
from glassformer.models.fast.wanted import compiled_loops
from glassformer.objectives.loss import NOT_SCORED, with_gradient


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 40),
    lanes=st.integers(1, 5),
    smoothing=st.sampled_from([0.0, 0.1]),
    size=st.sampled_from([0.0, 1.0, 300.0]),
    half=st.booleans(),
    hidden=st.integers(0, 3),
)
def test_the_loops_are_the_formula(
    rows: int, lanes: int, smoothing: float, size: float, half: bool, hidden: int
) -> None:
    torch.manual_seed(0)
    V = 16 * lanes
    scores = (size * torch.randn(rows, V) - 2 * size).to(torch.bfloat16 if half else torch.float32)
    targets = torch.randint(V, (rows,))
    targets[:hidden] = NOT_SCORED
    want = with_gradient(scores.double(), targets, smoothing)
    with pytest.MonkeyPatch.context() as patch, compiled_loops(True):
        patch.setattr(fast, "LEAST", 0)
        place = scores.clone()
        losses, gradient = with_gradient(place, targets, smoothing)
    assert gradient is place and losses.dtype == torch.float32
    torch.testing.assert_close(losses.double(), want[0], rtol=1e-6, atol=1e-5 + 3e-7 * size)
    torch.testing.assert_close(gradient.double(), want[1], rtol=5e-3 if half else 1e-4, atol=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_stays_none(bad: float) -> None:
    scores = torch.randn(32, 16384)
    scores[3, 77] = bad
    with compiled_loops(True):
        losses, _ = with_gradient(scores, torch.zeros(32, dtype=torch.long))
    assert losses[3].isnan() and losses.isfinite().sum() == 31


def test_a_target_that_is_no_entry_is_refused() -> None:
    with compiled_loops(True), pytest.raises(IndexError, match="a target of 16384 among 16384 scores"):
        with_gradient(torch.randn(32, 16384), torch.full((32,), 16384))


def test_outside_of_training_and_for_odd_vocabularies_it_is_not_taken() -> None:
    scores = torch.randn(64, 8192)
    assert not fast.fits(scores)
    with compiled_loops(True):
        assert fast.fits(scores) and not fast.fits(torch.randn(64, 8191)) and not fast.fits(scores.double())
        assert not fast.fits(scores[:1]) and not fast.fits(scores[:, ::2])
