"""The command line's promises: its commands and flags, its speed, its exit codes, its words."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.forked import run_forked

GLASSFORMER = [sys.executable, "-m", "glassformer"]
FAST = [
    *("--set", "model.layers=1", "--set", "model.width=16", "--set", "model.heads=2"),
    *("--set", "model.context=16", "--set", "training.batch=4"),
]


HEAVY = """
import sys; sys.argv = ["glassformer", *sys.argv[1:]]
from glassformer.cli.main import main
try: main()
except SystemExit: pass
print("heavy:", [m for m in ("torch", "pydantic", "numpy", "matplotlib") if m in sys.modules])
"""


def loads(*arguments: str) -> tuple[str, float]:
    """What a command says, and how long it computes at the least."""
    times: list[float] = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-c", HEAVY, *arguments], capture_output=True, text=True, check=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return done.stdout + done.stderr, min(times)  # a busy machine does not stretch this time


def test_help_is_instant_and_loads_nothing_heavy() -> None:
    said, seconds = loads("--help")
    assert "heavy: []" in said and "train" in said
    assert seconds < 0.5


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["train", "missing.txt"], "there is no file, folder or data set 'missing.txt'."),
        (["train", "missing.tsv", "--task", "classify"], "for the task classify. Data sets: docstrings"),
        (["eval", "nowhere"], "nowhere does not exist. Train one"),
        (["look", "nowhere", "text"], "nowhere does not exist."),
        (["generate", "nowhere"], "nowhere does not exist."),
        (["why", "residuals", "nowhere"], "nowhere does not exist."),
    ],
)
def test_what_is_not_there_is_said_at_once(arguments: list[str], expected: str) -> None:
    said, _ = loads(*arguments)
    # typer takes pydantic for options that have a type
    assert expected in said and ("heavy: []" in said or "heavy: ['pydantic']" in said), said


def test_a_name_that_is_nearly_right_is_guessed(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("text")
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "config.yaml").write_text("{}")
    for arguments, meant in (
        ("train note.txt", "notes.txt"),
        ("eval runs/min", "runs/mine"),
        ("train pydoc", "pydocs"),
    ):
        done = run_forked(*arguments.split(), cwd=tmp_path)
        assert done.returncode == 1 and f"Did you mean '{meant}'?" in done.stderr


@pytest.mark.parametrize(
    "command", ["train", "eval", "generate", "look", "tokenizer train", "tokenizer show"]
)
def test_every_command_explains_itself_with_examples(command: str) -> None:
    done = run_forked(*command.split(), "--help")
    assert done.returncode == 0
    assert "Example" in done.stdout and "glassformer " + command.split()[0] in done.stdout


def test_importing_the_package_loads_nothing() -> None:
    code = "import glassformer, sys; print([m for m in ('torch', 'numpy', 'pydantic') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (["train", "missing.txt"], 1, "there is no file, folder or data set 'missing.txt'"),
        (["train", "empty.txt"], 1, "empty.txt is empty"),
        (["train", "binary.bin"], 1, "binary.bin is a binary file"),
        (["train", "short.txt"], 1, "at least 256 are needed"),
        (["train", "text.txt", "--set", "model.context=4000"], 1, "smaller model.context"),
        (["train", "text.txt", "--set", "model.layer=4"], 2, "Did you mean 'model.layers'?"),
        (["train", "text.txt", "--set", "modl.layers=4"], 2, "Did you mean 'model.layers'?"),
        (["train", "text.txt", "--set", "model.layers=four"], 2, "model.layers: Input should be a valid"),
        (["train", "text.txt", "--set", "layers"], 2, "expected key=value"),
        (["train", "text.txt", "--set", "model=3"], 2, "model holds settings"),
        (["train", "text.txt", "--set", "training.accumulate=0"], 2, "greater than or equal to 1"),
        (["train", "text.txt", "--set", "training.precision=fp16"], 2, "needs a GPU"),
        (["train", "text.txt", "--out", "text.txt"], 1, "text.txt is a file"),
        (["generate", "run", "--seed", "99999999999999999999"], 2, "less than 2^63"),
        (["train", "text.txt", "--task", "telepathy"], 2, "there is no task 'telepathy'"),
        (["train", "--recipe", "shakespear"], 2, "Did you mean 'shakespeare-"),
        (
            ["train", "--recipe", "bad.yaml"],
            2,
            "there is no setting 'model.widht'. Did you mean 'model.width'?",
        ),
        (["train", "text.txt", "--init", "nowhere"], 1, "nowhere does not exist"),
        (["train", "text.txt", "--set", "training.freeze=[nothing]"], 2, "starts with 'nothing'"),
        (["train", "text.txt", "--set", "training.lr=.inf"], 2, "training.lr: Input should be a finite"),
        (["train", "text.txt", "--set", "model.vocab=5"], 2, "model.vocab 5: the data has"),
        (["train", "text.txt", "--out", "."], 1, "exists already"),
        (["eval", "nowhere"], 1, "nowhere does not exist. Train one"),
        (["eval", "."], 1, "has no config.yaml"),
        (["eval", "run", "--split", "tset"], 2, "expected valid, test or train"),
        (["generate", "run", "--temperature", "-1"], 2, "temperature -1.0: expected 0"),
        (["tokenizer", "encode", "nowhere.json", "x"], 1, "there is no tokenizer file"),
        (["tokenizer", "train", "text.txt", "--out", "t.json", "--vocab", "100"], 1, "at least 257 entries"),
        (["tokenizer", "train", "text.txt", "--out", "t.json", "--kind", "bep"], 2, "tokenizer.kind"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else None,
)
def test_mistakes_get_one_clear_message(
    tmp_path: Path, arguments: list[str], exit_code: int, words: str
) -> None:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "binary.bin").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "short.txt").write_text("too short\n")
    (tmp_path / "text.txt").write_text("some text to train on\n" * 100)
    (tmp_path / "bad.yaml").write_text("settings: {model: {widht: 3}}")
    (tmp_path / "run").mkdir()  # options are checked before it is opened
    (tmp_path / "run" / "config.yaml").write_text("{}")
    before = sorted(tmp_path.rglob("*"))
    done = run_forked(*arguments, cwd=tmp_path)
    assert words in done.stderr, done.stderr
    assert done.returncode == exit_code
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert sorted(tmp_path.rglob("*")) == before  # nothing was begun


def test_ctrl_c_saves_and_resuming_ends_where_an_unbroken_run_does(tmp_path: Path, text_file: Path) -> None:
    steps = ["--set", "training.steps=400", "--set", "training.eval_every=100", "--set", "model.dropout=0.1"]
    common = ["train", str(text_file), *FAST, *steps]
    process = subprocess.Popen(
        [*GLASSFORMER, *common, "--out", "broken"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    metrics = tmp_path / "broken" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (metrics.is_file() and metrics.read_text().count("\n") > 30):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Stopped at step" in errors and "--resume" in errors and "Traceback" not in errors

    refused = run_forked(*common, "--out", "broken", cwd=tmp_path)
    assert refused.returncode == 1 and "exists already" in refused.stderr
    other = run_forked(*common, "--out", "broken", "--resume", "--set", "training.lr=0.5", cwd=tmp_path)
    assert other.returncode == 2 and "training.lr: 0.003 → 0.5" in other.stderr
    resumed = run_forked(*common, "--out", "broken", "--resume", "--json", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    whole = run_forked(*common, "--out", "whole", "--json", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("broken", "whole")]
    assert weights[0] == weights[1]
    steps_logged = [json.loads(line)["step"] for line in metrics.read_text().splitlines()]
    assert [s for s in steps_logged if s == 57] == [57]  # no line twice
    again = run_forked(*common, "--out", "broken", "--resume", "--json", cwd=tmp_path)  # nothing left to do
    assert json.loads(again.stdout)["valid"] == json.loads(whole.stdout)["valid"]


def test_sigterm_has_its_own_exit_code(tmp_path: Path, text_file: Path) -> None:
    command = [*GLASSFORMER, "train", str(text_file), *FAST, "--set", "training.steps=100000", "--out", "r"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    metrics = tmp_path / "r" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (metrics.is_file() and metrics.stat().st_size > 0):
        time.sleep(0.05)
    process.terminate()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143, errors
    assert (tmp_path / "r" / "checkpoints" / "latest.json").is_file()


@pytest.mark.skipif(os.name != "posix" or not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_no_traceback() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*GLASSFORMER, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr and "No space left" in done.stderr


def test_tokenizer_commands(tmp_path: Path, text_file: Path) -> None:
    made = run_forked("tokenizer", "train", str(text_file), "--vocab", "270", "--out", "t.json", cwd=tmp_path)
    assert made.returncode == 0 and "270 entries" in made.stdout
    text = "item 3 follows, and ünknown\ttext"
    encoded = run_forked("tokenizer", "encode", "t.json", text, cwd=tmp_path).stdout.strip()
    assert run_forked("tokenizer", "decode", "t.json", encoded, cwd=tmp_path).stdout == text + "\n"
    ids = json.loads(run_forked("tokenizer", "encode", "t.json", text, "--json", cwd=tmp_path).stdout)["ids"]
    assert ids == [int(i) for i in encoded.split()]
    wrong = run_forked("tokenizer", "decode", "t.json", "12 x", cwd=tmp_path)
    assert wrong.returncode == 2 and "'x' is no id" in wrong.stderr
    shown = run_forked(
        "tokenizer", "show", "item 3 unseen", "--source", str(text_file), "--vocab", "512", cwd=tmp_path
    )
    lines = {line.split()[0]: line.split(maxsplit=2) for line in shown.stdout.splitlines()[2:]}
    assert list(lines) == ["word", "char", "byte", "pairs", "bpe"]
    assert lines["word"][2] == "item|3|<unk>"
    assert lines["char"][1] == "13"
    assert lines["bpe"][2].replace("|", "") == "item·3·unseen"


def test_the_version_is_told() -> None:
    found = run_forked("--version")
    assert found.returncode == 0 and found.stdout.startswith("glassformer 0.")


def test_too_little_memory_is_said_in_words(tmp_path: Path, text_file: Path) -> None:
    huge = ["--set", "model.width=4000000", "--set", "model.heads=2", "--set", "training.steps=1"]
    done = run_forked("train", str(text_file), "--out", str(tmp_path / "r"), *huge)
    assert done.returncode == 1 and "not enough memory" in done.stderr, done.stderr[-500:]
    assert "Traceback" not in done.stderr
