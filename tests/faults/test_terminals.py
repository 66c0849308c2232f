"""Terminals and pipes that vanish, closed streams, signals at any time, names that act on a terminal."""

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import glassformer as gf
from glassformer.core.terminal import caption, printable
from glassformer.runs.processes import as_arguments
from tests.faults.test_links import SMALL
from tests.forked import run_forked

GLASSFORMER = [sys.executable, "-m", "glassformer"]
ESCAPE = "\x1b[31mred\x1b]0;title\x07"
FLAGS = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]
RARELY = ["--set", "training.checkpoint_every=1000000", "--set", "training.eval_every=1000000"]
ENDLESS = [*FLAGS, *RARELY, "--set", "training.steps=1000000"]


def wait_for(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def has_begun(out: Path) -> bool:
    return (out / "metrics.jsonl").is_file() and (out / "metrics.jsonl").stat().st_size > 0


def test_a_hangup_saves_like_a_termination(tmp_path: Path, text_file: Path) -> None:
    command = [*GLASSFORMER, "train", str(text_file), *ENDLESS, "--out", "r"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: has_begun(tmp_path / "r"))
    process.send_signal(signal.SIGHUP)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 129 and "saved in r" in errors, errors
    assert (tmp_path / "r" / "checkpoints" / "latest.json").is_file()


def test_nohup_is_heard(tmp_path: Path, text_file: Path) -> None:
    """A hangup that whoever started us wants ignored stays ignored."""
    few = [*FLAGS, *RARELY, "--set", "training.steps=2000"]
    process = subprocess.Popen(
        [*GLASSFORMER, "train", str(text_file), *few, "--out", "r"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    wait_for(lambda: has_begun(tmp_path / "r"))
    process.send_signal(signal.SIGHUP)
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors


@pytest.mark.parametrize("kind", ["pipe", "terminal"])
def test_a_vanished_reader_saves_like_a_termination(kind: str, tmp_path: Path, text_file: Path) -> None:
    reader, writer = os.pipe() if kind == "pipe" else pty.openpty()
    samples = ["--set", "training.sample_every=5"]  # something to say
    process = subprocess.Popen(
        [*GLASSFORMER, "train", str(text_file), *ENDLESS, *samples, "--out", "r"],
        cwd=tmp_path,
        stderr=writer,
        start_new_session=True,
    )
    os.close(writer)
    os.set_blocking(reader, False)
    try:
        end = time.monotonic() + 120
        while not has_begun(tmp_path / "r") and time.monotonic() < end:
            time.sleep(0.02)
            with suppress(BlockingIOError):
                os.read(reader, 1 << 16)
    finally:
        os.close(reader)
    assert process.wait(timeout=60) == (141 if kind == "pipe" else 129)
    assert (tmp_path / "r" / "checkpoints" / "latest.json").is_file()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_at_the_very_beginning(number: int, tmp_path: Path, text_file: Path) -> None:
    for delay in (0.1, 0.3, 0.6):
        process = subprocess.Popen(
            [*GLASSFORMER, "train", str(text_file), *ENDLESS, "--out", f"r{delay}"],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # a job in the background ignores some
        )
        time.sleep(delay)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert process.returncode in (128 + number, -number), (delay, errors)
        own = [line for line in errors.splitlines() if "File " in line and "glassformer" in line]
        assert "Traceback" not in errors or not own, errors  # else Python itself, before any of our code


@pytest.mark.parametrize("closed", ["0<&-", ">&-", "2>&-", "0<&- >&- 2>&-"])
def test_closed_streams(closed: str, tmp_path: Path, text_file: Path) -> None:
    flags = " ".join(FLAGS)
    line = f"{sys.executable} -m glassformer train {text_file} {flags} --out r {closed}"
    done = subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert gf.load(tmp_path / "r").result["steps"] == SMALL["training.steps"]
    if "0<" in closed:
        line = f"{sys.executable} -m glassformer generate r - 0<&-"
        done = subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "standard input is closed" in done.stderr


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"WORLD_SIZE": "abc"}, "WORLD_SIZE=abc"),
        ({"WORLD_SIZE": "2", "RANK": "x", "MASTER_PORT": "1"}, "no number (there is WORLD_SIZE=2, RANK=x"),
        ({"WORLD_SIZE": "2"}, "'RANK' is missing"),
    ],
)
def test_a_world_that_is_no_number(
    variables: dict[str, str], words: str, tmp_path: Path, text_file: Path
) -> None:
    done = run_forked("train", str(text_file), *FLAGS, "--out", str(tmp_path / "r"), env=variables)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert variables.get("RANK") or words in done.stderr


def test_a_rank_without_a_world_speaks(tmp_path: Path, text_file: Path) -> None:
    done = run_forked("train", str(text_file), *FLAGS, "--out", str(tmp_path / "r"), env={"RANK": "3"})
    assert done.returncode == 0 and "Validation:" in done.stdout


@pytest.mark.parametrize(
    "name",
    [
        "$HOME and $x$.txt",
        "back\\slash\\n.txt",
        "-dash.txt",
        "~tilde.txt",
        "\udcff\udcfe.txt",
        f"{ESCAPE}.txt",
    ],
)
def test_odd_names(name: str, tmp_path: Path, text_file: Path) -> None:
    (tmp_path / name).write_bytes(text_file.read_bytes())
    out = name.removesuffix(".txt")
    done = run_forked("train", *FLAGS, f"--out={out}", "--", name, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stderr
    assert (tmp_path / out / "loss.png").is_file()
    for command in (["eval"], ["compare", "--html", "c.html"], ["look", "--plots", "plots"]):
        more = ["item 3"] if command[0] == "look" else []
        done = run_forked(*command, "--", out, *more, cwd=tmp_path)
        assert done.returncode == 0 and "\x1b" not in done.stderr, (command, done.stderr)
    again = run_forked("train", *FLAGS, f"--out={out}", "--resume", "--", name, cwd=tmp_path)
    assert again.returncode == 0, again.stderr


def test_processes_are_started_with_names_that_begin_with_a_dash() -> None:
    arguments = as_arguments("-x.txt", Path("-out"), {}, 2, True, task=None, recipe="-r.yaml")
    assert arguments[:3] == ["train", "--out=-out", "--recipe=-r.yaml"] and arguments[-2:] == ["--", "-x.txt"]


def test_nothing_acts_on_a_terminal(tmp_path: Path) -> None:
    assert printable(ESCAPE) == "\\x1b[31mred\\x1b]0;title\\x07"
    assert printable("a\tb\nc\r\nd\re\x9b\udcff") == "a\tb\nc\r\nd\\re\\x9b\\udcff"
    assert printable("ünïcödé 漢字") == "ünïcödé 漢字"
    assert caption("$x$") == r"\$x\$"
    for arguments in (
        ["eval", ESCAPE],
        ["train", ESCAPE],
        ["generate", ESCAPE],
        [ESCAPE],
        ["look", ESCAPE, "x"],
    ):
        done = run_forked(*arguments, cwd=tmp_path)
        assert done.returncode in (1, 2) and "\x1b" not in done.stderr, arguments


def test_a_terminal_gets_no_escapes_and_a_file_gets_the_text(tmp_path: Path) -> None:
    tokenizer = gf.BPE.train(["text"], 300)
    tokenizer.save(tmp_path / "t.json")
    ids = " ".join(map(str, tokenizer.encode(ESCAPE)))
    command = [*GLASSFORMER, "tokenizer", "decode", str(tmp_path / "t.json"), ids]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"{ESCAPE}\n"
    reader, writer = pty.openpty()
    subprocess.run(command, stdout=writer, check=True)
    os.close(writer)
    shown = os.read(reader, 1000)
    os.close(reader)
    assert b"\x1b" not in shown and b"\\x1b[31mred" in shown


def test_what_is_shown_while_libraries_load_goes_without_a_trace(tmp_path: Path) -> None:
    (tmp_path / "my.txt").write_text("some text\n" * 9)
    reader, writer = pty.openpty()
    command = [*GLASSFORMER, "tokenizer", "train", "my.txt", "--vocab", "260", "--out", "t.json"]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=writer, check=True, cwd=tmp_path)
    os.close(writer)
    shown = os.read(reader, 10000).decode()
    os.close(reader)
    drawn = shown.split("\r\x1b[K")  # a line that is drawn begins by wiping the one before
    assert drawn[0] == "" and drawn[1].startswith("Loading …")
    assert "Loading" not in drawn[-1] and "\\x1b" not in shown  # drawn, not spelled out
