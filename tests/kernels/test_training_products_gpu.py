"""Products that add and bend, by cuBLASLt, beside their formulas."""

import pytest
import torch
from torch import Tensor

from glassformer.models.gpu import blaslt, formulas
from glassformer.models.gpu.narrow import Narrow, narrowed, product, units

SIZES = [(8, 16, 24), (200, 384, 1152), (1000, 768, 3072), (77, 1600, 64)]


def draw(*shape: int, seed: int) -> Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return made.to("cuda", torch.bfloat16)


def near(ours: Tensor, theirs: Tensor) -> None:
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    off = float((ours.double() - theirs.double()).norm() / theirs.double().norm())
    assert off < 5e-3, off


def test_it_is_here() -> None:
    assert blaslt.missing() is None


@pytest.mark.parametrize(("n", "K", "N"), SIZES)
def test_products(n: int, K: int, N: int) -> None:
    x, w, onto = draw(n, K, seed=1), draw(N, K, seed=2) / K**0.5, draw(n, N, seed=3)
    wide = x.float(), w.float()
    near(blaslt.product_onto(x, w, onto), formulas.product_onto(*wide, onto.float()).bfloat16())
    near(blaslt.product_onto(x, w, None), formulas.product_onto(*wide, None).bfloat16())
    before, after = blaslt.gelu_product(x, w)
    for ours, theirs in zip((before, after), formulas.gelu_product(*wide), strict=True):
        near(ours, theirs.bfloat16())
    dy, bent = draw(n, N, seed=4), draw(n, K, seed=5)
    right = formulas.gelu_product_back(dy.float(), w.float(), bent.float())
    near(blaslt.gelu_product_back(dy, w, bent), right.bfloat16())


def test_equal_products_give_equal_bits_on_any_stream() -> None:
    x, w, onto = draw(4096, 768, seed=1), draw(768, 768, seed=2), draw(4096, 768, seed=3)
    first = blaslt.product_onto(x, w, onto)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    for _ in range(10):
        with torch.cuda.stream(stream):
            again = blaslt.product_onto(x, w, onto)
        torch.cuda.current_stream().wait_stream(stream)
        assert torch.equal(again, first)
        assert torch.equal(blaslt.product_onto(x, w, onto), first)


def narrow(x: Tensor) -> Narrow:
    (unit,) = units(x.abs().amax().float()[None])
    return Narrow(narrowed(x, unit), unit.clone())


@pytest.mark.parametrize(("n", "K", "N"), [(32, 64, 48), (208, 384, 1152), (1000, 768, 3072)])
def test_products_of_8_bits(n: int, K: int, N: int) -> None:
    pair = narrow(draw(n, K, seed=1)), narrow(draw(N, K, seed=2) / K**0.5)
    wide = tuple(t.numbers.float() * t.unit for t in pair)
    right = formulas.product_onto(*wide, None).bfloat16()
    near(product(pair, None, torch.bfloat16), right)
    bias = draw(N, seed=3)
    near(product(pair, bias, torch.bfloat16), (right.float() + bias.float()).bfloat16())
    both = blaslt.gelu_product(draw(n, K, seed=1), draw(N, K, seed=2), pair)
    if both is not None:  # not every version of the library has it
        for ours, theirs in zip(both, formulas.gelu_product(*wide), strict=True):
            near(ours, theirs.bfloat16())
