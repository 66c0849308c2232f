"""The short convolution: its formula, what it may see, and that it begins as nothing."""

import pytest
import torch

from glassformer.config.schema import build
from glassformer.inspection.causal import path_patch
from glassformer.inspection.edits import put
from glassformer.inspection.residual import decompose
from glassformer.inspection.trace import record_trace
from glassformer.models.block import Block
from glassformer.models.mask import Mask
from glassformer.models.shift import Shift
from glassformer.tasks.registry import make_model
from tests.conftest import tiny_config
from tests.models.families import LABELS, close, ids, make


def test_it_is_its_formula() -> None:
    torch.manual_seed(0)
    shift, x = Shift("mlp", 5, 3), torch.randn(2, 7, 5)
    torch.nn.init.normal_(shift.weight)
    y = shift(x, Mask())
    for t in range(7):
        expected = x[:, t].clone()
        for k in range(1, min(3, t) + 1):
            expected += shift.weight[k - 1, 0] * x[:, t - k]
        close(y[:, t], expected)


@pytest.mark.parametrize("task", ["language", "masked", "classify", "tag", "translate"])
@pytest.mark.parametrize("where", ["embedding", "layers"])
def test_it_begins_as_the_identity_and_draws_nothing(task: str, where: str) -> None:
    models = []
    for shift in ("none", where):
        torch.manual_seed(0)
        models.append(make_model(task, tiny_config(labels=LABELS, shift=shift, init="gpt2")).eval())
    plain, shifted = (dict(m.named_parameters()) for m in models)
    assert all(torch.equal(shifted[name], p) for name, p in plain.items())
    new = shifted.keys() - plain.keys()
    assert new and all(name.endswith("shift.weight") for name in new)
    inputs = (ids(2, 7), ids(2, 6)) if task == "translate" else (ids(2, 7),)
    assert torch.equal(models[0](*inputs), models[1](*inputs))


@pytest.mark.parametrize("where", ["embedding", "layers"])
def test_nothing_sees_what_comes_later(where: str) -> None:
    model, tokens = make("language", "transformer", shift=where), ids(1, 9)
    other = tokens.clone()
    other[:, 5] = (other[:, 5] + 1) % 23
    a, b = model(tokens), model(other)
    close(a[:, :5], b[:, :5])
    assert not torch.allclose(a[:, 6], b[:, 6])


@pytest.mark.parametrize("where", ["embedding", "layers"])
def test_hidden_positions_are_passed_on_to_nobody(where: str) -> None:
    model, tokens = make("tag", "transformer", shift=where), ids(1, 9)
    there = torch.ones(1, 9, dtype=torch.bool)
    there[:, 4] = False
    other = tokens.clone()
    other[:, 4] = (other[:, 4] + 1) % 23
    a, b = model(tokens, there), model(other, there)
    close(a[there], b[there])


def test_the_stream_starts_from_token_and_what_stood_before() -> None:
    model = make("language", "transformer", shift="embedding", position="learned")
    parts = decompose(record_trace(model, ids(2, 9)), upto=0)
    assert parts.names == ["token", "position", "before"] and parts.error < 1e-6
    assert not parts.values[2, :, 0].any() and parts.values[2, :, 1:].all()


def test_a_path_goes_through_the_shift_too() -> None:
    """A head's change sent to all heads of the next layer is what the layer makes of the changed stream."""
    model = make("language", "transformer", shift="layers", layers=2)
    clean, corrupt = (record_trace(model, ids(1, 9, seed=seed)) for seed in (1, 2))
    edit = path_patch(clean, corrupt, (0, 1), (1, 0), "qkv")
    block = model.stack.blocks[1]  # pyright: ignore
    assert isinstance(block, Block)
    both = record_trace(model, ids(1, 9, seed=1), edits=[put("0.z", corrupt["0.z"], heads=1)])
    stream = clean["0.resid"] + both["0.attn_out"] - clean["0.attn_out"]
    expected = record_trace(model, ids(1, 9, seed=1), edits=[put("0.resid", stream)])
    patched = record_trace(model, ids(1, 9, seed=1), edits=[edit])
    close(patched["1.z"][:, 0], expected["1.z"][:, 0])
    close(patched["1.z"][:, 1], clean["1.z"][:, 1])


def test_a_compiled_model_is_the_same() -> None:
    model, tokens = make("language", "transformer", shift="layers", word_dropout=0.2), ids(2, 9)
    torch._dynamo.reset()
    close(torch.compile(model, backend="aot_eager")(tokens), model(tokens))
    torch.compile(model.train(), backend="aot_eager")(tokens).sum().backward()
    assert build({"model": {"shift": "layers"}}).model.shift == "layers"
