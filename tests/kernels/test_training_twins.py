"""A training step by kernels is the step by formulas: losses, gradients, and weights after some steps."""

from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.models.fast.wanted import own_loops
from glassformer.models.gpu import formulas
from glassformer.models.gpu.twin import Twin
from glassformer.objectives.loss import summed_loss
from tests.conftest import tiny_model
from tests.kernels.conftest import TURN
from tests.training.small import make_trainer, weights
from tests.training.test_fused import TEXT, fused

DEVICE, HALF, TOLERANCE = ("cuda", torch.bfloat16, 5e-2) if TURN == "gpu" else ("cpu", torch.float32, 2e-5)
BLOCKS: dict[str, dict[str, Any]] = {
    "the default": {"hidden_dropout": 0.1, "output_dropout": 0.1},
    "GPT-2": {
        "position": "learned", "activation": "gelu-tanh", "bias": True, "tied": True, "qk_norm": False
    },
    "GPT-2 without biases or dropout": {
        "position": "learned", "activation": "gelu-tanh", "tied": True, "qk_norm": False, "dropout": 0.0
    },
    "RMSNorm, SwiGLU, grouped queries": {"norm": "rms", "activation": "swiglu", "heads": 4, "kv_heads": 2},
}  # fmt: skip


@pytest.mark.parametrize("name", BLOCKS)
def test_losses_and_gradients(name: str) -> None:
    shape = {"width": 32, "heads": 2, "head_width": 16, "dropout": 0.2, "context": 70}
    model = tiny_model(**{**shape, **BLOCKS[name]}).train().to(DEVICE)
    ids = torch.randint(23, (2, 71), generator=torch.Generator().manual_seed(3)).to(DEVICE)
    found = []
    for by_formula in (False, True):
        twin = Twin(model, HALF)
        assert twin.operations is not formulas
        twin.operations = formulas if by_formula else twin.operations
        twin.seed.fill_(99)
        model.zero_grad()
        with own_loops(True):
            loss = twin(ids[:, :-1], readout=summed_loss, readout_args=(ids[:, 1:], 0.1))
        loss.backward()
        found.append(
            (loss.detach(), {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
        )
    (ours, gradients), (theirs, expected) = found
    assert float(abs(ours - theirs)) <= TOLERANCE * float(theirs)
    largest = max(float(g.norm()) for g in expected.values())
    for key, gradient in expected.items():
        off = float((gradients[key] - gradient).norm()) / max(float(gradient.norm()), 1e-2 * largest)
        assert off <= TOLERANCE, f"{key} is off by {off:.1e}"


@pytest.mark.parametrize("name", BLOCKS)
def test_some_products_in_8_bits(name: str) -> None:
    """Near the pass in half precision; not very near in Triton's interpreter, which carries no rounding over
    to the exponent."""
    shape = {"width": 32, "heads": 2, "head_width": 16, "context": 70, "hidden": 128}
    model = tiny_model(**{**shape, **BLOCKS[name], "dropout": 0.0}).train().to(DEVICE)
    ids = torch.randint(23, (2, 71), generator=torch.Generator().manual_seed(3)).to(DEVICE)
    found = []
    for narrow in (True, False):
        twin = Twin(model, HALF, narrow=narrow)
        model.zero_grad()
        with own_loops(True):
            loss = twin(ids[:, :-1], readout=summed_loss, readout_args=(ids[:, 1:], 0.1))
        loss.backward()
        whole = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        found.append((float(loss), whole.double()))
    (ours, gradient), (theirs, expected) = found
    assert ours == pytest.approx(theirs, rel=0.03) and ours != theirs
    assert float((gradient - expected).norm() / expected.norm()) < (0.3 if TURN == "gpu" else 0.8)


@pytest.mark.skipif(TURN == "gpu", reason="there test_training_step_gpu.py goes through graphs")
def test_a_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = fused(0.1, precision="float32", accumulate=2, optimizer="adamw")
    by_kernels = make_trainer(tmp_path / "kernels", config, tokens=TEXT)
    assert by_kernels.environment["kernels"].startswith("fused kernels, Triton")
    losses = [by_kernels.step(by_kernels.model, ahead=i < 5)["loss"] for i in range(6)]
    by_kernels.reader.close()
    by_formulas = make_trainer(tmp_path / "formulas", config, tokens=TEXT)
    assert by_formulas.device_step is not None
    monkeypatch.setattr(by_formulas.device_step.way.twin, "operations", formulas)
    expected = [by_formulas.step(by_formulas.model)["loss"] for _ in range(6)]
    by_formulas.reader.close()
    assert losses == pytest.approx(expected, rel=1e-4) and losses[-1] < losses[0]
    for name, value in weights(by_formulas).items():
        assert torch.allclose(weights(by_kernels)[name], value, atol=2e-4), name
