"""The fused pass by formulas is the open pass: losses, and the gradient of every parameter."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from glassformer.models.build import Decoder, Encoder, Recurrent
from glassformer.models.fast.wanted import own_loops
from glassformer.models.gpu.fitting import fits
from glassformer.models.gpu.formulas import kept
from glassformer.models.gpu.twin import Twin, narrow_pairs
from glassformer.models.position import Alibi
from glassformer.models.tap import Record
from glassformer.objectives.loss import summed_loss
from tests.conftest import tiny_config, tiny_model

VARIANTS: dict[str, dict[str, Any]] = {
    "the default block": {},
    "GPT-2": {
        "position": "learned", "activation": "gelu-tanh", "bias": True, "tied": True, "qk_norm": False
    },
    "GPT-2 without biases": {
        "position": "learned", "activation": "gelu-tanh", "tied": True, "qk_norm": False
    },
    "RMSNorm and SwiGLU": {"norm": "rms", "activation": "swiglu"},
    "ReLU², grouped queries": {"activation": "relu2", "heads": 4, "kv_heads": 2, "head_width": 16},
    "sinusoidal, ReLU": {"position": "sinusoidal", "activation": "relu", "qk_norm": False},
    "no positions, RMSNorm": {"position": "none", "norm": "rms", "bias": True},
    "short convolutions at the start": {"shift": "embedding"},
    "short convolutions in layers": {"shift": "layers"},
}  # fmt: skip


def make(**changes: Any) -> Decoder:
    return tiny_model(**{"width": 32, "heads": 2, "head_width": 16, **changes}).train()


def batch(model: nn.Module, T: int = 12) -> tuple[Tensor, Tensor]:
    ids = torch.randint(23, (3, T + 1), generator=torch.Generator().manual_seed(3))
    return ids[:, :-1], ids[:, 1:]


def results(
    forward: Any, model: nn.Module, T: int = 12, smoothing: float = 0.0
) -> tuple[Tensor, dict[str, Tensor]]:
    inputs, targets = batch(model, T)
    model.zero_grad()
    with own_loops(True):
        loss = forward(inputs, readout=summed_loss, readout_args=(targets, smoothing))
    loss.backward()
    return loss.detach(), {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def assert_same(ours: Any, theirs: Any, tolerance: float) -> None:
    assert float(abs(ours[0] - theirs[0])) <= tolerance * float(theirs[0])
    assert ours[1].keys() == theirs[1].keys()
    largest = max(float(gradient.norm()) for gradient in theirs[1].values())
    for name, gradient in theirs[1].items():  # some are nothing but rounding, where there is one key to see
        off = float((ours[1][name] - gradient).norm()) / max(float(gradient.norm()), 1e-2 * largest)
        assert off <= tolerance, f"{name} is off by {off:.1e}"


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("T", [1, 7, 12])
@pytest.mark.parametrize("name", VARIANTS)
def test_losses_and_gradients_are_those_of_the_open_pass(name: str, T: int, smoothing: float) -> None:
    model = make(**VARIANTS[name])
    assert fits(model) is None
    twin = Twin(model, torch.float32)
    assert_same(results(twin, model, T, smoothing), results(model, model, T, smoothing), 2e-5)


def test_what_products_take_along_changes_nothing() -> None:
    """Additions and activations inside products, or by themselves: the same losses and gradients."""
    model = make(**VARIANTS["GPT-2 without biases"])
    joined, apart = Twin(model, torch.float32), Twin(model, torch.float32)
    apart.joins = False
    assert joined.joins
    assert_same(results(joined, model), results(apart, model), 1e-6)


@pytest.mark.parametrize("name", VARIANTS)
def test_in_half_precision_it_is_near(name: str) -> None:
    """The whole gradient, about as near as by PyTorch's own mixed precision, whose stream is wider."""
    model = make(**VARIANTS[name])
    ours, exact = results(Twin(model), model), results(model, model)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = results(model, model)
    assert float(abs(ours[0] - exact[0])) <= 0.01 * float(exact[0])
    assert off(ours[1], exact[1]) <= 2 * off(mixed[1], exact[1]) <= 0.1


def off(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    """How far two gradients are apart, as a share of the second."""
    a, b = (torch.cat([g.flatten() for g in found.values()]) for found in (ours, theirs))
    return float((a - b).norm() / b.norm())


def test_it_writes_the_same_scores_and_shows_what_the_model_shows() -> None:
    model = make()
    twin, (inputs, _) = Twin(model, torch.float32), batch(model)
    assert torch.allclose(twin(inputs), model(inputs), atol=1e-5)
    ours, theirs = Record(), Record()
    assert torch.equal(twin(inputs, tap=ours), model(inputs, tap=theirs))  # with a tap it is the open pass
    assert ours.shown == theirs.shown and "1.mlp_hidden" in ours.shown
    model.eval()
    assert torch.equal(twin(inputs), model(inputs))


class Hashed(nn.Dropout):
    """Dropout by the hash of a site, in the open pass."""

    def __init__(self, p: float, seed: Tensor, site: int):
        super().__init__(p)
        self.seed, self.site = seed, site

    def forward(self, input: Tensor) -> Tensor:
        return torch.where(kept(tuple(input.shape), self.seed, self.site, self.p), input / (1 - self.p), 0.0)


def test_dropout_is_a_function_of_seed_and_place() -> None:
    """Of all kinds but that of attention (held by the kernels' own tests), in the order of the pass."""
    how = {"attention_dropout": 0.0, "hidden_dropout": 0.2, "embedding_dropout": 0.3, "residual_dropout": 0.1}
    model = make(**how, output_dropout=0.25, dropout=0.1)
    twin = Twin(model, torch.float32)
    twin.seed.fill_(77)
    ours = results(twin, model)
    open_model = copy.deepcopy(model)
    seed, last = torch.tensor(77), 2 + 4 * len(model.stack.blocks)
    open_model.stack.dropout = Hashed(0.3, seed, 1)
    for i, block in enumerate(open_model.stack.blocks):
        # The norm behind a layer drops what that layer adds: attention's, then the net's.
        sites = iter([Hashed(0.1, seed, 4 * i + 4), Hashed(0.1, seed, 4 * i + 6)])
        block.mlp.dropout = Hashed(0.2, seed, 4 * i + 5)
        block.dropout = nn.Identity()
        block.register_module("dropout", _InTurn(list(sites)))
    open_model.dropout = Hashed(0.25, seed, last + 1)
    assert_same(ours, results(open_model, open_model), 2e-5)
    assert_same(results(twin, model), ours, 0.0)  # the same again
    twin.seed.fill_(78)
    assert float(abs(results(twin, model)[0] - ours[0])) > 1e-3


class _InTurn(nn.Module):
    def __init__(self, layers: list[Hashed]):
        super().__init__()
        self.layers, self.calls = nn.ModuleList(layers), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.layers[(self.calls - 1) % 2](x)


def test_what_does_not_fit_says_why() -> None:
    heads = {"width": 32, "heads": 2, "head_width": 16}
    for changes, word in [
        ({"placement": "post"}, "Norm"),
        ({"residual": False}, "residual"),
        ({"position": "alibi"}, "Alibi"),
        ({"window": 4}, "window"),
        ({"word_dropout": 0.1}, "word_dropout"),
        ({"norm": "batch"}, "LayerNorm"),
        ({"attention": "query-key"}, "attention"),
        ({"scaled": False}, "attention"),
        ({"value_width": 32}, "heads as wide"),
        ({"head_width": 24}, "heads as wide"),
    ]:
        reason = fits(make(**{**heads, **changes}))
        assert reason is not None and word in reason, changes
    assert "next token" in (fits(Encoder(tiny_config(labels=2), "label")) or "")
    assert "transformers" in (fits(Recurrent(tiny_config(family="lstm"))) or "")
    hooked = make()
    hooked.stack.blocks[0].register_forward_hook(lambda *_: None)
    assert "hooks" in (fits(hooked) or "")
    hooked = make()
    hooked.stack.norm.gamma.register_hook(lambda g: g)  # type: ignore[union-attr]
    assert "a parameter has hooks" in (fits(hooked) or "")
    assert "float32" in (fits(make().double()) or "")


def test_parts_of_ones_own_take_the_open_pass() -> None:
    class Own(Decoder):
        def forward(self, *arguments: Any, **named: Any) -> Tensor:
            return 2 * super().forward(*arguments, **named)

    class OwnLinear(nn.Linear):
        pass

    assert fits(Own(make().config)) is not None
    for change in (
        lambda model: setattr(model.stack.blocks[1].attention, "position", Alibi(2)),
        lambda model: setattr(model.stack.blocks[0].mlp, "up", OwnLinear(32, 128)),
        lambda model: setattr(model, "unembedding", OwnLinear(32, 23, bias=False)),
        lambda model: setattr(model.stack, "shift", nn.Identity()),
        lambda model: setattr(model.stack.blocks[0].mlp, "activation", torch.tanh),
        lambda model: model.stack.requires_grad_(False),
    ):
        model = make()
        assert fits(model) is None
        change(model)
        assert fits(model) is not None


def shares(model: nn.Module, twin: Twin) -> float:
    """How far the gradients of a twin are from those of the open pass in float32."""
    return off(results(twin, model)[1], results(model, model)[1])


@pytest.mark.parametrize("name", [n for n in VARIANTS if n != "short convolutions in layers"])
def test_some_products_in_8_bits(name: str) -> None:
    """Near the open pass, not as near as without."""
    model = make(**VARIANTS[name])
    twin = Twin(model, narrow=True)
    assert twin.narrows is not None and model.stack.norm in twin.narrows
    ours, exact = results(twin, model), results(model, model)
    assert float(abs(ours[0] - exact[0])) <= 0.02 * float(exact[0])
    assert shares(model, Twin(model)) < shares(model, twin) <= 0.3


def test_short_convolutions_leave_only_the_head_in_8_bits() -> None:
    assert len(narrow_pairs(make(shift="layers"))) == 1
    assert not narrow_pairs(make(shift="layers", output_dropout=0.1))
    assert len(narrow_pairs(make())) == 5
    assert len(narrow_pairs(make(hidden=24))) == 3


def test_a_weight_that_is_no_number_is_seen() -> None:
    """In 8 bits there is no infinity: it must not come back as a number."""
    for value in (float("inf"), float("nan")):
        model = make()
        with torch.no_grad():
            model.stack.blocks[0].mlp.up.weight[3, 5] = value
        assert not results(Twin(model, narrow=True), model)[0].isfinite()
