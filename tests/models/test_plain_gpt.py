"""The GPT on one page is the oracle of the whole decoder: the same weights, the same numbers."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from glassformer.models.build import Decoder
from glassformer.models.plain_gpt import PlainGPT
from glassformer.objectives.loss import cross_entropy
from tests.conftest import tiny_model
from tests.generation.writing import write

GPT2 = {
    "norm": "layer",
    "placement": "pre",
    "position": "learned",
    "activation": "gelu-tanh",
    "bias": True,
    "tied": True,
    "qk_norm": False,
}
# The decoder's names and the page's. Its query, key and value are one matrix, cut apart in `renamed`.
NAMES = {"stack.": "", "embedding.": "tokens.", "position.": "positions.", "gamma": "gain", "beta": "shift"}
shapes = st.fixed_dictionaries(
    {
        "layers": st.integers(1, 3),
        "heads": st.integers(1, 3),
        "head_width": st.integers(1, 5),
        "vocab": st.integers(2, 30),
        "context": st.integers(3, 12),
        "seed": st.integers(0, 1000),
    }
)


def pair(
    layers: int, heads: int, head_width: int, vocab: int, context: int, seed: int
) -> tuple[PlainGPT, Decoder]:
    """The page and the decoder with the same random weights, in double precision."""
    width = heads * head_width
    sizes: dict[str, Any] = {"layers": layers, "heads": heads, "width": width, "hidden": 4 * width}
    decoder = tiny_model(seed, **sizes, **GPT2, vocab=vocab, context=context).double()
    plain = PlainGPT(vocab, context, layers, heads, width).double()
    plain.load_state_dict(renamed(dict(decoder.named_parameters())))
    return plain, decoder


def renamed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The decoder's weights, or their gradients, under the names of the page."""
    out: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        for decoder, plain in NAMES.items():
            name = name.replace(decoder, plain)
        if "qkv" in name:
            parts = zip(("query", "key", "value"), tensor.chunk(3), strict=True)
            out |= {name.replace("qkv", part): rows for part, rows in parts}
        else:
            out[name] = tensor
    return out


def assert_same(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    """The difference is small beside the whole tensor."""
    assert actual.shape == expected.shape
    assert (actual - expected).norm() <= tolerance * (expected.norm() + 1e-3)


@settings(max_examples=30, deadline=None)
@given(shapes, st.integers(1, 3), st.data())
def test_logits_are_those_of_the_decoder(shape: dict[str, int], B: int, data: st.DataObject) -> None:
    plain, decoder = pair(**shape)
    T = data.draw(st.integers(1, shape["context"]))
    ids = torch.randint(shape["vocab"], (B, T))
    with torch.no_grad():
        assert_same(decoder(ids), plain(ids), 1e-12)


@pytest.mark.parametrize(("layers", "heads", "head_width"), [(1, 1, 16), (2, 4, 8), (4, 2, 32)])
def test_logits_agree_in_single_precision(layers: int, heads: int, head_width: int) -> None:
    """Of widths that models have; a norm over two numbers that nearly agree is all rounding."""
    plain, decoder = pair(layers, heads, head_width, vocab=50, context=16, seed=0)
    ids = torch.randint(50, (2, 16))
    with torch.no_grad():
        assert_same(decoder.float()(ids), plain.float()(ids), 1e-6)


@settings(max_examples=20, deadline=None)
@given(shapes, st.integers(1, 3))
def test_loss_and_every_gradient_are_those_of_the_decoder(shape: dict[str, int], B: int) -> None:
    plain, decoder = pair(**shape)
    ids = torch.randint(shape["vocab"], (B, shape["context"]))
    expected = plain.loss(ids)
    actual = cross_entropy(decoder(ids[:, :-1]), ids[:, 1:]) / ids[:, 1:].numel()
    assert actual.item() == pytest.approx(expected.item(), rel=1e-12)
    expected.backward()
    actual.backward()
    gradients = renamed({name: p.grad for name, p in decoder.named_parameters() if p.grad is not None})
    assert gradients.keys() == {name for name, _ in plain.named_parameters()}
    for name, p in plain.named_parameters():
        assert p.grad is not None
        assert_same(gradients[name], p.grad, 1e-10)


@settings(max_examples=15, deadline=None)
@given(shapes, st.data())
def test_the_engine_writes_the_same_tokens(shape: dict[str, int], data: st.DataObject) -> None:
    """The cached generation, one position at a time, against reading everything again for each token."""
    plain, decoder = pair(**shape)
    T = data.draw(st.integers(1, shape["context"] - 1))
    prompt, count = torch.randint(shape["vocab"], (2, T)), shape["context"] - T
    for row, text in enumerate(prompt.tolist()):
        assert plain.generate(prompt, count)[row, T:].tolist() == write(decoder, text, count)


def test_a_new_model_prefers_no_token_and_learns() -> None:
    torch.manual_seed(0)
    model = PlainGPT(vocab=11, context=16, layers=2, heads=2, width=32)
    ids = (torch.arange(17) % 11).repeat(4, 1)
    assert model.loss(ids).item() == pytest.approx(math.log(11), abs=0.1)
    for _ in range(150):
        gradients = torch.autograd.grad(model.loss(ids), list(model.parameters()))
        with torch.no_grad():
            for p, gradient in zip(model.parameters(), gradients, strict=True):
                p -= 0.1 * gradient
    assert model.loss(ids).item() < 0.1
    assert model.generate(ids[:1, :3], 20)[0, :17].tolist() == ids[0].tolist()  # and writes past its context


def test_temperature_draws_from_the_softmax() -> None:
    torch.manual_seed(0)
    model = PlainGPT(vocab=5, context=4, layers=1, heads=1, width=4)
    with torch.no_grad():
        model.tokens.weight.mul_(50)  # so that some tokens are likelier
        prompt = torch.tensor([[1, 2]])
        expected = (model(prompt)[0, -1] / 0.7).softmax(-1)
    tokens = model.generate(prompt.expand(20_000, 2), 1, temperature=0.7)[:, -1]
    torch.testing.assert_close(tokens.bincount(minlength=5) / 20_000, expected, atol=0.015, rtol=0)
