"""Causal tools: the batched forms are the plain ones, one run for each place."""

import pytest
import torch

from glassformer.core.errors import UsageError
from glassformer.inspection.causal import integrated, logit_difference, patch, path_patch
from glassformer.inspection.edits import put
from glassformer.inspection.trace import record_trace
from tests.models.families import close, ids, make

METRIC = logit_difference(3, 5)


@pytest.mark.parametrize("what", ["resid", "attention", "mlp", "heads"])
def test_patching_all_places_at_once_is_patching_each(what: str) -> None:
    model = make("language", "transformer")
    clean, corrupt = record_trace(model, ids(1, 7)), ids(1, 7, seed=2)
    patching = patch(clean, corrupt, METRIC, what, rows=5)
    site = {"resid": "resid", "attention": "attn_out", "mlp": "mlp_out", "heads": "z"}[what]
    for layer in range(2):
        for place in range(2 if what == "heads" else 7):
            name = f"{layer}.{site}"
            where = {"heads": place} if what == "heads" else {"positions": place}
            one = record_trace(model, corrupt, edits=[put(name, clean[name], **where)]).logits
            close(patching.values[layer, place], METRIC(one)[0])
    assert patching.clean == pytest.approx(float(METRIC(clean.logits)))
    assert patching.corrupt == pytest.approx(float(METRIC(record_trace(model, corrupt).logits)))


def test_the_last_place_of_the_stream_restores_everything() -> None:
    model = make("language", "transformer")
    patching = patch(record_trace(model, ids(1, 7)), ids(1, 7, seed=2), METRIC)
    assert float(patching.restored[1, -1]) == pytest.approx(1.0, abs=1e-5)
    assert patching.restored[1, :-1].abs().max() < 1e-5


def test_heads_by_position_too() -> None:
    model = make("language", "transformer")
    patching = patch(record_trace(model, ids(1, 7)), ids(1, 7, seed=2), METRIC, "heads", by_position=True)
    assert patching.values.shape == (2, 2, 7)


def test_texts_of_two_lengths_are_refused() -> None:
    model = make("language", "transformer")
    with pytest.raises(UsageError, match="one length"):
        patch(record_trace(model, ids(1, 7)), ids(1, 6), METRIC)


@pytest.mark.parametrize("placement", ["pre", "none"])
@pytest.mark.parametrize("inputs", ["q", "k", "v", "qkv"])
def test_a_path_is_what_is_left_when_all_else_is_held(placement: str, inputs: str) -> None:
    """The slow way: run the corrupt head with everything between held at its clean value, read the receiver's
    q, k and v there, and put them into a clean run."""
    model = make("language", "transformer", layers=3, heads=4, kv_heads=2, placement=placement, bias=True)
    clean, corrupt = record_trace(model, ids(1, 7)), record_trace(model, ids(1, 7, seed=2))
    edit = path_patch(clean, corrupt, sender=(0, 1), receiver=(2, 3), inputs=inputs)
    fast = record_trace(model, *clean.inputs, edits=[edit])

    edits = [put("0.z", corrupt["0.z"], heads=1)]
    edits += [put(f"{i}.{s}", clean[f"{i}.{s}"]) for i in (0, 1) for s in ("mlp_out",)]
    edits += [put("1.attn_out", clean["1.attn_out"])]
    slow = record_trace(model, *clean.inputs, edits=edits)
    input_edits = [put(f"2.{n}", slow[f"2.{n}"], heads=3 if n == "q" else 1) for n in inputs]
    z = record_trace(model, *clean.inputs, edits=input_edits)[
        "2.z"
    ]  # heads 2 and 3 share keys and values: take one of them
    close(fast.logits, record_trace(model, *clean.inputs, edits=[put("2.z", z, heads=3)]).logits)
    assert torch.equal(fast["2.z"][:, :3], clean["2.z"][:, :3])
    assert not torch.allclose(fast.logits, clean.logits)


def test_paths_that_cannot_be_are_refused() -> None:
    model = make("language", "transformer")
    trace = record_trace(model, ids(1, 7))
    for wrong in (
        {"sender": (1, 0), "receiver": (1, 1)},
        {"sender": (0, 0), "receiver": (1, 1), "inputs": "x"},
        {"sender": (0, 9), "receiver": (1, 1)},
        {"sender": (0, 0), "receiver": (9, 1)},
    ):
        with pytest.raises(UsageError):
            path_patch(trace, trace, **wrong)
    post = record_trace(make("language", "transformer", placement="post"), ids(1, 7))
    with pytest.raises(UsageError, match="pre or none"):
        path_patch(post, post, (0, 0), (1, 0))


def test_integrated_gradients_are_complete() -> None:
    model, tokens = make("language", "transformer"), ids(1, 7)
    gaps = []
    for steps in (2, 8, 64):
        result = integrated(model, tokens, METRIC, steps=steps)
        gaps.append(result.gap)
    assert gaps[2] < 1e-4 * abs(result.value - result.baseline) and gaps[2] < gaps[0]
    assert result.value == pytest.approx(float(METRIC(record_trace(model, tokens).logits)), abs=1e-5)
    assert result.attributions.shape == (7,)
