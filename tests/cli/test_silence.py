"""Nobody waits before a dead screen: something is there at once, and nothing is silent for long after it."""

import os
import pty
import select
import sys
import time
from pathlib import Path

import pytest

from glassformer.core import status as status_module
from glassformer.core.status import Status

SMALL = ["model.layers=1", "model.width=16", "model.context=16", "training.batch=4", "training.steps=20"]


def silences(*arguments: str, cwd: Path) -> tuple[float, float, str]:
    """Seconds to the first output on a terminal, the longest silence until the last, and what was written."""
    child, screen = pty.fork()
    if child == 0:
        os.chdir(cwd)
        os.execv(sys.executable, [sys.executable, "-m", "glassformer", *arguments])
    last, gaps, written = time.monotonic(), [], b""
    while True:
        select.select([screen], [], [], 60)
        try:
            data = os.read(screen, 1 << 16)
        except OSError:  # the other side has closed it
            break
        if not data:
            break
        now = time.monotonic()
        gaps.append(now - last)
        last, written = now, written + data
    os.close(screen)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == 0, written.decode(errors="replace")
    return gaps[0], max(gaps[1:]), written.decode(errors="replace")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    (folder / "my.txt").write_text("".join(f"item {i % 10} and item {i % 7}.\n" for i in range(400)))
    return folder


def check(place: Path, *arguments: str) -> None:
    """0.3 s and 0.7 s on a quiet machine; the limits leave room for a busy one."""
    first, longest, written = silences(*arguments, cwd=place)
    assert first < 1.5 and longest < 2, (arguments, first, longest)
    assert "Loading …" in written


def test_training_and_measuring_are_not_silent_on_a_terminal(place: Path) -> None:
    check(place, "train", "my.txt", "--out", "run", *(w for s in SMALL for w in ("--set", s)))
    check(place, "eval", "run")


@pytest.mark.long
def test_nor_are_the_others(place: Path) -> None:
    if not (place / "run").exists():
        check(place, "train", "my.txt", "--out", "run", *(w for s in SMALL for w in ("--set", s)))
    check(place, "generate", "run", "item", "--tokens", "20", "--json")
    check(place, "look", "run", "item")
    check(place, "compare", "run", "run")
    check(place, "tokenizer", "show", "item", "--source", "my.txt")


def test_a_log_is_told_what_takes_long_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status_module, "TICK", 0.01)
    monkeypatch.setattr(status_module, "LONG", 0.05)
    status = Status()
    status.begin("Quick")
    status.end()
    status.begin("Loading", in_log=False)
    time.sleep(0.1)
    status.begin("Computing the floor")
    time.sleep(0.2)
    status.end()
    assert capsys.readouterr().err == "Computing the floor …\n"
