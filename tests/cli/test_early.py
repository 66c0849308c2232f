"""What can be told at once is told at once: before torch is imported, and with what was probably meant."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import glassformer as gf
from tests.forked import run_forked

# One process that has imported nothing heavy; each command runs in a fork of it.
MANY = """
import json, os, sys, tempfile, time
from glassformer.cli.main import main
answers = []
for arguments in json.loads(sys.argv[1]):
    with tempfile.TemporaryFile("w+") as said:
        began, child = time.perf_counter(), os.fork()
        if child == 0:
            code = 70
            os.dup2(said.fileno(), 1), os.dup2(said.fileno(), 2)
            sys.argv = ["glassformer", *arguments]
            try: main()
            except SystemExit as end: code = end.code
            finally:
                sys.stdout.flush(), sys.stderr.flush()
                os.write(2, b" [with torch]" if "torch" in sys.modules else b" [at once]")
                os._exit(code)
        status = os.waitpid(child, 0)[1]
        seconds = time.perf_counter() - began
        said.seek(0)
        answers.append([os.waitstatus_to_exitcode(status), said.read(), seconds])
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text, a run on it, and one that was begun and not finished."""
    folder = tmp_path_factory.mktemp("place of mine")
    for name in ("one.txt", "two.txt"):
        (folder / name).write_text("".join(f"item {i % 10} comes after item {i % 7}.\n" for i in range(200)))
    small = {"model.layers": 1, "model.width": 16, "model.context": 16, "training.batch": 4}
    settings = {**small, "training.steps": 4, "training.compile": "off"}
    gf.train(folder / "one.txt", out=folder / "runs" / "mine", settings=settings)
    gf.train(folder / "one.txt", out=folder / "runs" / "begun", settings=settings)
    (folder / "runs" / "begun" / "result.json").unlink()
    return folder


CASES: list[tuple[list[str], int, str]] = [
    # what is not there
    (["train", "on.txt"], 1, "Did you mean 'one.txt'?"),
    (["train", "one.txt", "--target", "no.de"], 1, "there is no file 'no.de' (--target"),
    (["train", "one.txt", "--init", "runs/min"], 1, "Did you mean 'runs/mine'?"),
    (["train", "one.txt", "--recipe", "shakespear"], 2, "Did you mean 'shakespeare-char'?"),
    (["train", "--out", "runs/min", "--more-steps", "3"], 1, "Did you mean 'runs/mine'?"),
    (["eval", "runs/mine", "--data", "tow.txt"], 1, "Did you mean 'two.txt'?"),
    (["eval", "runs/mine", "--pairs", "no.tsv"], 1, "there is no file 'no.tsv'"),
    (["compare", "runs/mine", "runs/beguns"], 1, "Did you mean 'runs/begun'?"),
    (["look", "runs/mine", "text", "--relations", "no.yaml"], 1, "there is no file 'no.yaml'"),
    (["import", "nowhere", "runs/new"], 1, "there is no folder 'nowhere'"),
    (["tokenizer", "encode", "no.json", "text"], 1, "there is no tokenizer file 'no.json'"),
    (["tokenizer", "train", "no.txt", "--out", "t.json"], 1, "there is no file, folder or data set"),
    (["why", "residual"], 2, "Did you mean 'residuals'?"),
    (["serve", "runs/min"], 1, "Did you mean 'runs/mine'?"),
    (["serve", "runs/mine", "--host", "0.0.0.0"], 2, "there has to be a token"),
    # what is there already, or is something else
    (["train", "one.txt", "--out", "runs/mine"], 1, "runs/mine exists already"),
    (["train", "one.txt", "--out", "two.txt"], 1, "two.txt is a file"),
    (["train", "runs/mine"], 1, "--out runs/mine --resume"),
    (["classify", "runs/mine", "text"], 2, "What it can do: glassformer generate runs/mine"),
    (["plan", "one.txt"], 2, "glassformer train one.txt chooses the sizes"),
    # settings
    (["train", "one.txt", "--set", "model.layer=3"], 2, "Did you mean 'model.layers'?"),
    (["train", "one.txt", "--set", "n_embd=3"], 2, "Did you mean 'model.width'?"),
    (["train", "one.txt", "--set", "model.layers=x"], 2, "model.layers: Input should be a valid integer"),
    (["train", "one.txt", "--sweep", "model.layrs=1,2"], 2, "--sweep: there is no setting 'model.layrs'"),
    (["train", "one.txt", "--task", "clasify"], 2, "Did you mean 'classify'?"),
    (["generate", "runs/mine", "--temperature", "-1"], 2, "temperature -1.0: expected 0"),
    (["look", "runs/mine", "text", "--ablate", "x"], 2, "expected LAYER.HEAD"),
    # flags by other names
    (["train", "one.txt", "--layers", "3"], 2, "It is a setting: --set model.layers=3"),
    (["train", "one.txt", "--learning-rate=0.1"], 2, "--set training.lr=0.1"),
    (["train", "one.txt", "--epochs", "3"], 2, "--set training.steps=N"),
    (["train", "one.txt", "--output", "my runs"], 2, "--out 'my runs'"),
    (["generate", "runs/mine", "--length", "30"], 2, "--tokens 30"),
    # words in other places
    (["train", "one.txt", "two.txt"], 2, "glassformer train '*.txt'"),
    (["train", "runs/mine", "one.txt"], 2, "--init runs/mine"),
    (["eval", "one.txt", "runs/mine"], 1, "glassformer eval runs/mine --data one.txt"),
    (["eval", "runs/mine", "one.txt"], 2, "glassformer eval runs/mine --data one.txt"),
    (["eval", "runs/mine", "runs/begun"], 2, "glassformer compare runs/mine runs/begun"),
    (["generate", "a word", "runs/mine"], 1, "glassformer generate runs/mine 'a word'"),
    (["generate", "runs/mine", "Once", "upon", "a time"], 2, "runs/mine 'Once upon a time'"),
]


def test_mistakes_are_answered_before_torch_is_imported(place: Path) -> None:
    """Each with its exit code, and the command or name that was meant."""
    commands = json.dumps([arguments for arguments, _, _ in CASES])
    done = subprocess.run(
        [sys.executable, "-c", MANY, commands], cwd=place, capture_output=True, text=True, check=True
    )
    for (arguments, code, words), (ended, said, _) in zip(CASES, json.loads(done.stdout), strict=True):
        assert words in said and ended == code and "[at once]" in said, (arguments, ended, said)


def test_a_missing_file_is_answered_in_a_moment(place: Path) -> None:
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-m", "glassformer", "train", "no.txt"], cwd=place, capture_output=True
    )
    after = os.times()
    computed = after.children_user + after.children_system - before.children_user - before.children_system
    assert done.returncode == 1 and computed < 0.5  # 0.2 s on a quiet machine, which this may not be


def test_names_with_blanks_are_quoted_where_a_command_is_suggested(place: Path) -> None:
    named = str(place / "runs" / "mine")
    done = run_forked("classify", named, "text")
    assert f"glassformer generate '{named}'" in done.stderr
    done = run_forked("eval", str(place / "runs" / "other"))
    assert f"--out '{place / 'runs' / 'other'}'" in done.stderr


def test_messages_have_paths_whole(place: Path) -> None:
    long = place / ("a" * 100) / ("b" * 100)
    done = run_forked("train", str(long / "text.txt"), env={"COLUMNS": "40"})
    assert str(long / "text.txt") in done.stderr
    done = run_forked("train", str(place / "one.txt"), "--set", f"training.lr={long}", env={"COLUMNS": "40"})
    assert str(long) in done.stderr


def test_of_several_runs_the_unfinished_one_is_left_out_and_named(place: Path) -> None:
    done = run_forked("compare", "runs/mine", "runs/begun", "--json", cwd=place)
    assert done.returncode == 0 and "Left out: runs/begun is not finished" in done.stderr
    assert "glassformer train --out runs/begun --resume" in done.stderr
    assert '"mine"' in done.stdout and "begun" not in done.stdout
    done = run_forked("compare", "runs/begun", cwd=place)
    assert done.returncode == 1 and "is not finished" in done.stderr
