"""Tasks: what a batch holds is a pure function, what is scored is what should be, states are carried."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.config.schema import build
from glassformer.core.errors import DataError, UsageError
from glassformer.data.batches import Buckets, Streams, pad
from glassformer.data.examples import Examples
from glassformer.data.shards import Tokens
from glassformer.objectives.labelling import Labelling
from glassformer.objectives.language import StreamModelling, language_modelling
from glassformer.objectives.loss import NOT_SCORED
from glassformer.objectives.masked import MaskedModelling, hide
from glassformer.objectives.translation import Translating
from glassformer.tasks.translator import TranslateTask
from glassformer.tokenizers.bpe_tokenizer import BPE
from glassformer.tokenizers.tokenizer import Byte
from tests.models.families import VOCAB, close, make

TEXT = Tokens([np.arange(1000) % VOCAB], 1000)


def test_streams_go_on_where_the_last_batch_ended() -> None:
    streams = Streams(TEXT, context=10, rows=4, seed=3)
    for step in range(2 * streams.pieces):
        now, then = (streams.read(s * 4, 4) for s in (step, step + 1))
        if not streams.fresh((step + 1) * 4):
            assert (then[:, 0] == now[:, -1]).all()
    assert [s for s in range(2 * streams.pieces) if streams.fresh(s * 4)] == [0, streams.pieces]
    with pytest.raises(DataError, match=r"shorter than model\.context"):
        Streams(TEXT, context=100, rows=20, seed=0)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 120), batch=st.integers(1, 16), seed=st.integers(0, 5), epoch=st.integers(0, 3))
def test_an_epoch_shows_each_example_once(n: int, batch: int, seed: int, epoch: int) -> None:
    lengths = [(7 * i) % 13 + 1 for i in range(n)]
    buckets = Buckets(lengths, batch, seed)
    rows = buckets.rows(epoch * buckets.per_epoch, buckets.per_epoch)
    assert len(set(rows)) == len(rows) >= n - batch + 1 or n < batch
    assert rows == Buckets(lengths, batch, seed).rows(epoch * buckets.per_epoch, buckets.per_epoch)


def test_batches_are_of_nearly_one_length() -> None:
    lengths = np.random.default_rng(0).integers(1, 60, 2000).tolist()
    buckets = Buckets(lengths, 20, 0)
    waste = 0
    for first in range(0, 2000, 20):
        mine = [lengths[i] for i in buckets.rows(first, 20)]
        waste += 20 * max(mine) - sum(mine)
    assert waste < 0.05 * sum(lengths)


def test_padding_says_what_is_real() -> None:
    padded, real = pad([np.array([1, 2, 3]), np.array([4])], fill=9)
    assert padded.tolist() == [[1, 2, 3], [4, 9, 9]]
    assert real.tolist() == [[True, True, True], [True, False, False]]


def test_a_recurrent_model_trains_on_one_long_text() -> None:
    """Losses of batch after batch with the carried state are those of the whole stream at once."""
    model = make("language", "lstm")
    task = language_modelling(model, TEXT, context=10, rows=2, seed=0)
    assert isinstance(task, StreamModelling)
    batches = [task.batch(2 * s, 2) for s in range(4)]
    parts = sum(task.loss(model, b) for b in batches)
    whole = (
        torch.cat([b["inputs"] for b in batches], dim=1),
        torch.cat([b["targets"] for b in batches], dim=1),
    )
    expected = torch.nn.functional.cross_entropy(
        model(whole[0]).flatten(0, 1), whole[1].flatten(), reduction="sum"
    )
    close(parts, expected)


def test_gradients_end_where_a_batch_begins() -> None:
    model = make("language", "gru").train()
    task = language_modelling(model, TEXT, context=10, rows=2, seed=0)
    for step in range(2):
        task.loss(model, task.batch(2 * step, 2)).backward()  # the second would fail if the graph went on


def test_parts_of_a_batch_carry_their_own_states() -> None:
    model = make("language", "lstm")
    whole, halves = (language_modelling(model, TEXT, 10, 4, 0) for _ in range(2))
    for step in range(3):
        at_once = whole.loss(model, whole.batch(4 * step, 4))
        in_parts = sum(halves.loss(model, halves.batch(4 * step + i, 2)) for i in (0, 2))
        close(at_once, in_parts)
    again = language_modelling(model, TEXT, 10, 4, 0)
    again.load_state_dict(halves.state_dict())
    close(
        sum(again.loss(model, again.batch(12 + i, 2)) for i in (0, 2)), whole.loss(model, whole.batch(12, 4))
    )


def test_hidden_tokens_are_some_masked_some_random_some_as_they_were() -> None:
    ids = np.arange(20_000) % 50
    inputs, targets = hide(ids, mask=50, seed=7)
    chosen = targets != NOT_SCORED
    assert (targets[chosen] == ids[chosen]).all() and (inputs[~chosen] == ids[~chosen]).all()
    assert chosen.mean() == pytest.approx(0.15, abs=0.01)
    assert (inputs[chosen] == 50).mean() == pytest.approx(0.8, abs=0.02)
    assert (inputs[chosen] == ids[chosen]).mean() == pytest.approx(0.1, abs=0.02)
    again = hide(ids, mask=50, seed=7)
    assert (again[0] == inputs).all()
    assert (hide(np.array([3]), 9, 0)[1] != NOT_SCORED).any()


def test_masked_modelling_scores_hidden_tokens_only() -> None:
    task = MaskedModelling(TEXT, context=12, seed=0, mask=22)
    batch = task.batch(0, 5)
    assert batch["inputs"].shape == (5, 12)
    assert task.targets(batch) == int((batch["targets"] != NOT_SCORED).sum()) >= 5
    model = make("masked", "transformer")
    logits = model(batch["inputs"])
    expected = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), batch["targets"].flatten(), reduction="sum"
    )
    torch.testing.assert_close(task.loss(model, batch), expected)


def test_hiding_input_tokens_is_a_function_of_the_sample() -> None:
    inputs = [np.arange(1, 20) for _ in range(8)]
    labels = [np.array(0)] * 8
    task = Labelling("classify", inputs, labels, batch=4, seed=1, token_dropout=0.5, mask_id=0)
    one, two = task.batch(0, 4), task.batch(4, 4)
    assert torch.equal(one["inputs"], task.batch(0, 4)["inputs"])
    assert not torch.equal(one["inputs"], two["inputs"])
    assert (one["inputs"][:, 0] == 1).all() and (one["inputs"] == 0).float().mean() > 0.3
    assert (task.collate([0])["inputs"] != 0).all()  # measuring hides nothing


def test_a_translation_begins_after_the_mark_and_ends_with_it() -> None:
    task = Translating([np.array([5, 6])], [np.array([7, 8, 9])], eot_id=0)
    batch = task.collate([0])
    assert batch["sources"].tolist() == [[5, 6, 0]]
    assert batch["inputs"].tolist() == [[0, 7, 8, 9]]
    assert batch["targets"].tolist() == [[7, 8, 9, 0]]
    assert (task.targets(batch), task.tokens(batch)) == (4, 7)


def test_penalties_are_of_recurrent_language_models_alone() -> None:
    wanted = {"activation_penalty": 2.0, "change_penalty": 1.0}
    build({"model": {"family": "lstm"}, "training": wanted})
    build({"model": {"family": "lstm", "dropout": 0.2, "dropout_over": "sequence"}, "training": wanted})
    for dropped in ({"output_dropout": 0.2}, {"dropout": 0.2}):
        with pytest.raises(UsageError, match=r"set model\.dropout_over to sequence"):
            build({"model": {"family": "lstm", **dropped}, "training": wanted})
    for other in ({}, {"model": {"family": "window"}}, {"task": "tag", "model": {"family": "lstm"}}):
        for name in wanted:
            with pytest.raises(
                UsageError, match=r"training\.activation_penalty, change_penalty: for the task"
            ):
                build({**other, "training": {name: 1.0}})
    model = make("language", "lstm")
    plain, calm = (StreamModelling(model, TEXT, 10, 4, 0, p) for p in ((0.0, 0.0), (2.0, 1.0)))
    batch = plain.batch(0, 4)
    assert calm.loss(model, batch).item() > plain.loss(model, batch).item() + 0.1


def test_a_pair_is_read_twice_with_other_tokens_hidden_where_both_are_to_agree() -> None:
    pairs = [np.arange(5, 16), np.arange(8, 17), np.arange(3, 9)]
    once = Translating(pairs, pairs, 0, batch=3, seed=1)
    twice = Translating(pairs, pairs, 0, batch=3, seed=1, token_dropout=0.3, consistency=5.0)
    plain, batch = once.batch(3, 3), twice.batch(3, 3)
    for name in ("targets", "padding_mask"):
        assert torch.equal(batch[name], plain[name].repeat(2, 1))
    first, second = batch["sources"].chunk(2)
    assert not torch.equal(first, second) and not torch.equal(first, plain["sources"])
    assert ((first == plain["sources"]) | (first == 0)).all()
    assert twice.targets(batch) == 2 * once.targets(plain) and twice.tokens(batch) == 2 * once.tokens(plain)
    assert all(torch.equal(twice.collate([1])[n], t) for n, t in once.collate([1]).items())
    model = make("translate", "transformer").eval()
    batch = Translating(pairs, pairs, 0, batch=3, seed=1, consistency=5.0).batch(3, 3)
    close(twice.loss(model, batch), 2 * once.loss(model, plain))  # without dropout they agree
    model = make("translate", "transformer", dropout=0.3).train()
    losses = []
    for weight in (5.0, 10.0):
        torch.manual_seed(0)
        objective = Translating(pairs, pairs, 0, batch=3, consistency=weight)
        losses.append(objective.loss(model, batch).item())
    assert losses[1] > losses[0] + 0.1
    with pytest.raises(UsageError, match=r"training\.consistency: for translate"):
        build({"task": "tag", "training": {"consistency": 5.0}})
    with pytest.raises(UsageError, match="the same without dropout"):
        build({"task": "translate", "training": {"consistency": 5.0}})
    for dropping in ({"model": {"dropout": 0.1}}, {"training": {"token_dropout": 0.1}}):
        given = {"training": {}, **dropping}
        build({"task": "translate", **given, "training": {**given["training"], "consistency": 5.0}})


def test_examples_are_cut_anew_each_time_and_the_same_way_on_resume() -> None:
    """BPE-dropout: other ids for the same sentence in the next epoch, the same ones for the same sample."""
    pairs = [("low lower lowest", "newest newer new"), ("lowest low", "new newer")] * 8
    bpe = BPE.train([side for pair in pairs for side in pair] * 3, 300)
    source = Examples("pairs", {"train": pairs, "valid": pairs}, "as given")
    config = build(
        {"task": "translate", "training": {"merge_dropout": 0.5, "batch": 4}, "model": {"vocab": len(bpe)}}
    )
    task = TranslateTask(source, bpe, config.data).objective(torch.nn.Identity(), config)
    seen = set()
    for first in range(0, 160, 4):
        batch = task.batch(first, 4)
        again = TranslateTask(source, bpe, config.data).objective(torch.nn.Identity(), config).batch(first, 4)
        assert all(torch.equal(batch[name], again[name]) for name in batch)
        for row, padding_mask in zip(batch["sources"].tolist(), batch["padding_mask"].tolist(), strict=True):
            ids = [i for i, real in zip(row, padding_mask, strict=True) if real]
            seen.add(tuple(ids))
            assert bpe.decode(ids[:-1]) in {source for source, _ in pairs}
    assert len(seen) > 10
    with pytest.raises(UsageError, match="merge_dropout"):
        build({"task": "language", "training": {"merge_dropout": 0.5}})
    with pytest.raises(UsageError, match="byte-pair"):
        TranslateTask(source, Byte(), config.data).objective(torch.nn.Identity(), config)
