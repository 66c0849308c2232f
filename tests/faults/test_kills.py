"""Trainings that are killed, terminated, or started twice in one place."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from glassformer.errors import RunError
from glassformer.lock import locked

ROOT = Path(__file__).parents[2]
KILLS, TERMS = int(os.environ.get("GLASSFORMER_KILLS", "4")), int(os.environ.get("GLASSFORMER_TERMS", "2"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_killed_training_resumes_to_the_same_bits(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.faults.kill", str(tmp_path), str(KILLS), str(TERMS)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=3000, env=environment
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    sys.stdout.write(f"{said}\n")
    assert said["killed"] >= KILLS and said["terminated"] >= TERMS
    assert said["killed in a save"] >= KILLS // 3
    assert said["identical"] == said["finished"] > 0
    assert (
        said["slowest to stop, ms"] < 5000
    )  # a step and a save take milliseconds; what is started may be long


def test_a_run_is_trained_by_one_process_at_a_time(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from glassformer.lock import locked\n"
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
