"""Blanks: a masked model finds what it has learned, whatever the tokenizer makes of spaces."""

import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

import glassformer as gf
from glassformer.cli.main import app
from glassformer.core.errors import UsageError
from glassformer.tokenizers.tokenizer import MASK

LINES = ["the sun is bright\n", "the moon is pale\n", "the sea is deep\n", "the wind is cold\n"]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fill") / "text.txt"
    path.write_text("".join(random.Random(0).choices(LINES, k=3000)))
    return path


def masked(text: Path, out: Path, **settings: object) -> gf.Run:
    small = {
        "model.layers": 1,
        "model.heads": 2,
        "model.width": 32,
        "model.context": 32,
        "training.steps": 150,
    }
    small |= {
        "training.batch": 32,
        "training.lr": 0.01,
        "model.dropout": 0.0,
        "training.compile": "off",
        "training.eval_every": 300,
    }
    return gf.train(text, task="masked", out=out, settings={**small, **settings})


@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_a_blank_is_filled_in(kind: str, text: Path, tmp_path: Path) -> None:
    run = masked(text, tmp_path / "run", **{"tokenizer.kind": kind, "tokenizer.vocab": 300})
    filled = run.fill("the sun is ___\nthe moon is pale\n", 3)
    ((best, p), *others) = filled.blanks[0]
    assert best.strip() == "bright" and p > 0.5 and len(others) == 2
    assert filled.text.split() == ["the", "sun", "is", "bright", "the", "moon", "is", "pale"]
    two = run.fill(f"the {MASK} is deep\nthe wind is ______")
    assert [blank[0][0].strip() for blank in two.blanks] == ["sea", "cold"]

    look = run.look("the sun is ___\n").report()
    assert look["predictions"][look["position"]][0][0].strip() == "bright"
    assert look["attribution"]["output"].strip() == "bright"
    shown = CliRunner().invoke(app, ["look", str(run.path), "the sun is ___\n"])
    assert f"Its answer at position {look['position']}" in shown.output and shown.exit_code == 0
    done = CliRunner().invoke(app, ["fill", str(run.path), "the sun is ___"])
    assert done.exit_code == 0 and "bright" in done.stdout.splitlines()[0]
    with pytest.raises(UsageError, match="mark the blank"):
        run.fill("the sun is bright")
    with pytest.raises(UsageError, match="more than the model's context of 32"):
        run.fill("the sun is ___ " * 20)


def test_other_models_have_no_blanks(text: Path, tmp_path: Path) -> None:
    small = {
        "model.layers": 1,
        "model.width": 16,
        "model.heads": 2,
        "training.steps": 1,
        "training.compile": "off",
    }
    run = gf.train(text, out=tmp_path / "run", settings={**small, "model.context": 16})
    with pytest.raises(UsageError, match="learned the task language, and this is for masked"):
        run.fill("the ___")
