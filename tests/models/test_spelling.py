"""Words that share vectors by their letters: the formula, what is learned of it, and that a run keeps it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import glassformer as gf
from glassformer.config.schema import build
from glassformer.core.errors import UsageError
from glassformer.models.spelling import MOST, NOTHING, Spelled
from glassformer.tokenizers.spelling import number_runs, runs_in
from glassformer.tokenizers.vocabulary import Word

WORDS = ["happy", "unhappy", "a", "", "ö" * 90, "happier"]


def spelled(words: list[str], width: int = 6, buckets: int = 50, extra: int = 2) -> Spelled:
    torch.manual_seed(0)
    embedding = Spelled(len(words) + extra, width, buckets)
    embedding.spell(torch.from_numpy(number_runs(words, buckets, MOST)))
    return embedding


def test_runs_of_a_word() -> None:
    assert runs_in("cat") == ["<ca", "cat", "at>", "<cat", "cat>", "<cat>"]
    assert runs_in("a") == ["<a>"] and runs_in("") == []
    assert set(runs_in("happy")) & set(runs_in("unhappy")) >= {"happ", "appy>", "py>"}
    assert (number_runs(["ö" * 90], 9, MOST) != NOTHING).all() and len(runs_in("ö" * 90)) > MOST


@given(st.lists(st.text(max_size=30), max_size=20), st.integers(2, 1000))
def test_numbers_of_runs(words: list[str], buckets: int) -> None:
    numbers = number_runs(words, buckets, MOST)
    assert numbers.shape == (len(words), MOST) and (numbers < buckets).all()
    for word, row in zip(words, numbers, strict=True):
        count = min(MOST, len(runs_in(word)))
        assert (row[:count] != NOTHING).all() and (row[count:] == NOTHING).all()


def test_the_sum_as_it_is_written() -> None:
    embedding = spelled(WORDS)
    x = embedding(torch.arange(len(WORDS) + 2).view(2, -1)).flatten(0, 1)
    for i, own in enumerate(embedding.weight):
        word = WORDS[i] if i < len(WORDS) else ""
        numbers = number_runs([word], 50, MOST)[0]
        runs = [embedding.runs.weight[n] for n in numbers if n != NOTHING]
        expected = own + sum(runs, torch.zeros(6)) / np.sqrt(max(1, len(runs)))
        torch.testing.assert_close(x[i], expected)


def test_what_one_word_learns_its_neighbours_have_learned_too() -> None:
    embedding = spelled(["happy", "unhappy", "zoo"], buckets=5000)
    before = embedding(torch.arange(5)).detach()
    embedding(torch.tensor([0])).sum().backward()
    with torch.no_grad():
        for p in embedding.parameters():
            p -= 0.1 * p.grad  # type: ignore[operator]
    moved = (embedding(torch.arange(5)) - before).detach().norm(dim=1)
    assert moved[0] > moved[1] > 0.1 * moved[0] and not moved[2:].any()
    assert embedding.runs.weight.grad is not None and not embedding.runs.weight.grad[NOTHING].any()


@pytest.fixture(scope="module")
def plurals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Many words in one sentence each; what they say is in their endings."""
    chance = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("data")
    stems = ["".join(chance.choice(list("bdfgklmnprst") + list("aeiou"), 5)) for _ in range(400)]
    rows = [f"the {s}{end} is here\t{label}" for s in stems for end, label in (("ful", 1), ("less", 0))]
    later = [row.replace("is here", "was there") for row in rows[1::3]]  # both labels
    for name, lines in (("train", rows), ("valid", later)):
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def trained(folder: Path, out: Path, **more: Any) -> gf.Run:
    settings = {
        "tokenizer.kind": "word", "model.layers": 1, "model.family": "lstm", "model.width": 16,
        "training.steps": 50, "training.batch": 16, "training.eval_every": 50, "training.compile": "off",
        "training.lr": 0.01, "training.optimizer": "adamw", "training.device": "cpu",
    }  # fmt: skip
    return gf.train(folder, task="classify", out=out, settings=settings | more)


def test_endings_are_learned_from_words_that_are_seen_once(plurals: Path, tmp_path: Path) -> None:
    """In fifty batches of sixteen no word is read more than once."""
    plain = trained(plurals, tmp_path / "plain").evaluate().as_dict()["accuracy"]
    run = trained(plurals, tmp_path / "spelled", **{"model.spelling": 2000})
    accuracy = run.evaluate().as_dict()["accuracy"]
    assert accuracy > 0.95 and accuracy > plain + 0.1
    again, tokenizer = gf.load(run.path), run.tokenizer
    assert isinstance(tokenizer, Word)
    (embedding,) = (m for m in again.model.modules() if isinstance(m, Spelled))
    kept = embedding.spelling[: len(tokenizer.pieces)].numpy()
    np.testing.assert_array_equal(kept, number_runs(tokenizer.pieces, 2000, MOST))
    sentence = next(f"the {w} is here" for w in tokenizer.pieces if w.endswith("less"))
    assert run.classify([sentence]) == again.classify([sentence])


def test_what_it_is_not_for() -> None:
    word = {"kind": "word"}
    build({"task": "tag", "tokenizer": word, "model": {"spelling": 100, "family": "lstm"}})
    for other in (
        {"task": "classify", "tokenizer": {"kind": "bpe"}},
        {"task": "language", "tokenizer": word},
        {"task": "translate", "tokenizer": word},
    ):
        with pytest.raises(UsageError, match=r"model\.spelling: for classify and tag"):
            build({**other, "model": {"spelling": 100}})
    for more in (
        {"spelling": 1},
        {"spelling": 9, "word_dropout": 0.1},
        {"spelling": 9, "embedding": "fixed"},
    ):
        with pytest.raises(UsageError, match=r"model\.spelling"):
            build({"task": "classify", "tokenizer": word, "model": more})
