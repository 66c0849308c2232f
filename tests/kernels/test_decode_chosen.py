"""When the step of a GPU is taken, as if this machine had one."""

import pytest
import torch

from glassformer.core.errors import UsageError
from glassformer.generation import make
from glassformer.generation.gpu.step import GraphStep
from glassformer.generation.open_step import OpenStep
from tests.conftest import tiny_model


@pytest.fixture(autouse=True)
def _a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "device_of", lambda model: torch.device("cuda", 0))


def test_much_text_takes_kernels_and_so_does_a_precision_that_is_named() -> None:
    model = tiny_model()
    assert isinstance(make.make_step(model), GraphStep)
    assert isinstance(make.make_step(model, tokens=10), OpenStep)
    assert isinstance(make.make_step(tiny_model(placement="post")), OpenStep)
    assert isinstance(make.make_step(model, weights="open"), OpenStep)
    one, many = make.make_step(model, weights="f32"), make.make_step(model, 64, weights="bf16")
    assert isinstance(one, GraphStep) and one.products == "vectors"
    assert isinstance(many, GraphStep) and many.products == "tiles"


def test_a_model_that_does_not_fit_is_told_why() -> None:
    with pytest.raises(UsageError, match=r"bf16 weights on a GPU .* norms do not stand before the layers"):
        make.make_step(tiny_model(placement="post"), weights="bf16")
