"""Numbers of 8 bits: nothing beyond their range, nothing lost but fractions."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glassformer.models.gpu.narrow import LARGEST, Narrow, narrowed, product, units


@given(st.floats(1e-18, 1e30))
def test_a_unit_takes_the_largest_to_the_upper_half_of_the_range(largest: float) -> None:
    (unit,) = units(torch.tensor([largest])).tolist()
    assert torch.frexp(torch.tensor(unit)).mantissa == 0.5  # a power of two
    scaled = float(torch.tensor(largest) / unit)
    assert LARGEST / 2 * (1 - 1e-6) < scaled <= LARGEST * (1 + 1e-6)
    assert narrowed(torch.tensor([largest]), torch.tensor(unit)).float().isfinite().all()


def test_units_of_nothing_and_of_no_numbers() -> None:
    unit = units(torch.tensor([0.0, float("inf"), float("nan")]))
    assert unit[0] > 0 and unit[1:].isnan().all()
    assert (narrowed(torch.zeros(3), unit[0]).float() == 0).all()


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_products(scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(n, 64, generator=generator) * scale for n in (20, 32))
    pair = tuple(
        Narrow(narrowed(t, unit), unit)
        for t, unit in ((x, units(x.abs().amax()[None])[0]), (w, units(w.abs().amax()[None])[0]))
    )
    y, bias = x @ w.t(), torch.randn(32, generator=generator) * scale**2
    assert float((product(pair, None, torch.float32) - y).norm() / y.norm()) < 0.04
    off = product(pair, bias, torch.float32) - product(pair, None, torch.float32) - bias
    assert float(off.abs().max()) < 1e-5 * scale**2
