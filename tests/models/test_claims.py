"""What the seeds claim about the parts of a transformer, computed."""

import pytest
import torch
from torch import Tensor

from glassformer.config.schema import build
from glassformer.models.attention import attend_by_formula
from glassformer.models.build import Decoder
from glassformer.models.layers import BatchNorm
from glassformer.models.mask import Mask
from glassformer.models.tap import Record
from glassformer.objectives.loss import cross_entropy
from glassformer.training.optim import freeze, make_optimizers
from tests.conftest import tiny_model


@pytest.mark.parametrize("D", [16, 64, 256])
def test_the_scale_keeps_the_variance_of_scores_at_one(D: int) -> None:
    """q·k of unit-variance vectors has variance D; divided by √D it has 1, whatever D is."""
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 1, 500, D)
    assert (q @ k.mT).var().item() == pytest.approx(D, rel=0.05)
    _, weights = attend_by_formula(q, k, k, Mask())
    # The logarithm of a softmax gives back the scores, but for a constant in each row.
    assert weights.log().var(dim=-1).mean().item() == pytest.approx(1.0, rel=0.05)


def test_without_the_scale_the_softmax_saturates_and_gradients_vanish() -> None:
    torch.manual_seed(0)
    D, T = 256, 32
    q, k = (torch.randn(8, 1, T, D) for _ in range(2))

    def largest_weight_and_slope(factor: float) -> tuple[float, float]:
        """Of attention whose scores are `factor` times as large: the slope is that of the weights by them."""
        bias = torch.zeros(8, 1, T, T, requires_grad=True)
        _, weights = attend_by_formula(factor * q, k, k, Mask(), bias)
        slope = torch.autograd.grad(weights.diagonal(dim1=-2, dim2=-1).sum(), bias)[0]
        return weights.max(-1).values.mean().item(), slope.abs().mean().item()

    scaled, unscaled = largest_weight_and_slope(1.0), largest_weight_and_slope(D**0.5)
    assert scaled[0] < 0.25 and unscaled[0] > 0.9  # nearly all weight on one key
    assert unscaled[1] < 0.2 * scaled[1]


def test_values_may_be_wider_than_keys() -> None:
    q, k, v = torch.randn(1, 2, 5, 4), torch.randn(1, 2, 5, 4), torch.randn(1, 2, 5, 9)
    assert attend_by_formula(q, k, v, Mask())[0].shape == (1, 2, 5, 9)


def _likeness(x: Tensor) -> float:
    """Mean cosine between different tokens."""
    x = torch.nn.functional.normalize(x[0], dim=-1)
    cosines = x @ x.T
    return ((cosines.sum() - len(x)) / (len(x) * (len(x) - 1))).item()


def test_without_residual_connections_tokens_collapse_and_gradients_vanish() -> None:
    """Attention averages; without the stream beside it, many layers make all tokens alike."""
    likeness: dict[bool, float] = {}
    slope: dict[bool, float] = {}
    for residual in (True, False):
        model = tiny_model(layers=12, residual=residual, placement="none", qk_norm=False, position="none")
        record = Record("embed", "11.resid")
        logits = model(torch.randint(23, (1, 12)), tap=record)
        gradient = torch.autograd.grad(logits.logsumexp(-1).sum(), record.values["embed"])[0]
        slope[residual] = gradient.norm().item()
        likeness[residual] = _likeness(record.values["11.resid"])
    assert likeness[True] < 0.8 < 0.95 < likeness[False]
    assert slope[False] < 0.01 * slope[True]


def test_batch_normalisation_lets_a_token_see_its_batch_and_its_future() -> None:
    torch.manual_seed(0)
    norm, x = BatchNorm(8), torch.randn(2, 5, 8)
    changed = x.clone()
    changed[1, 4] += 3.0
    assert not torch.allclose(norm(x)[0, 0], norm(changed)[0, 0])  # another sentence, a later token
    norm.eval()
    assert torch.equal(norm(x)[0, 0], norm(changed)[0, 0])  # in use: the averages of training
    peer = torch.nn.BatchNorm1d(8)
    torch.testing.assert_close(BatchNorm(8)(x), peer(x.flatten(0, 1)).view(x.shape))


def test_a_causal_model_with_batch_normalisation_leaks_in_training() -> None:
    torch.manual_seed(0)
    leaking: dict[str, float] = {}
    for norm in ("layer", "batch"):
        model = tiny_model(norm=norm).train()
        record = Record("embed")
        logits = model(torch.randint(23, (1, 8)), tap=record)
        gradient = torch.autograd.grad(logits[0, 2].sum(), record.values["embed"])[0]
        leaking[norm] = gradient[0, 3:].abs().max().item()
    assert leaking["layer"] == 0 < leaking["batch"]


def test_a_fixed_embedding_is_a_frozen_one() -> None:
    """Frozen, it stays to the bit what it was while all else learns, and all else learns as beside it."""
    model, ids = tiny_model(init="gpt2"), torch.randint(23, (4, 12))
    whole = _gradients(model, ids)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    freeze(model, ["stack.embedding"])
    gradients = _gradients(model, ids)
    assert whole.keys() - gradients.keys() == {"stack.embedding.weight"}
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, whole[name])
    for optimizer in make_optimizers(model, build({"training": {"lr": 0.1, "weight_decay": 0.1}}).training):
        optimizer.step()
    for name, p in model.named_parameters():
        assert torch.equal(p, before[name]) == (name == "stack.embedding.weight"), name


def _gradients(model: Decoder, ids: Tensor) -> dict[str, Tensor]:
    """Of every parameter that is trained; the model keeps them too, for an optimizer."""
    model.zero_grad()
    cross_entropy(model(ids[:, :-1]), ids[:, 1:]).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
