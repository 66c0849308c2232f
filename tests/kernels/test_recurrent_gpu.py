"""The recurrent kernel with weights left out, on a GPU: as cell by cell, forward and backward."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from glassformer.models.cells import CELLS
from glassformer.models.recurrent import Recurrence

GPU = torch.device("cuda")


def passed(
    layer: Recurrence, way: Callable[..., tuple[Tensor, tuple[Tensor, ...]]], x: Tensor
) -> list[Tensor]:
    """Outputs, last state and gradients, under one draw."""
    layer.zero_grad()
    torch.manual_seed(7)
    out, state = way(x, layer.begin(len(x)))
    (out.float().square().mean() + sum(s.float().mean() for s in state)).backward()
    return [out, *state, *(p.grad.clone() for p in layer.parameters() if p.grad is not None)]


@pytest.mark.filterwarnings("error:RNN module weights are not part")  # which is no user's concern
@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize(("half", "tolerance"), [(False, 5e-3), (True, 5e-2)])
def test_the_kernel_with_weights_left_out_is_the_formula(kind: str, half: bool, tolerance: float) -> None:
    """In float32 PyTorch's kernel multiplies in TF32."""
    torch.manual_seed(0)
    layer = Recurrence(kind, 64, 64, dropout=0.5).to(GPU)
    x = torch.randn(16, 20, 64, device=GPU)
    with torch.autocast("cuda", torch.bfloat16, enabled=half):
        fast, slow = (passed(layer, way, x) for way in (layer.forward, layer.by_formula))
    for a, b in zip(fast, slow, strict=True):
        assert (a.float() - b.float()).norm() <= tolerance * b.float().norm()
    assert layer.fused.weight_hh_l0.grad is not None
    assert 0.4 < float((layer.fused.weight_hh_l0.grad == 0).float().mean()) < 0.6
