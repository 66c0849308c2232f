"""What is chosen for examples when nobody says: how they are cut, and what they are learned with."""

import random
from pathlib import Path
from typing import Any

import pytest

from glassformer.config.data import DataConfig
from glassformer.config.schema import Config
from glassformer.runs.asked import gather_asked
from glassformer.runs.choose_tokenizer import choose_for_examples
from glassformer.runs.resolve import resolve
from glassformer.tasks.classifier import ClassifyTask
from glassformer.tasks.examples import ExamplesTask
from glassformer.tasks.registry import find_task
from glassformer.tokenizers.load import train_tokenizer
from tests.runs.test_resolve import machine

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def made_up(draw: random.Random, size: int) -> list[str]:
    return ["".join(draw.choices(LETTERS, k=6)) for _ in range(size)]


def rows(by_word: bool) -> list[tuple[str, str]]:
    """Labels that follow from whole words, too many for their pieces; or from endings."""
    draw = random.Random(0)
    words = made_up(draw, 1200)
    sides = {word: str(i % 2) for i, word in enumerate(words)}
    found: list[tuple[str, str]] = []
    for _ in range(900):
        label = draw.choice("01")
        if by_word:
            text = " ".join(draw.sample([w for w in words if sides[w] == label], 6))
        else:
            text = " ".join(w + ("ung" if label == "1" else "lich") for w in made_up(draw, 2))
        found.append((text, label))
    return found


def opened(task: str, folder: Path, examples: list[tuple[str, str]]) -> tuple[type[ExamplesTask], Any]:
    file = folder / "table.tsv"
    file.write_text("".join(f"{a}\t{b}\n" for a, b in examples))
    kind = find_task(task)
    assert issubclass(kind, ExamplesTask)
    return kind, kind.open(DataConfig(source=str(file)))


@pytest.mark.parametrize("by_word", [True, False])
def test_texts_with_labels_are_cut_as_a_bag_of_the_pieces_labels_them_best(
    by_word: bool, tmp_path: Path
) -> None:
    kind, source = opened("classify", tmp_path, rows(by_word))
    settings, why = choose_for_examples(kind, source, 30_000)
    assert settings["kind"] == ("word" if by_word else "bpe")
    assert ("a bag of words gets right" in why) == by_word
    assert choose_for_examples(kind, source, 30_000, "char") == ({"kind": "char"}, "")
    assert choose_for_examples(kind, source, 30_000, "bpe")[0] == {"kind": "bpe", "vocab": 2000}


def test_the_bag_is_judged_on_what_it_has_not_learned(tmp_path: Path) -> None:
    """Labels by chance: no way to cut text gets more than half of them right."""
    draw = random.Random(1)
    noise = [(" ".join(made_up(draw, 3)), draw.choice("01")) for _ in range(400)]
    kind, source = opened("classify", tmp_path, noise)
    assert issubclass(kind, ClassifyTask)
    for name in ("word", "bpe"):
        tokenizer = train_tokenizer(name, kind.texts(source), 2000, specials=kind.specials)
        share, error = kind.bag_accuracy(source, tokenizer)
        assert 0.38 < share < 0.62 and 0.01 < error < 0.03


def test_pairs_are_cut_into_pieces_and_spellings_into_letters(tmp_path: Path) -> None:
    sentences = [(f"a line of words {i}", f"une ligne de mots {i}") for i in range(100)]
    kind, source = opened("translate", tmp_path, sentences)
    assert choose_for_examples(kind, source, 5_000)[0] == {"kind": "bpe", "vocab": 2000}
    kind, source = opened("translate", tmp_path, [(f"day {i} of May", f"05-{i}") for i in range(100)])
    assert choose_for_examples(kind, source, 5_000)[0]["kind"] == "char"
    sizes = [choose_for_examples(find_task("tag"), None, 10**n)[0]["vocab"] for n in (4, 6, 8)]
    assert sizes == [2000, 4000, 8000]


def resolved(task: str, examples: list[tuple[str, str]], folder: Path, **settings: Any) -> Config:
    kind, source = opened(task, folder, examples)
    bound = kind(
        source, train_tokenizer("bpe", kind.texts(source), 300, specials=kind.specials), DataConfig()
    )
    asked = gather_asked(folder / "table.tsv", task, None, None, settings)
    return resolve(asked, None, bound, machine()[0]).config


def test_whoever_asks_how_order_is_known_gets_nothing_beside_it(tmp_path: Path) -> None:
    pairs = [(f"a line of words {i}", f"une ligne de mots {i}") for i in range(200)]
    assert resolved("translate", pairs, tmp_path).model.shift == "layers"
    for wish in ({"model.position": "none"}, {"model.attention": "distance"}, {"model.shift": "none"}):
        assert resolved("translate", pairs, tmp_path, **wish).model.shift == "none", wish
    gru = resolved("translate", pairs, tmp_path, **{"model.family": "gru"}).model
    assert (gru.family, gru.layers, gru.width, gru.shift) == ("gru", 1, 256, "none")


def test_what_is_learned_with_follows_the_task_and_gives_way_to_the_user(tmp_path: Path) -> None:
    labelled = rows(by_word=True)[:200]
    config = resolved("classify", labelled, tmp_path)
    assert (config.model.family, config.model.dropout, config.training.token_dropout) == (
        "transformer",
        0.5,
        0.3,
    )
    short = resolved("classify", labelled, tmp_path, **{"training.steps": 20})
    assert (short.model.dropout, short.training.token_dropout) == (0.0, 0.0), "one pass is no danger"
    asked = resolved("classify", labelled, tmp_path, **{"training.steps": 20, "model.dropout": 0.4})
    assert asked.model.dropout == 0.4
    own = resolved("classify", labelled, tmp_path, **{"model.dropout": 0.1, "training.token_dropout": 0.0})
    assert (own.model.dropout, own.training.token_dropout) == (0.1, 0.0)
    words = [(f"{a} {b}", a) for a in LETTERS[:9] for b in LETTERS]
    wide = resolved("classify", words, tmp_path, **{"model.width": 96, "model.family": "gru"}).model
    assert (wide.width, wide.family, wide.pooling) == (96, "gru", "attention")


def test_a_script_without_blanks_is_no_spelling(tmp_path: Path) -> None:
    draw = random.Random(2)
    signs = [chr(0x4E00 + i) for i in range(800)]
    chinese = [(f"a line of words {i}", "".join(draw.choices(signs, k=9))) for i in range(300)]
    kind, source = opened("translate", tmp_path, chinese)
    assert choose_for_examples(kind, source, 20_000)[0]["kind"] == "bpe"


def test_a_handful_of_rows_and_rows_sorted_by_label_are_cut_too(tmp_path: Path) -> None:
    kind, source = opened("classify", tmp_path, [("one word", "a"), ("two words", "b")] * 2)
    assert choose_for_examples(kind, source, 40)[0]["kind"] == "bpe"
    by_label = sorted(rows(by_word=True) * 3, key=lambda row: row[1])
    kind, source = opened("classify", tmp_path, by_label)
    assert choose_for_examples(kind, source, 90_000)[0]["kind"] == "word"


def test_patience_is_a_share_of_the_evaluations_that_there_are(tmp_path: Path) -> None:
    """Also of those that the user asked for; and what is saved does not follow what is measured."""
    labelled = rows(by_word=True)[:200]
    usual = resolved("classify", labelled, tmp_path).training
    assert usual.patience == 7 and usual.checkpoint_every <= usual.eval_every
    often = resolved("classify", labelled, tmp_path, **{"training.eval_every": 1}).training
    assert often.patience == round(often.steps * 7 / 12) > 7
    never = resolved("classify", labelled, tmp_path, **{"training.eval_every": 10**6}).training
    assert never.patience == 7
