"""Dropout by kind and by word: what each drops, and that it is nothing where it is not set."""

from typing import Any

import pytest
import torch
from torch import nn

from glassformer.config.schema import build
from glassformer.core.errors import UsageError
from glassformer.models.layers import WordDropout
from glassformer.models.tap import Record
from glassformer.tasks.registry import make_model
from tests.conftest import tiny_config
from tests.models.families import FAMILIES, LABELS, READERS, close, ids, make

KINDS = ("attention_dropout", "residual_dropout", "embedding_dropout")


def drawn(task: str, **settings: Any) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """The weights of a model as it starts, and its scores in training, both from one seed."""
    torch.manual_seed(3)
    model = make_model(task, tiny_config(labels=LABELS, **settings))
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    inputs = (ids(2, 7), ids(2, 6)) if task == "translate" else (ids(2, 7),)
    for p in model.parameters():
        nn.init.normal_(p, std=0.3)
    return weights, model.train()(*inputs).detach()


@pytest.mark.parametrize(
    ("task", "name"), [("language", name) for name in FAMILIES] + [("classify", "lstm"), ("translate", "gru")]
)
def test_kinds_that_say_what_dropout_says_change_nothing(task: str, name: str) -> None:
    """Not the names or values of weights, and not one random draw."""
    settings = {**FAMILIES, **READERS}[name]
    family = settings.get("family", "transformer")
    kinds = {"embedding_dropout": 0.3}
    kinds |= {} if family == "window" else {"residual_dropout": 0.3}
    kinds |= {"attention_dropout": 0.3} if family == "transformer" else {}
    plain_weights, plain = drawn(task, **settings, dropout=0.3)
    weights, scores = drawn(task, **settings, dropout=0.3, **kinds, hidden_dropout=0.0, word_dropout=0.0)
    assert weights.keys() == plain_weights.keys()
    assert all(torch.equal(weights[n], w) for n, w in plain_weights.items())
    assert torch.equal(scores, plain)


@pytest.mark.parametrize("kind", [*KINDS, "hidden_dropout", "output_dropout", "word_dropout"])
@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_each_kind_drops_at_its_place_and_in_training_alone(kind: str, activation: str) -> None:
    model = make("language", "transformer", activation=activation, **{kind: 0.5})
    plain = make("language", "transformer", activation=activation)
    tokens = ids(2, 9)
    close(model(tokens), plain(tokens))
    first_seen = {
        "attention_dropout": "0.z",
        "residual_dropout": "0.resid_mid",
        "embedding_dropout": "embed",
        "hidden_dropout": "0.mlp_out",
        "output_dropout": "logits",
        "word_dropout": "embed",
    }
    before, in_training = Record(), Record()
    plain(tokens, tap=before)
    model.train()(tokens, tap=in_training)
    differing = [s for s, x in before.values.items() if not torch.allclose(x, in_training.values[s])]
    assert differing[0] == first_seen[kind]


def test_what_is_kept_is_scaled_up() -> None:
    model = make("language", "transformer", output_dropout=0.5).train()
    tokens = ids(64, 12)
    kept = Record("final", "logits")
    mean = torch.stack([model(tokens, tap=kept) for _ in range(200)]).mean(0)
    expected = model.unembedding(kept.values["final"])  # pyright: ignore
    assert float((mean - expected).detach().square().mean() / expected.detach().square().mean()) < 0.02


def test_words_are_left_out_everywhere_but_at_the_start() -> None:
    torch.manual_seed(0)
    embedding = WordDropout(50, 4, 0.4).train()
    tokens = torch.arange(50).repeat(3, 2)
    x, whole = embedding(tokens), embedding.weight[tokens]
    assert torch.equal(x[:, 0], whole[:, 0])
    share = (x[:, 1:] / whole[:, 1:]).detach()
    assert {round(v, 3) for v in share.flatten().tolist()} == {0.0, round(1 / 0.6, 3)}
    assert torch.equal(share[:, :49], share[:, 50:]) and torch.equal(share[0], share[1])  # the word goes
    assert 5 < int((share[0, :49, 0] == 0).sum()) < 35
    assert torch.equal(embedding.eval()(tokens), whole)


@pytest.mark.parametrize("kind", ["embedding_dropout", "residual_dropout", "output_dropout"])
def test_a_sequence_does_without_the_same_features_all_along(kind: str) -> None:
    model = make("language", "lstm", dropout_over="sequence", **{kind: 0.5}).train()
    plain = make("language", "lstm").train()
    tokens = ids(3, 9)
    seen, whole = Record(), Record()
    scores, _ = model(tokens, tap=seen), plain(tokens, tap=whole)
    if kind == "output_dropout":
        kept = torch.linalg.lstsq(model.unembedding.weight, scores.detach().flatten(0, 1).T).solution
        kept = kept.T.view(3, 9, -1) / whole.values["final"].detach()
    else:
        site = "embed" if kind == "embedding_dropout" else "0.resid"
        kept = (seen.values[site] / whole.values[site]).detach()  # (B, T, C)
    torch.testing.assert_close(kept, kept[:, :1].expand_as(kept), rtol=1e-3, atol=1e-3)
    assert {round(v, 2) for v in kept.abs().flatten().tolist()} == {0.0, 2.0}
    assert not torch.equal(kept[0, 0].round(), kept[1, 0].round())
    close(model.eval()(tokens), plain.eval()(tokens))


@pytest.mark.parametrize("task", ["masked", "classify", "tag", "translate"])
def test_every_task_of_a_recurrent_net_can_drop_features_of_sequences(task: str) -> None:
    torch.manual_seed(0)
    drops = {"dropout": 0.4, "output_dropout": 0.4, "recurrent_dropout": 0.4}
    config = tiny_config(labels=LABELS, family="gru", dropout_over="sequence", **drops)
    model = make_model(task, config).train()
    for p in model.parameters():
        nn.init.normal_(p, std=0.3)
    inputs = (ids(2, 7), ids(2, 6)) if task == "translate" else (ids(2, 7),)
    assert model(*inputs).shape == model.eval()(*inputs).shape
    assert not torch.equal(model.train()(*inputs), model(*inputs))
    assert torch.equal(model.eval()(*inputs), model(*inputs))


@pytest.mark.parametrize("task", ["language", "masked", "classify", "tag", "translate"])
def test_every_task_can_do_without_words_and_before_its_scores(task: str) -> None:
    torch.manual_seed(0)
    model = make_model(task, tiny_config(labels=LABELS, word_dropout=0.3, output_dropout=0.5, tied=True))
    for p in model.parameters():
        nn.init.normal_(p, std=0.3)
    inputs = (ids(2, 7), ids(2, 6)) if task == "translate" else (ids(2, 7),)
    a, b = model.train()(*inputs), model(*inputs)
    assert not torch.equal(a, b)
    assert torch.equal(model.eval()(*inputs), model(*inputs))


@pytest.mark.parametrize(
    ("task", "model", "named"),
    [
        ("language", {"family": "lstm", "hidden_dropout": 0.1}, "hidden_dropout"),
        ("language", {"family": "lstm", "attention_dropout": 0.1}, "attention_dropout"),
        ("language", {"family": "window", "residual_dropout": 0.1}, "residual_dropout"),
        ("language", {"family": "window", "attention_dropout": 0.1}, "attention_dropout"),
        ("classify", {"family": "gru", "attention_dropout": 0.1}, "attention_dropout"),
        ("classify", {"patch": 4, "word_dropout": 0.1}, "word_dropout"),
        ("language", {"family": "gru", "shift": "layers"}, "shift"),
        ("language", {"word_dropout": 1.0}, "word_dropout"),
        ("language", {"recurrent_dropout": 0.5}, "recurrent_dropout"),
        ("language", {"family": "window", "recurrent_dropout": 0.5}, "recurrent_dropout"),
        ("language", {"dropout_over": "sequence"}, "dropout_over"),
        ("classify", {"dropout_over": "sequence"}, "dropout_over"),
        ("language", {"family": "window", "dropout_over": "sequence"}, "dropout_over"),
    ],
)
def test_what_has_no_place_is_refused(task: str, model: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=f"model.{named}"):
        build({"task": task, "model": model})
    build({"task": "translate", "model": {"family": "gru", "attention_dropout": 0.1}})
