"""Dropout by shared draws: as often, as large and as free of pattern as PyTorch's."""

import pytest
import torch

from glassformer.models.attention import attend, attention_weights
from glassformer.models.dropout import Dropout, SequenceDropout, drop
from glassformer.models.mask import Mask


@pytest.mark.parametrize("p", [0.001, 0.1, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_share_and_the_size_of_what_is_left(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    y = drop(torch.ones(1001, 333, dtype=dtype), p)
    share = (y == 0).double().mean().item()
    assert share == pytest.approx(p, abs=5 * (p * (1 - p) / y.numel()) ** 0.5)
    assert y.max().item() == pytest.approx(1 / (1 - p), rel=1e-4 if dtype == torch.float32 else 4e-3)
    assert len(y.unique()) == 2


def test_neighbours_that_share_a_draw_know_nothing_of_each_other() -> None:
    torch.manual_seed(0)
    kept = (drop(torch.ones(100_000, 4), 0.3) > 0).double()
    correlation = torch.corrcoef(kept.T) - torch.eye(4, dtype=torch.float64)
    assert correlation.abs().max() < 5 / 100_000**0.5


def test_a_seed_draws_the_same_and_gradients_go_through_what_is_left() -> None:
    x = torch.randn(7, 5, requires_grad=True)
    torch.manual_seed(3)
    first = drop(x, 0.4)
    torch.manual_seed(3)
    assert torch.equal(drop(x, 0.4), first)
    (gradient,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(gradient, (first != 0) / 0.6, rtol=1e-4, atol=0)


def test_out_of_training_nothing_is_left_out() -> None:
    layer, x = Dropout(0.5), torch.randn(4, 4)
    assert not torch.equal(layer(x), x) and torch.equal(layer.eval()(x), x) and drop(x, 0.0) is x


def test_a_mask_for_a_sequence_is_drawn_for_its_features_alone() -> None:
    torch.manual_seed(0)
    layer = SequenceDropout(0.3)
    y = layer(torch.ones(400, 5, 50, dtype=torch.bfloat16))
    assert y.dtype == torch.bfloat16 and torch.equal(y, y[:, :1].expand_as(y))
    share = (y[:, 0] == 0).double().mean().item()
    assert share == pytest.approx(0.3, abs=5 * (0.3 * 0.7 / 20_000) ** 0.5)
    x = torch.randn(4, 3, 4)
    assert layer.eval()(x) is x and SequenceDropout(0.0).train()(x) is x


def test_attention_drops_weights_and_keeps_its_mean() -> None:
    """Over many draws the output is what it is without dropout."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 6, 4).unbind(0)
    mask = Mask(causal=True)
    mean = torch.stack([attend(q, k, v, mask, dropout=0.3) for _ in range(4000)]).mean(dim=0)
    spread = (attention_weights(q, k, mask).square() @ v.square()).sqrt() * (0.3 / 0.7 / 4000) ** 0.5
    assert ((mean - attend(q, k, v, mask)).abs() < 5 * spread + 1e-6).all()
