"""Which step is made where this machine has no GPU, or nothing to compile kernels with."""

from importlib.util import find_spec

import pytest
import torch

from glassformer.core.errors import UsageError
from glassformer.generation import make
from glassformer.generation.gpu import fits
from tests.conftest import tiny_model


@pytest.mark.skipif(find_spec("triton") is not None, reason="Triton is installed here")
def test_without_triton_a_named_precision_is_refused_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "device_of", lambda model: torch.device("cuda", 0))
    model = tiny_model()
    assert fits(model) == "Triton is not installed"
    assert make.choose_weights(model) == "open"
    with pytest.raises(UsageError, match="own kernels, which is not for this: Triton is not installed"):
        make.choose_weights(model, "bf16")


def test_on_a_gpu_kernels_are_taken_for_much_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "device_of", lambda model: torch.device("cuda", 0))
    monkeypatch.setattr(make.gpu, "fits", lambda model: None)
    model = tiny_model()
    for tokens, weights in ((None, "f32"), (make.MANY_TOKENS, "f32"), (10, "open")):
        assert make.choose_weights(model, tokens=tokens) == weights
    assert make.choose_weights(model, "bf16", 10) == "bf16"
    monkeypatch.setattr(make.gpu, "fits", lambda model: "it has no residual stream")
    assert make.choose_weights(model) == "open"


def test_eight_bits_are_for_a_cpu() -> None:
    model = tiny_model().to("meta")
    with pytest.raises(UsageError, match=r"int8 weights are for the compiled step of a CPU.*lie on meta"):
        make.choose_weights(model, "int8")
