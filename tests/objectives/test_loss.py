"""Head and loss in one, beside the two apart."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from glassformer.models.fast.wanted import own_loops
from glassformer.models.tap import off
from glassformer.objectives import loss
from glassformer.objectives.loss import (
    NOT_SCORED,
    calm_loss,
    consistent_loss,
    cross_entropy,
    joined_loss,
    summed_loss,
)


def apart(x: Tensor, weight: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    return cross_entropy(x @ weight.t(), targets, smoothing)


def gradients(value: Tensor, *wanted: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(3.0 * value, wanted)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 9),
    at_once=st.integers(1, 9),
    smoothing=st.sampled_from([0.0, 0.1]),
    size=st.sampled_from([0.1, 1.0, 300.0]),
    hidden=st.integers(0, 3),
)
def test_joined_is_apart(rows: int, at_once: int, smoothing: float, size: float, hidden: int) -> None:
    """In double precision: the loss and both gradients, in one piece or in many, with rows left out."""
    torch.manual_seed(0)
    x = size * torch.randn(rows, 2, 5, dtype=torch.float64)
    weight = torch.randn(7, 5, dtype=torch.float64)
    x.requires_grad_(), weight.requires_grad_()
    targets = torch.randint(7, (rows, 2))
    targets.view(-1)[:hidden] = NOT_SCORED
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss, "LEAST_ROWS", at_once)
        patch.setattr(loss, "SCORES_AT_ONCE", {"cpu": 1})
        got = joined_loss(x, weight, targets, smoothing)
    want = apart(x, weight, targets, smoothing)
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)
    for one, other in zip(gradients(got, x, weight), gradients(want, x, weight), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("dtype", "off_by"), [(torch.float32, 1e-5), (torch.bfloat16, 0.02)])
def test_in_the_types_that_are_trained_in(dtype: torch.dtype, off_by: float) -> None:
    torch.manual_seed(0)
    x, head = torch.randn(4, 300, 32, requires_grad=True), nn.Linear(32, 500, bias=False)
    targets = torch.randint(500, (4, 300))
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16), own_loops(True):
        got = summed_loss(x, head, off, targets)
    want = apart(x, head.weight, targets, 0.0)
    assert got.dtype == torch.float32 and got.item() == pytest.approx(want.item(), rel=off_by)
    for one, other in zip(gradients(got, x, head.weight), gradients(want, x, head.weight), strict=True):
        assert one.dtype == torch.float32 and (one - other).norm() < off_by * other.norm()


def test_a_score_that_is_no_number_is_told() -> None:
    x = torch.full((1, 2, 4), float("nan"), requires_grad=True)
    assert joined_loss(x, torch.randn(3, 4), torch.zeros(1, 2, dtype=torch.long)).isnan()


def test_what_is_frozen_gets_no_gradient() -> None:
    x, weight = torch.randn(1, 3, 4, requires_grad=True), torch.randn(5, 4)
    joined_loss(x, weight, torch.zeros(1, 3, dtype=torch.long)).backward()
    assert weight.grad is None and x.grad is not None and x.grad.norm() > 0


def test_they_are_joined_where_nobody_looks_and_there_is_something_to_learn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(loss, "joined_loss", lambda *_: asked.append("joined") or torch.zeros(()))
    monkeypatch.setattr(loss, "cross_entropy", lambda *_: asked.append("apart") or torch.zeros(()))
    x, head, targets = (
        torch.randn(1, 2, 4, requires_grad=True),
        nn.Linear(4, 3, bias=False),
        torch.zeros(1, 2),
    )
    with own_loops(True):
        summed_loss(x, head, off, targets)
        summed_loss(x, head, lambda site, value: value, targets)  # a tap sees the scores
        summed_loss(x, nn.Linear(4, 3), off, targets)
        summed_loss(x, lambda h: head(h), off, targets)
        summed_loss(x.detach(), head, off, targets)
        with torch.autocast("cpu", torch.float16):
            summed_loss(x, head, off, targets)
    summed_loss(x, head, off, targets)  # outside of training
    assert asked == ["joined"] + 6 * ["apart"]


def test_two_answers_that_differ_cost_what_rdrop_says() -> None:
    """Loss and gradient as the paper writes them, target by target."""
    torch.manual_seed(0)
    x, head = torch.randn(6, 4, 5, dtype=torch.float64, requires_grad=True), nn.Linear(5, 7).double()
    targets = torch.randint(7, (3, 4)).repeat(2, 1)
    targets[[0, 3], 2:] = NOT_SCORED
    expected = torch.zeros((), dtype=torch.float64)
    for row, column in ((targets[:3] != NOT_SCORED).nonzero()).tolist():
        p, q = (torch.log_softmax(head(x[i, column]), dim=-1) for i in (row, row + 3))
        expected = expected - p[targets[row, column]] - q[targets[row, column]]
        for a, b in ((p, q), (q, p)):
            expected = expected + 5.0 / 2 * (a.exp() * (a - b)).sum()
    got = consistent_loss(x, head, off, targets, 0.0, 5.0)
    torch.testing.assert_close(got, expected)
    for one, other in zip(gradients(got, x), gradients(expected, x), strict=True):
        torch.testing.assert_close(one, other)
    alike = x.detach()[:3].repeat(2, 1, 1)
    torch.testing.assert_close(
        consistent_loss(alike, head, off, targets, 0.1, 5.0), summed_loss(alike, head, off, targets, 0.1)
    )


def test_large_and_restless_vectors_cost_what_was_asked() -> None:
    torch.manual_seed(0)
    x, head = torch.randn(2, 4, 5, dtype=torch.float64, requires_grad=True), nn.Linear(5, 7).double()
    targets = torch.randint(7, (2, 4))
    expected = summed_loss(x, head, off, targets)
    expected = expected + 2.0 * 8 * sum(x[b, t] @ x[b, t] for b in range(2) for t in range(4)) / 40
    steps = [x[b, t + 1] - x[b, t] for b in range(2) for t in range(3)]
    expected = expected + 1.0 * 8 * sum(s @ s for s in steps) / 30
    got = calm_loss(x, head, off, targets, 0.0, 2.0, 1.0)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(gradients(got, x), gradients(expected, x))
    one = x[:, :1].detach()
    assert calm_loss(one, head, off, targets[:, :1], 0.0, 0.0, 1.0) == summed_loss(
        one, head, off, targets[:, :1]
    )
