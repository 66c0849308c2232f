"""The conformance suite: what every family of models promises to the rest of the project."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.config.model import ModelConfig
from glassformer.config.schema import build
from glassformer.core.errors import UsageError
from glassformer.models.model import EncoderDecoderModel, LanguageModel
from glassformer.models.operations import operations_per_token
from glassformer.models.state import Carried
from glassformer.models.tap import Record
from glassformer.tasks.registry import make_model
from glassformer.training.checkpoint.weights import load_weights, save_weights
from tests.models.families import FAMILIES, LABELS, READERS, VOCAB, close, ids, make

ENCODER_TASKS = ("classify", "tag", "masked")


@pytest.mark.parametrize("name", FAMILIES)
def test_a_language_model_scores_every_next_token(name: str) -> None:
    model = make("language", name)
    assert isinstance(model, LanguageModel)
    assert model(ids(2, 10)).shape == (2, 10, VOCAB)


@pytest.mark.parametrize("name", FAMILIES)
def test_nothing_leaks_from_the_future(name: str) -> None:
    """The gradient of what is said at t with respect to the input after t is exactly zero."""
    model, tokens = make("language", name), ids(1, 9)
    embedded: list[torch.Tensor] = []

    def tap(site: str, x: torch.Tensor) -> torch.Tensor:
        if site == "embed":
            x = x.detach().requires_grad_()
            embedded.append(x)
        return x

    logits = model(tokens, tap=tap)
    for t in (0, 3, 7):
        (gradient,) = torch.autograd.grad(logits[0, t].sum(), embedded[0], retain_graph=True)
        assert gradient[0, t + 1 :].abs().max() == 0
        assert gradient[0, t].abs().max() > 0


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=8, deadline=None)
@given(cuts=st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_with_its_state_a_model_reads_in_pieces(name: str, cuts: list[int]) -> None:
    model = make("language", name)
    tokens = ids(2, min(12, sum(cuts)))
    state, pieces, at = model.new_state(2), [], 0
    for cut in cuts:
        if at < tokens.shape[1]:
            pieces.append(model(tokens[:, at : at + cut], state=state))
            at += cut
    close(torch.cat(pieces, dim=1), model(tokens))
    assert state.length == tokens.shape[1]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_state_follows_its_rows(name: str) -> None:
    model, tokens = make("language", name), ids(3, 8)
    rows = torch.tensor([2, 0, 0])
    state = model.new_state(3)
    model(tokens[:, :5], state=state)
    state.select(rows)
    close(model(tokens[rows, 5:], state=state), model(tokens)[rows, 5:])


@pytest.mark.parametrize("name", [n for n in FAMILIES if make("language", n).limit is None])
def test_a_state_without_limit_can_be_put_away(name: str) -> None:
    model, tokens = make("language", name), ids(2, 8)
    state = model.new_state(2)
    model(tokens[:, :5], state=state)
    assert isinstance(state, Carried)
    other = model.new_state(2)
    other.load_state_dict({n: t.clone() for n, t in state.state_dict().items()})
    assert torch.equal(model(tokens[:, 5:], state=other), model(tokens[:, 5:], state=state))


@pytest.mark.parametrize("task", ENCODER_TASKS)
@pytest.mark.parametrize("name", READERS)
def test_neither_padding_nor_company_changes_a_result(name: str, task: str) -> None:
    model, tokens = make(task, name), ids(4, 10)
    lengths = [10, 3, 7, 1]
    padding_mask = torch.arange(10)[None] < torch.tensor(lengths)[:, None]
    together = model(tokens, padding_mask)
    assert together.shape[-1] == (VOCAB if task == "masked" else LABELS)
    for i, n in enumerate(lengths):
        alone = model(tokens[i : i + 1, :n])[0]
        close(together[i] if task == "classify" else together[i, :n], alone)


@pytest.mark.parametrize("pooling", ["mean", "first", "last", "attention"])
def test_pooling_counts_right_in_half_precision(pooling: str) -> None:
    model = make("classify", "gru", pooling=pooling, context=400)
    tokens = ids(1, 303)
    padding_mask = torch.ones(1, 303, dtype=torch.bool)
    record = Record("pool")
    with torch.autocast("cpu", torch.bfloat16):
        model(tokens, padding_mask, tap=record)
    weights = record.values["pool"]
    assert weights.sum().item() == pytest.approx(1.0, abs=1e-4)
    if pooling in ("first", "last"):
        assert weights.argmax().item() == (0 if pooling == "first" else 302)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_cost_of_a_pass_is_what_the_profiler_counts(name: str) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    if "family" in FAMILIES[name] or "attention" in FAMILIES[name]:
        return  # the counter does not know the fused recurrent kernels, nor a lower rung's layout
    model = make("language", name)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(ids(1, 12))
    assert operations_per_token(model, 12) == pytest.approx(counter.get_total_flops() / 12, rel=0.02)


def test_lower_rungs_cost_their_attention_too() -> None:
    costs = [
        operations_per_token(make("language", name), 12)
        for name in ("similarity", "query-key", "transformer")
    ]
    assert costs == sorted(costs)
    grows = operations_per_token(make("language", "similarity"), 24) - costs[0]
    assert grows == 2 * 2 * 12 * (16 + 16)  # two layers, twelve more positions, keys and values of width 16


@pytest.mark.parametrize("name", READERS)
def test_a_translator_ignores_padding_company_and_the_future(name: str) -> None:
    model, sources, targets = make("translate", name), ids(3, 9), ids(3, 6, seed=2)
    assert isinstance(model, EncoderDecoderModel)
    lengths = [9, 4, 1]
    padding_mask = torch.arange(9)[None] < torch.tensor(lengths)[:, None]
    together = model(sources, targets, padding_mask)
    for i, n in enumerate(lengths):
        close(together[i], model(sources[i : i + 1, :n], targets[i : i + 1])[0])
    changed = targets.clone()
    changed[:, 4:] = (changed[:, 4:] + 1) % VOCAB
    assert torch.equal(model(sources, changed, padding_mask)[:, :4], together[:, :4])


@pytest.mark.parametrize("name", READERS)
def test_a_translator_writes_step_by_step_what_it_scores_at_once(name: str) -> None:
    model, sources, targets = make("translate", name), ids(2, 9), ids(2, 7, seed=2)
    padding_mask = torch.tensor([[True] * 9, [True] * 5 + [False] * 4])
    state = model.start(sources, padding_mask)
    steps = [model.next_scores(targets[:, t : t + 1], state) for t in range(7)]
    close(torch.stack(steps, dim=1), model(sources, targets, padding_mask))


@pytest.mark.parametrize("task", ("language", *ENCODER_TASKS, "translate"))
@pytest.mark.parametrize("name", FAMILIES)
def test_taps_read_without_changing_and_edits_arrive(name: str, task: str) -> None:
    if task != "language" and name not in READERS:
        return
    model = make(task, name)
    given = (ids(2, 8), ids(2, 6)) if task == "translate" else (ids(2, 8),)
    record = Record()
    plain = model(*given)
    assert torch.equal(model(*given, tap=record), plain)
    first = "decoder.embed" if task == "translate" else "embed"
    assert {first, first.replace("embed", "final"), "logits"} <= set(record.values)
    for site in record.values:
        empty = name in ("distance", "convolution") and "cross" not in site and site.endswith((".q", ".k"))
        if site in ("logits", "pool") or empty:
            continue  # the queries and keys of a convolution are empty
        edited = model(*given, tap=lambda s, x, site=site: x + 1.0 if s == site else x)
        assert not torch.equal(edited, plain), site


@pytest.mark.parametrize("task", ("language", *ENCODER_TASKS, "translate"))
@pytest.mark.parametrize("name", FAMILIES)
def test_weights_and_settings_survive_a_file(name: str, task: str, tmp_path: Path) -> None:
    if task != "language" and name not in READERS:
        return
    model = make(task, name)
    save_weights(model, tmp_path / "model.safetensors")
    settings_ = ModelConfig.model_validate(model.config.model_dump(mode="json"))
    other = make_model(task, settings_)
    load_weights(other, tmp_path / "model.safetensors")
    given = (ids(2, 8), ids(2, 6)) if task == "translate" else (ids(2, 8),)
    assert torch.equal(other.eval()(*given), model(*given))


@pytest.mark.parametrize("name", FAMILIES)
def test_every_weight_learns(name: str) -> None:
    model = make("language", name).train()
    model(ids(2, 10)).logsumexp(-1).sum().backward()
    idle = [n for n, p in model.named_parameters() if p.grad is None or p.grad.abs().max() == 0]
    assert idle == []


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"task": "classify", "model": {"family": "window"}}, "cannot do the task classify"),
        ({"model": {"family": "window", "activation": "swiglu"}}, "swiglu"),
        ({"model": {"family": "lstm"}, "training": {"batch_growth": {5: 64}}}, "batch_growth"),
        ({"model": {"family": "lstm", "width": 33}}, "two directions share the width"),
        ({"model": {"attention": "similarity", "head_width": 8}}, "compares the tokens themselves"),
        ({"model": {"family": "gpt"}}, "model.family"),
        ({"model": {"pooling": "max"}}, "model.pooling"),
    ],
)
def test_impossible_settings_are_refused_in_words(settings_: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build(settings_)


def test_a_stored_run_that_names_the_decoder_still_opens() -> None:
    assert build({"model": {"family": "decoder"}}).model.family == "transformer"


@pytest.mark.parametrize("name", READERS)
def test_a_target_may_be_longer_than_its_source(name: str) -> None:
    model = make("translate", name)
    source, target = ids(2, 3), ids(2, 9, seed=2)
    padding_mask = torch.tensor([[True, True, True], [True, True, False]])
    scores = model(source, target, padding_mask)
    torch.testing.assert_close(scores[1:], model(source[1:, :2], target[1:]), rtol=1e-5, atol=1e-5)
