"""The decoder: every combination of components, causality, and the real GPT-2 as judge."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

from glassformer.config.model import ModelConfig
from glassformer.config.schema import build
from glassformer.core.errors import UsageError
from glassformer.models.block import PLACEMENTS
from glassformer.models.build import Decoder, make_mlp
from glassformer.models.layers import LayerNorm, RMSNorm
from glassformer.models.model import parameter_count
from glassformer.models.tap import Record
from tests.conftest import tiny_config, tiny_model

VARIANTS = [
    *({"placement": p, "norm": n} for p in PLACEMENTS for n in ("layer", "rms")),
    *({"position": p} for p in ("learned", "sinusoidal", "rope", "alibi", "none")),
    *({"activation": a} for a in ("relu", "gelu", "gelu-tanh", "relu2", "swiglu")),
    {"kv_heads": 1},
    {"head_width": 6, "value_width": 10},
    {"tied": True},
    {"bias": True, "qk_norm": False},
    {"residual": False},
    {"window": 4},
    {"hidden": 40},
]
ids = lambda v: ",".join(f"{k}={x}" for k, x in v.items())  # noqa: E731


@pytest.mark.parametrize("variant", VARIANTS, ids=ids)
def test_no_output_sees_a_later_input(variant: dict[str, object]) -> None:
    """The gradient of output t with respect to input > t is exactly zero."""
    model = tiny_model(**variant)
    tokens = torch.randint(23, (1, 12))
    embedded = model.stack.embedding(tokens).detach().requires_grad_()

    def use(site: str, x: torch.Tensor) -> torch.Tensor:
        return (
            model.stack.position.embed(embedded, torch.arange(embedded.shape[1])[None])
            if site == "embed"
            else x
        )

    logits = model(tokens, tap=use)
    for t in (0, 5, 10):
        (gradient,) = torch.autograd.grad(logits[0, t].sum(), embedded, retain_graph=True)
        assert (gradient[0, t + 1 :] == 0).all()
        assert (gradient[0, t] != 0).any()


@pytest.mark.parametrize("variant", VARIANTS, ids=ids)
def test_every_site_is_shown_once_with_its_shape(variant: dict[str, object]) -> None:
    model = tiny_model(**variant)
    c = model.config
    record = Record()
    logits = model(torch.randint(23, (3, 7)), tap=record)
    B, T, C = 3, 7, c.width
    shapes = {
        "q": (B, c.heads, T, c.head_width),
        "k": (B, c.kv_heads, T, c.head_width),
        "v": (B, c.kv_heads, T, c.value_width),
        "z": (B, c.heads, T, c.value_width),
        "attn_out": (B, T, C),
        "resid_mid": (B, T, C),
        "mlp_hidden": (B, T, c.hidden),
        "mlp_out": (B, T, C),
        "resid": (B, T, C),
    }
    expected = {f"{i}.{site}": shape for i in range(2) for site, shape in shapes.items()}
    expected |= {"embed": (B, T, C), "final": (B, T, C), "logits": (B, T, 23)}
    assert {site: tuple(x.shape) for site, x in record.values.items()} == expected
    assert record.values["logits"] is logits


def copy_gpt2(peer: GPT2LMHeadModel, ours: Decoder) -> None:
    """GPT-2 stores its matrices transposed; everything else has the same meaning."""
    body = peer.transformer
    with torch.no_grad():
        ours.stack.embedding.weight.copy_(body.wte.weight)
        ours.stack.position.weight.copy_(body.wpe.weight)  # type: ignore[operator]
        norms = [(ours.stack.norm, body.ln_f)]
        for block, theirs in zip(ours.stack.blocks, body.h, strict=True):
            pairs = [
                (block.attention.qkv, theirs.attn.c_attn),
                (block.attention.out, theirs.attn.c_proj),
                (block.mlp.up, theirs.mlp.c_fc),
                (block.mlp.down, theirs.mlp.c_proj),
            ]
            for linear, conv in pairs:
                linear.weight.copy_(conv.weight.T)
                linear.bias.copy_(conv.bias)
            norms += [(block.attention_norm, theirs.ln_1), (block.mlp_norm, theirs.ln_2)]
        for ours_norm, theirs_norm in norms:
            ours_norm.gamma.copy_(theirs_norm.weight)  # type: ignore[operator]
            ours_norm.beta.copy_(theirs_norm.bias)  # type: ignore[operator]


def test_gpt2s_layout_gives_gpt2s_logits_and_gradients() -> None:
    torch.manual_seed(0)
    peer = GPT2LMHeadModel(
        GPT2Config(vocab_size=97, n_positions=32, n_embd=48, n_layer=3, n_head=4, attn_pdrop=0, resid_pdrop=0,
                   embd_pdrop=0)
    )  # fmt: skip
    with torch.no_grad():
        for p in peer.parameters():
            p.add_(0.1 * torch.randn_like(p))
    config = ModelConfig(
        layers=3,
        heads=4,
        width=48,
        context=32,
        vocab=97,
        position="learned",
        activation="gelu-tanh",
        tied=True,
        bias=True,
        qk_norm=False,
        init="gpt2",
    )
    ours = Decoder(config)
    copy_gpt2(peer, ours)
    assert parameter_count(ours) == sum(p.numel() for p in peer.parameters())
    tokens = torch.randint(97, (2, 32))
    theirs = peer(tokens).logits
    mine = ours(tokens)
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
    for model, logits in ((peer, theirs), (ours, mine)):
        model.zero_grad()
        F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
    expected = Decoder(config)
    for p in peer.parameters():
        assert p.grad is not None
        p.data.copy_(p.grad)
    copy_gpt2(peer, expected)  # the gradients, in our layout
    for (name, p), (_, want) in zip(ours.named_parameters(), expected.named_parameters(), strict=True):
        assert p.grad is not None
        torch.testing.assert_close(p.grad, want, rtol=1e-4, atol=1e-6, msg=name)


def test_norm_placements_are_their_formulas() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 8)
    norm, f = LayerNorm(8), nn.Linear(8, 8)
    add = torch.add
    torch.testing.assert_close(PLACEMENTS["pre"](x, norm, f, add), x + f(norm(x)))
    torch.testing.assert_close(PLACEMENTS["post"](x, norm, f, add), norm(x + f(x)))
    torch.testing.assert_close(PLACEMENTS["renorm"](x, norm, f, add), norm(x) + f(norm(x)))
    torch.testing.assert_close(PLACEMENTS["none"](x, norm, f, add), x + f(x))


def test_norms_and_feed_forward_are_their_formulas() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 8, dtype=torch.float64)
    layer, rms = LayerNorm(8).double(), RMSNorm(8).double()
    with torch.no_grad():
        layer.gamma.normal_(), rms.gamma.normal_()
        assert layer.beta is not None
        layer.beta.normal_()
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, unbiased=False, keepdim=True)
    torch.testing.assert_close(
        layer(x), layer.gamma * (x - mean) / (variance + layer.eps).sqrt() + layer.beta
    )
    torch.testing.assert_close(rms(x), rms.gamma * x / (x.square().mean(-1, keepdim=True) + rms.eps).sqrt())
    mlp = make_mlp(tiny_config(width=8, hidden=20, activation="relu", bias=True)).double()
    expected = torch.clamp(x @ mlp.up.weight.T + mlp.up.bias, min=0) @ mlp.down.weight.T + mlp.down.bias
    torch.testing.assert_close(mlp(x), expected)
    gated = make_mlp(tiny_config(width=8, hidden=20, activation="swiglu")).double()
    gate, linear = (x @ gated.up.weight.T).chunk(2, -1)
    torch.testing.assert_close(gated(x), (gate * torch.sigmoid(gate) * linear) @ gated.down.weight.T)


def test_without_residuals_nothing_but_the_layer_passes_on() -> None:
    model = tiny_model(residual=False)
    record = Record()
    model(torch.randint(23, (1, 5)), tap=record)
    torch.testing.assert_close(record.values["1.resid"], record.values["1.mlp_out"])


@pytest.mark.parametrize("init", ["gpt2", "fan-in"])
def test_initialisation_starts_near_the_uniform_prediction(init: str) -> None:
    torch.manual_seed(0)
    model = Decoder(tiny_config(init=init, vocab=50, width=32, layers=4))
    tokens = torch.randint(50, (8, 12))
    loss = F.cross_entropy(model(tokens).flatten(0, 1), torch.randint(50, (96,)))
    assert loss.item() == pytest.approx(torch.log(torch.tensor(50.0)).item(), abs=0.1)


def test_tied_embeddings_are_one_matrix() -> None:
    tied, untied = (Decoder(tiny_config(tied=t)) for t in (True, False))
    assert tied.unembedding.weight is tied.stack.embedding.weight
    assert parameter_count(untied) - parameter_count(tied) == 23 * 16


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 10, "heads": 3}, "cannot be shared by model.heads 3"),
        ({"heads": 4, "kv_heads": 3}, "not a multiple of model.kv_heads 3"),
        ({"head_width": 5}, "must be even"),
        ({"layers": 0}, "model.layers"),
        ({"norm": "group"}, "model.norm"),
        ({"dropout": 1.0}, "model.dropout"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build({"model": settings})


def test_all_combinations_of_components_learn_from_the_start() -> None:
    """After a step or two from a fresh start, a gradient reaches every parameter."""
    choices = itertools.product(
        ("layer", "rms"), PLACEMENTS, ("relu", "swiglu"), ("learned", "rope", "sinusoidal"), (True, False)
    )
    for norm, placement, activation, position, residual in choices:
        torch.manual_seed(0)
        model = Decoder(
            tiny_config(
                norm=norm, placement=placement, activation=activation, position=position, residual=residual
            )
        )
        tokens = torch.randint(23, (4, 9))
        for _ in range(3):
            model.zero_grad()
            F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
            with torch.no_grad():
                for p in model.parameters():
                    assert p.grad is not None
                    p.sub_(0.1 * p.grad)
        silent = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
        assert silent == [], (norm, placement, activation, position, residual)


def test_more_tokens_than_the_context_are_refused() -> None:
    with pytest.raises(ValueError, match="13 tokens are more than the context of 12"):
        tiny_model()(torch.randint(23, (1, 13)))
