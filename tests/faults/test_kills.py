"""Trainings that are killed, terminated, or started twice in one place."""

import errno
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from glassformer.core.errors import RunError
from glassformer.core.lock import locked
from glassformer.training.parallel.watch import Watch
from tests.faults.kill import report

ROOT = Path(__file__).parents[2]
KILLS, TERMS = int(os.environ.get("GLASSFORMER_KILLS", "3")), int(os.environ.get("GLASSFORMER_TERMS", "2"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_killed_training_resumes_to_the_same_bits(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.faults.kill", str(tmp_path), str(KILLS), str(TERMS)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=3000, env=environment
    )
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    report(f"{counts}\n")
    assert counts["killed"] >= KILLS and counts["terminated"] >= TERMS
    assert counts["killed in a save"] >= KILLS // 3
    assert counts["identical"] == counts["finished"] > 0
    assert (
        counts["slowest to stop, ms"] < 5000
    )  # a step and a save take milliseconds; what is started may be long


def test_a_run_is_trained_by_one_process_at_a_time(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from glassformer.core.lock import locked\n"
        "with locked(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(RunError, match=f"being trained by process {holder.pid}"), locked(tmp_path):
            pass
    finally:
        holder.kill()
        holder.wait()
    with locked(tmp_path):  # a lock goes with its process
        pass


def test_the_last_word_of_a_rank_is_not_talked_over() -> None:
    """A sign of life that is on its way when a rank says good-bye must not take its place."""

    class Slow:
        def __init__(self) -> None:
            self.said: list[dict[str, Any]] = []

        def set(self, key: str, value: str) -> None:
            time.sleep(0.05 if "done" not in value else 0.0)
            self.said.append(json.loads(value))

    store: Any = Slow()
    watch = Watch(store, 1, 2, "rank 0")
    thread = threading.Thread(target=watch.beat)
    thread.start()
    time.sleep(0.01)
    watch.finish(failed="the disk is full")
    watch.beat()
    thread.join()
    assert store.said[-1]["failed"] == "the disk is full"


def test_a_file_system_without_locks_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(RunError, match="No locks available"), locked(tmp_path):
        pass
