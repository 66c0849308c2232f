"""What the step on the device is made of: gradients in one vector, AdamW over it."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import AdamW

from glassformer.models.build import Decoder
from glassformer.models.gpu import formulas
from glassformer.training.device.adamw import DeviceAdamW
from glassformer.training.device.gradients import ALIGNED, FlatGradients
from glassformer.training.step import Steps
from tests.training.small import make_objective, make_trainer, weights
from tests.training.test_fused import TEXT, fused


def test_places_begin_where_wide_reads_can() -> None:
    parameters = [nn.Parameter(torch.randn(*shape)) for shape in ((3, 5), (130,), (1,), (4, 64))]
    gradients = FlatGradients(parameters)
    assert all(place.start % ALIGNED == 0 for place in gradients.places.values())
    for i, p in enumerate(parameters):
        assert p.grad is not None
        p.grad += i + 1
    assert float(gradients.vector.sum()) == sum((i + 1) * p.numel() for i, p in enumerate(parameters))
    gradients.zero(spared={id(parameters[1])})
    assert [float(gradients.of(p).abs().sum()) for p in parameters] == [0.0, 260.0, 0.0, 0.0]
    gradients.zero()
    assert not gradients.vector.any()


def test_adamw_is_that_of_pytorch() -> None:
    """Ten steps of two groups, clipped and not; a broken one counts for nothing."""
    made = []
    for _ in range(2):
        torch.manual_seed(0)
        made.append([nn.Parameter(torch.randn(7, 9)), nn.Parameter(torch.randn(130))])
    ours, theirs = made
    how: dict[str, Any] = {"lr": 0.03, "betas": (0.9, 0.98), "eps": 1e-7}
    plain, right = (
        AdamW([{"params": ps[:1], "weight_decay": 0.2}, {"params": ps[1:], "weight_decay": 0.0}], **how)
        for ps in made
    )
    gradients = FlatGradients(ours)
    shrink, broken = torch.ones(()), torch.zeros(())
    device = DeviceAdamW(plain, gradients, shrink, broken, formulas)
    for step in range(10):
        shrink.fill_(1.0 if step % 2 else 0.3)
        broken.fill_(float(step == 4))
        for p, q in zip(ours, theirs, strict=True):
            new = torch.randn(p.shape)
            gradients.of(p).copy_(new if step != 4 else torch.full_like(new, torch.nan))
            q.grad = new * shrink
        for group in device.param_groups:
            group["lr"] = torch.tensor(0.03 / (step + 1))
        device.step()
        if step != 4:
            for group in right.param_groups:
                group["lr"] = 0.03 / (step + 1)
            right.step()
        for p, q in zip(ours, theirs, strict=True):
            assert torch.allclose(p, q, rtol=1e-6, atol=1e-7)
            for name in ("step", "exp_avg", "exp_avg_sq"):
                assert torch.allclose(device.state[p][name], right.state[q][name], rtol=1e-6, atol=1e-7)
    assert not gradients.vector[gradients.places[ours[0]].stop : gradients.places[ours[1]].start].any()


@pytest.mark.parametrize("accumulate", [1, 2])
def test_nothing_is_left_of_the_gradients_before(tmp_path: Any, accumulate: int) -> None:
    """Whatever stands in the places of weights' gradients, a step writes over it."""
    found = []
    for spoiled in (False, True):
        trainer = make_trainer(
            tmp_path / str(spoiled), fused(0.0, accumulate=accumulate, precision="float32"), tokens=TEXT
        )
        assert trainer.device_step is not None
        for _ in range(3):
            if spoiled:
                for weight in trainer.device_step.way.twin.slots.weights:
                    assert weight.grad is not None
                    weight.grad.fill_(torch.nan)
            trainer.step(trainer.model)
        trainer.reader.close()
        found.append(weights(trainer))
    assert all(torch.equal(found[1][name], value) for name, value in found[0].items())


@pytest.mark.parametrize("tied", [False, True])
def test_only_what_has_a_place_of_its_own_is_trained(tied: bool) -> None:
    config = fused(0.0, precision="float32")
    model = Decoder(config.model.model_copy(update={"tied": tied}))
    model.stack.embedding.requires_grad_(False)
    torch.nn.init.normal_(model.unembedding.requires_grad_(False).weight)  # from zeros nothing comes back
    steps = Steps(model, make_objective(config, TEXT), config.training, width=32)
    assert steps.device_step is not None
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    steps.step(model)
    steps.reader.close()
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert {name.split(".")[1] for name in moved} == {"blocks", "norm"}


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_who_keeps_a_copy_of_a_weight_can_tell_that_it_has_moved(tmp_path: Any, optimizer: str) -> None:
    trainer = make_trainer(tmp_path, fused(0.0, optimizer=optimizer, precision="float32"), tokens=TEXT)
    before = {name: p._version for name, p in trainer.model.named_parameters()}
    trainer.step(trainer.model)
    trainer.reader.close()
    assert all(p._version > before[name] for name, p in trainer.model.named_parameters())
