"""What the seeds claim about the parts of a transformer, computed."""

import pytest
import torch
from torch import Tensor

from glassformer.models.attention import attend_by_formula
from glassformer.models.layers import BatchNorm
from glassformer.models.mask import Mask
from glassformer.models.tap import Record
from tests.conftest import tiny_config, tiny_model


@pytest.mark.parametrize("D", [16, 64, 256])
def test_the_scale_keeps_the_variance_of_scores_at_one(D: int) -> None:
    """q·k of unit-variance vectors has variance D; divided by √D it has 1, whatever D is."""
    torch.manual_seed(0)
    q, k = torch.randn(2, 20_000, D)
    raw = (q * k).sum(-1)
    assert raw.var().item() == pytest.approx(D, rel=0.05)
    assert (raw / D**0.5).var().item() == pytest.approx(1.0, rel=0.05)


def test_without_the_scale_the_softmax_saturates_and_gradients_vanish() -> None:
    torch.manual_seed(0)
    D, T = 256, 32
    q, k = (torch.randn(8, 1, T, D, requires_grad=True) for _ in range(2))

    def looking(scale: float) -> tuple[float, float]:
        weights = (q @ k.transpose(-2, -1) * scale).softmax(-1)
        slope = (weights * (1 - weights)).mean()  # of the softmax: ∂wᵢ/∂sᵢ
        return weights.max(-1).values.mean().item(), slope.item()

    (scaled_top, scaled_slope), (raw_top, raw_slope) = looking(D**-0.5), looking(1.0)
    assert scaled_top < 0.25 and raw_top > 0.9  # nearly all weight on one key
    assert raw_slope < 0.2 * scaled_slope


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
    found: dict[bool, tuple[float, float]] = {}
    for residual in (True, False):
        model = tiny_model(layers=12, residual=residual, placement="none", qk_norm=False, position="none")
        record = Record("embed", "11.resid")
        logits = model(torch.randint(23, (1, 12)), tap=record)
        gradient = torch.autograd.grad(logits.logsumexp(-1).sum(), record.values["embed"])[0].norm().item()
        found[residual] = _likeness(record.values["11.resid"]), gradient
    assert found[True][0] < 0.8 < 0.95 < found[False][0]
    assert found[False][1] < 0.01 * found[True][1]


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
    from glassformer.models.build import Decoder
    from glassformer.training.optim import freeze

    model = Decoder(tiny_config())
    freeze(model, ["stack.embedding"])
    assert not model.stack.embedding.weight.requires_grad
