"""Models of shapes alone: nothing is drawn, everything has the shape it would have."""

import pytest
import torch

from glassformer.core.shapes import ShapesAlone
from glassformer.tasks.registry import make_model
from tests.conftest import tiny_config


@pytest.mark.parametrize("task", ["language", "classify", "translate"])
@pytest.mark.parametrize("family", ["transformer", "lstm"])
def test_a_model_of_shapes_is_like_the_model(task: str, family: str) -> None:
    config = tiny_config(family=family, labels=2, position="sinusoidal")
    model = make_model(task, config)
    state = torch.get_rng_state()
    with ShapesAlone():
        shapes = make_model(task, config)
    assert torch.equal(torch.get_rng_state(), state)
    ours, theirs = (dict(m.named_parameters()) for m in (shapes, model))
    assert {n: (p.shape, p.dtype) for n, p in ours.items()} == {
        n: (p.shape, p.dtype) for n, p in theirs.items()
    }
    assert any(p.is_meta for p in ours.values())
    assert all(p.is_meta for p in ours.values() if p.ndim > 1)


def test_what_is_no_weight_is_made_as_usual() -> None:
    with ShapesAlone():
        assert torch.arange(3).tolist() == [0, 1, 2]
        assert not torch.nn.init.normal_(torch.zeros(3)).equal(torch.zeros(3))
        assert torch.empty(2, device="cpu").device.type == "cpu"
