"""What TransformerLens also computes, it computes alike: to 1e-4 of the largest value, in float32.

`make test-peers` installs it into an environment of its own; elsewhere this is passed over. Judged are a
GPT-2-shaped model with random weights and the trained run of the recipe `induction`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.config.model import ModelConfig
from glassformer.inspection.causal import logit_difference, patch
from glassformer.inspection.maps import attention_of, head_contributions, pattern
from glassformer.inspection.residual import attribute, decompose, lens, stream_sites
from glassformer.inspection.trace import Trace, record_trace
from glassformer.models.build import Decoder

lens_ = pytest.importorskip("transformer_lens")


def same(ours: Tensor, theirs: Tensor) -> None:
    ours, theirs = ours.detach(), theirs.detach()
    assert ours.shape == theirs.shape
    assert float((ours - theirs).abs().max()) <= 1e-4 * float(theirs.abs().max())


def to_transformer_lens(model: Decoder) -> Any:
    """The same weights in the other's model."""
    c = model.config
    config = lens_.HookedTransformerConfig(
        n_layers=c.layers,
        d_model=c.width,
        n_ctx=c.context,
        d_head=c.head_width,
        n_heads=c.heads,
        d_mlp=c.hidden,
        d_vocab=c.vocab,
        act_fn={"gelu-tanh": "gelu_new", "gelu": "gelu"}[c.activation],
        normalization_type="LN",
        eps=1e-5,
        positional_embedding_type="standard" if c.position == "learned" else "rotary",
        rotary_dim=None if c.position == "learned" else c.head_width,
        default_prepend_bos=False,
        device="cpu",
    )
    other = lens_.HookedTransformer(config)
    own, H, D, C = model.state_dict(), c.heads, c.head_width, c.width
    weights = {"embed.W_E": own["stack.embedding.weight"], "unembed.W_U": own["unembedding.weight"].T}
    if c.position == "learned":
        weights["pos_embed.W_pos"] = own["stack.position.weight"]
    for norm, theirs in [("stack.norm", "ln_final")]:
        weights |= _norm(own, norm, theirs, C)
    for i in range(c.layers):
        ours, its = f"stack.blocks.{i}.", f"blocks.{i}."
        weights |= _norm(own, f"{ours}attention_norm", f"{its}ln1", C)
        weights |= _norm(own, f"{ours}mlp_norm", f"{its}ln2", C)
        matrices = own[f"{ours}attention.qkv.weight"].chunk(3)
        biases = own.get(f"{ours}attention.qkv.bias", torch.zeros(3 * H * D)).chunk(3)
        for name, matrix, bias in zip("QKV", matrices, biases, strict=True):
            weights[f"{its}attn.W_{name}"] = matrix.view(H, D, C).transpose(1, 2)
            weights[f"{its}attn.b_{name}"] = bias.view(H, D)
        weights[f"{its}attn.W_O"] = own[f"{ours}attention.out.weight"].T.reshape(H, D, C)
        weights[f"{its}attn.b_O"] = own.get(f"{ours}attention.out.bias", torch.zeros(C))
        for name, part in (("in", "up"), ("out", "down")):
            matrix = own[f"{ours}mlp.{part}.weight"]
            weights[f"{its}mlp.W_{name}"] = matrix.T
            weights[f"{its}mlp.b_{name}"] = own.get(f"{ours}mlp.{part}.bias", torch.zeros(len(matrix)))
    missing, unexpected = other.load_state_dict(weights, strict=False)
    assert not unexpected
    assert all("mask" in m or "IGNORE" in m or "rotary" in m or m == "unembed.b_U" for m in missing), missing
    return other.eval()


def _norm(own: dict[str, Tensor], ours: str, theirs: str, C: int) -> dict[str, Tensor]:
    return {f"{theirs}.w": own[f"{ours}.gamma"], f"{theirs}.b": own.get(f"{ours}.beta", torch.zeros(C))}


@pytest.fixture(scope="module", params=["gpt2, random", "induction, trained"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """(our model, theirs, two texts of one length)."""
    torch.manual_seed(0)
    if request.param.startswith("gpt2"):
        config = ModelConfig(
            layers=3, heads=4, width=64, context=32, vocab=97, position="learned", qk_norm=False, bias=True,
            activation="gelu-tanh", tied=True, init="gpt2",
        )  # fmt: skip
        model = Decoder(config).eval()
        with torch.no_grad():
            for p in model.parameters():
                p.add_(0.1 * torch.randn_like(p))
    else:
        model = trained(tmp_path_factory.mktemp("run") / "induction")
    texts = torch.randint(3, model.vocab - 3, (2, 1, 20), generator=torch.Generator().manual_seed(1))
    yield model, to_transformer_lens(model), texts


def trained(path: Path) -> Decoder:
    import glassformer as gf

    model = gf.train(recipe="induction", out=path, settings={"training.steps": 200}).model
    assert isinstance(model, Decoder)
    return model.cpu()


@pytest.fixture(scope="module")
def both(pair: Any) -> tuple[Trace, Any, Any, Tensor, Tensor]:
    model, other, (clean, corrupt) = pair
    with torch.no_grad():
        logits, cache = other.run_with_cache(clean)
    cache.model = other
    other.cfg.use_attn_result = True
    trace = record_trace(model, clean)
    same(trace.logits, logits)
    return trace, other, cache, clean, corrupt


def test_patterns_and_heads(both: Any) -> None:
    trace, _, cache, *_ = both
    layers = len(trace.model.stack.blocks)
    results = cache.stack_head_results(layer=layers)  # (layers · heads, B, T, C)
    ours: list[Tensor] = []
    for i in range(layers):
        same(pattern(trace, i), cache["pattern", i])
        ours.append(head_contributions(attention_of(trace, i), trace[f"{i}.z"])[0])
    same(torch.cat(ours), results[:, 0])


def test_the_residual_stream(both: Any) -> None:
    trace, _, cache, *_ = both
    layers = len(trace.model.stack.blocks)
    components = decompose(trace, heads=False)
    theirs, labels = cache.decompose_resid(return_labels=True)
    parts = dict(zip(components.names, components.values, strict=True))
    for label, value in zip(labels, theirs, strict=True):
        if label in ("embed", "pos_embed"):
            same(parts[{"embed": "token", "pos_embed": "position"}[label]], value)
        else:
            number, _, kind = label.partition("_")
            same(parts[f"{number}.{'attention' if kind == 'attn_out' else 'mlp'}"], value)
    same(components.total, cache["resid_post", layers - 1])


def test_the_logit_lens(both: Any) -> None:
    trace, other, cache, *_ = both
    stream = cache.accumulated_resid(layer=-1, incl_mid=False)  # embedding and every block
    last = cache["resid_post", len(trace.model.stack.blocks) - 1]
    for site, value in zip(
        stream_sites(trace), [*stream[: len(trace.model.stack.blocks)], last], strict=True
    ):
        same(lens(trace, site), other.unembed(other.ln_final(value)))


def test_direct_logit_attribution(both: Any) -> None:
    trace, other, cache, *_ = both
    shares, _, error = attribute(trace, 7, position=-1, against=9)
    assert error < 1e-5
    heads = cache.stack_head_results(layer=-1, pos_slice=-1)  # (layers · heads, B, C)
    layers = range(len(trace.model.stack.blocks))
    others = [cache["embed"][:, -1], *(cache["mlp_out", i][:, -1] for i in layers)]
    others += [cache["pos_embed"][:, -1]] if "position" in shares else []
    results = torch.cat([heads, torch.stack(others)])
    scaled = cache.apply_ln_to_stack(results, layer=-1, pos_slice=-1) * other.ln_final.w  # γ is not folded in
    theirs = scaled @ (other.W_U[:, 7] - other.W_U[:, 9])
    contributions = [v for name, v in shares.items() if "head" in name]
    contributions += [shares["token"], *(shares[f"{i}.mlp"] for i in layers)]
    contributions += [shares["position"]] if "position" in shares else []
    ours = torch.tensor(contributions)
    same(ours, theirs.detach().flatten())


def test_activation_patching(both: Any) -> None:
    from transformer_lens import patching

    trace, other, cache, _, corrupt = both

    def metric(logits: Tensor) -> Tensor:
        return logits[0, -1, 7] - logits[0, -1, 9]

    ours = {
        what: patch(trace, corrupt, logit_difference(7, 9), what).values
        for what in ("resid", "attention", "mlp", "heads")
    }
    same(ours["resid"][:-1], patching.get_act_patch_resid_pre(other, corrupt, cache, metric)[1:])
    same(ours["attention"], patching.get_act_patch_attn_out(other, corrupt, cache, metric))
    same(ours["mlp"], patching.get_act_patch_mlp_out(other, corrupt, cache, metric))
    same(ours["heads"], patching.get_act_patch_attn_head_out_all_pos(other, corrupt, cache, metric))
