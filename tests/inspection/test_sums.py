"""Everything sums: heads to what attention wrote, parts to stream and logit, ways to the gradient."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from glassformer.inspection.chain import by_chain_rule
from glassformer.inspection.edits import put, steer, zero
from glassformer.inspection.gradients import backward, next_token_loss, side_by_side
from glassformer.inspection.maps import attention_of, head_contributions
from glassformer.inspection.residual import attribute, decompose, lens, relative_error
from glassformer.inspection.trace import gradients, record_trace
from glassformer.tasks.registry import make_model
from tests.conftest import tiny_config
from tests.models.families import close, ids, make

PLACEMENTS = ["pre", "post", "renorm", "none"]
MODELS: dict[str, dict[str, object]] = {
    **{placement: {"placement": placement, "bias": True} for placement in PLACEMENTS},
    "no residuals": {"residual": False},
    "no residuals, post": {"residual": False, "placement": "post", "bias": True},
    "no residuals, renorm": {"residual": False, "placement": "renorm"},
    "rms": {"norm": "rms", "placement": "post"},
    "batch": {"norm": "batch", "placement": "post", "bias": True},
    "grouped": {"heads": 4, "kv_heads": 2},
    "wide values": {"value_width": 12, "bias": True},
    "learned": {"position": "learned", "qk_norm": False, "tied": True, "bias": True},
    "sinusoidal": {"position": "sinusoidal"},
    "alibi, window": {"position": "alibi", "window": 4},
    "similarity": {"attention": "similarity"},
    "projected": {"attention": "projected"},
    "query-key": {"attention": "query-key"},
    "distance": {"attention": "distance", "position": "none"},
    "convolution": {"attention": "convolution", "position": "none"},
    "unscaled": {"scaled": False},
    "shifted embeddings": {"shift": "embedding", "position": "learned"},
    "shifted layers": {"shift": "layers", "placement": "renorm"},
}


@pytest.fixture(params=MODELS, ids=lambda name: name.replace(" ", "-"))
def model(request: pytest.FixtureRequest) -> torch.nn.Module:
    return make("language", "transformer", **{"layers": 3, **MODELS[request.param]})


def test_heads_sum_to_what_attention_wrote(model: torch.nn.Module) -> None:
    trace = record_trace(model, ids(2, 9))
    for layer in range(3):
        attention = attention_of(trace, layer)
        contributions = head_contributions(attention, trace[f"{layer}.z"])
        out = getattr(attention, "out", None)
        bias = 0 if out is None or out.bias is None else out.bias
        assert relative_error(contributions.sum(dim=1) + bias, trace[f"{layer}.attn_out"]) < 1e-6


def test_parts_sum_to_the_stream_at_every_depth(model: torch.nn.Module) -> None:
    trace = record_trace(model, ids(2, 9))
    for upto in range(4):
        for heads in (True, False):
            components = decompose(trace, upto, heads=heads)
            assert components.error < 1e-6
    components = decompose(trace, final=True, positions=[3, -1])
    assert components.values.shape[1:3] == (2, 2) and components.error < 1e-6


def test_parts_sum_to_each_logit(model: torch.nn.Module) -> None:
    trace = record_trace(model, ids(1, 9))
    for against in (None, 5):
        shares, logit, error = attribute(trace, token=7, position=4, against=against)
        expected = trace.logits[0, 4, 7] - (0 if against is None else trace.logits[0, 4, against])
        assert logit == pytest.approx(float(expected), abs=1e-5)
        assert sum(shares.values()) == pytest.approx(logit, abs=1e-5) and error < 1e-5


def test_the_lens_on_the_last_stream_is_the_answer(model: torch.nn.Module) -> None:
    trace = record_trace(model, ids(2, 9))
    close(lens(trace, "2.resid"), trace.logits)
    assert not torch.allclose(lens(trace, "embed"), trace.logits)


def test_the_two_ways_sum_to_the_gradient(model: torch.nn.Module) -> None:
    tokens = ids(2, 9)
    trace = record_trace(model, tokens)
    loss, layers = backward(trace, next_token_loss(tokens))
    assert [p.layer for p in layers] == [f"{i}.{kind}" for i in range(3) for kind in ("attention", "mlp")]
    for layer in layers:
        assert layer.error < 1e-5
    plain = next_token_loss(tokens)(model(tokens))
    close(loss, plain)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_sums_hold_under_edits(placement: str) -> None:
    """What an edit put into the stream is a part of its own; gradients go the ways that it left open."""
    model, tokens = make("language", "transformer", placement=placement, bias=True), ids(1, 9)
    other = record_trace(model, ids(1, 9, seed=3))
    for edits in (
        [zero("1.z", heads=0)],
        [put("0.attn_out", other["0.attn_out"], positions=2)],
        [zero("1.mlp_out"), steer("0.resid", torch.ones(16), 4.0)],
        [put("0.resid_mid", other["0.resid_mid"]), zero("1.q", heads=1)],
        [steer("embed", torch.ones(16), positions=3), zero("0.mlp_hidden", positions=-1)],
    ):
        trace = record_trace(model, tokens, edits=edits)
        assert decompose(trace, final=True).error < 1e-6
        assert attribute(trace, 3)[2] < 1e-5
        for layer in backward(trace, next_token_loss(tokens))[1]:
            total = layer.identity + layer.through
            assert float((total - layer.before).abs().max()) < 1e-6 * max(
                1.0, float(layer.before.abs().max())
            )


def test_with_residuals_before_the_norm_the_gradient_passes_unchanged() -> None:
    """Seed claim: under `pre` and `none` the identity's share *is* the gradient behind the layer."""
    tokens = ids(2, 9)
    for placement in ("pre", "none"):
        trace = record_trace(make("language", "transformer", placement=placement), tokens)
        _, layers = backward(trace, next_token_loss(tokens))
        for lower, upper in pairwise(layers):
            assert torch.equal(lower.identity, upper.before)


def test_without_residuals_nothing_passes_along_the_identity() -> None:
    tokens = ids(2, 9)
    trace = record_trace(make("language", "transformer", residual=False), tokens)
    for layer in backward(trace, next_token_loss(tokens))[1]:
        assert not layer.identity.any() and layer.through.any()


def test_gradients_vanish_over_depth_without_residuals() -> None:
    torch.manual_seed(0)
    tokens = ids(2, 9)
    model = make_model("language", tiny_config(layers=12, init="gpt2")).eval()
    lengths = side_by_side(record_trace(model, tokens), next_token_loss(tokens))
    residual, bare = lengths["as it is"], lengths["without residuals"]
    assert 0.1 < residual[0] / residual[-1] < 10
    assert bare[0] < 1e-3 * bare[-1]


@pytest.mark.parametrize(
    "settings",
    [{}, {"qk_norm": False, "position": "none", "bias": True}, {"heads": 4, "kv_heads": 2, "value_width": 6}],
    ids=str,
)
def test_the_chain_rule_written_out_is_what_autograd_gives(settings: dict[str, object]) -> None:
    model, tokens = make("language", "transformer", **settings), ids(2, 9)
    trace = record_trace(model, tokens)
    loss = next_token_loss(tokens)
    _, slopes = gradients(trace, loss, [f"1.{name}" for name in ("q", "k", "v", "z", "attn_out")])
    block = model.stack.blocks[1]  # pyright: ignore
    x = block.attention_norm(trace["0.resid"]).detach()
    by_hand = by_chain_rule(trace, 1, x, slopes["1.attn_out"])
    for name in "qkvz":
        assert relative_error(getattr(by_hand, name), slopes[f"1.{name}"]) < 1e-5
    parameters = dict(block.attention.named_parameters())
    expected = torch.autograd.grad(loss(model(tokens)), [parameters[name] for name in by_hand.parameters])
    for (name, gradient), other in zip(by_hand.parameters.items(), expected, strict=True):
        assert relative_error(gradient, other) < 1e-5, name


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_translator_sums_too(placement: str) -> None:
    model = make("translate", "transformer", placement=placement, bias=True)
    source, target = ids(2, 8), ids(2, 6, seed=2)
    padding_mask = torch.ones(2, 8, dtype=torch.bool)
    padding_mask[1, 5:] = False
    trace = record_trace(model, source, target, padding_mask=padding_mask)
    for part in ("encoder.", "decoder."):
        assert decompose(trace, part=part, final=True).error < 1e-6
    assert attribute(trace, 3, part="decoder.")[2] < 1e-5

    def loss(logits: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), target[:, 1:].flatten())

    layers = backward(trace, loss, part="decoder.")[1]
    assert {p.layer.rsplit(".", 1)[1] for p in layers} == {"attention", "cross", "mlp"}
    assert max(p.error for p in layers) < 1e-5
    assert max(p.error for p in backward(trace, loss, part="encoder.")[1]) < 1e-5
