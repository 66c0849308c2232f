"""A message says what to do in the words of whoever is spoken to."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

import glassformer as gf
from glassformer.cli.main import app
from glassformer.core.errors import RunError
from glassformer.core.wording import command_line_speaks, in_python


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (
            "Continue it with --resume, choose another --out.",
            "Continue it with resume=True, choose another out=.",
        ),
        ("train it with --set and --init runs/a.", 'train it with settings= and init="runs/a".'),
        (
            "such as --set model.layers=12 --set model.norm=rms",
            'such as settings={"model.layers": 12, "model.norm": "rms"}',
        ),
        ("its own settings, --set model.layers=…", 'its own settings, settings={"model.layers": …}'),
        ("how much it reads, --tokens 10e9", "how much it reads, tokens=10e9"),
        ("Leave --init out, or say --task classify.", 'Leave init= out, or say task="classify".'),
        ("as a whole: --data a.en --target b.de.", 'as a whole: data="a.en" target="b.de".'),
        ("Train one: glassformer train TEXT --out runs/x", 'Train one: gf.train("TEXT", out="runs/x")'),
        ("use glassformer classify runs/x", 'use gf.load("runs/x").classify(…)'),
        ("go on: glassformer train --out 'a b' --resume", 'go on: gf.train(out="a b", resume=True)'),
        ("glassformer train my.txt chooses the sizes", 'gf.train("my.txt") chooses the sizes'),
        ("--text-column 2: no such column", 'settings={"data.text_column": 2}: no such column'),
        ("glassformer plan --set a.b=4 --gpus 8", 'gf.plan(gpus=8, settings={"a.b": 4})'),
        ("--more-steps N, --more-minutes M.", "more_steps=N, more_minutes=M."),
        ("this glassformer reads 1 to 2 of a-file--out", "this glassformer reads 1 to 2 of a-file--out"),
    ],
)
def test_flags_are_arguments_in_python(written: str, shown: str) -> None:
    assert in_python(written) == shown
    assert str(RunError(written)) == shown
    with command_line_speaks():
        assert str(RunError(written)) == written


def test_the_same_mistake_in_both_languages(text_file: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(gf.GlassformerError) as caught:
        gf.train(text_file, out=tmp_path)
    assert "more_minutes=, choose another out=" in str(caught.value) and "--" not in str(caught.value)
    said = CliRunner().invoke(app, ["train", str(text_file), "--out", str(tmp_path)])
    assert said.exit_code == 1 and "--more-minutes, choose another --out" in said.stderr
    missing = CliRunner().invoke(app, ["eval", str(tmp_path / "nowhere")])
    assert "glassformer train TEXT --out" in missing.stderr
    with pytest.raises(gf.GlassformerError, match=r"gf\.train\("):
        gf.load(tmp_path / "nowhere")
