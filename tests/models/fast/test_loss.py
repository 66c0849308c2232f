"""Cross-entropy by compiled loops beside the formula."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.models.fast import loss as fast
from glassformer.models.fast.wanted import own_loops
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
    with pytest.MonkeyPatch.context() as patch, own_loops(True):
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
    with own_loops(True):
        losses, _ = with_gradient(scores, torch.zeros(32, dtype=torch.long))
    assert losses[3].isnan() and losses.isfinite().sum() == 31


def test_a_row_of_nothing_spoils_no_other() -> None:
    """Every share of it is 0 / 0."""
    scores, targets = torch.randn(32, 16384), torch.zeros(32, dtype=torch.long)
    scores[3] = float("-inf")
    want = with_gradient(scores, targets)
    with own_loops(True):
        losses, gradient = with_gradient(scores.clone(), targets)
    others = torch.arange(32) != 3
    assert losses[3].isnan()
    torch.testing.assert_close(losses[others], want[0][others])
    torch.testing.assert_close(gradient[others], want[1][others])


@pytest.mark.parametrize("bad", [16384, -1])
def test_a_target_that_is_no_entry_is_refused(bad: int) -> None:
    with own_loops(True), pytest.raises(IndexError, match=f"a target of {bad} among 16384 scores"):
        with_gradient(torch.randn(32, 16384), torch.full((32,), bad))


@pytest.mark.parametrize("kind", [torch.int32, torch.int16])
def test_targets_of_any_whole_kind_and_any_default_type(kind: torch.dtype) -> None:
    scores, targets = torch.randn(32, 16384), torch.arange(32)
    want = with_gradient(scores, targets, 0.1)[0]
    torch.set_default_dtype(torch.float64)
    try:
        with own_loops(True):
            losses, _ = with_gradient(scores.clone(), targets.to(kind), 0.1)
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(losses, want)


def test_outside_of_training_and_for_odd_vocabularies_it_is_not_taken() -> None:
    scores = torch.randn(64, 8192)
    assert not fast.fits(scores)
    with own_loops(True):
        assert fast.fits(scores) and not fast.fits(torch.randn(64, 8191)) and not fast.fits(scores.double())
        assert not fast.fits(scores[:1]) and not fast.fits(scores[:, ::2])
