"""Several processes train one model: they agree with one, and a rank that dies or hangs ends the others."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import glassformer as gf
from glassformer.config.schema import build
from glassformer.core.errors import RunError, UsageError
from glassformer.tasks.registry import make_model
from glassformer.training.checkpoint.seal import find_damage
from glassformer.training.parallel.layout import check_layout
from tests.faults.kill import report
from tests.faults.ranks import SMALL, write_text
from tests.training.small import configure, make_trainer

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("GLASSFORMER_RANK_KILLS", "2"))
LONG = "GLASSFORMER_RANK_KILLS" in os.environ
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def program(name: str, *arguments: str, timeout: int = 3000, **environment: str) -> dict[str, Any]:
    command = [sys.executable, "-m", f"tests.faults.{name}", *arguments]
    full = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=timeout, env=full
    )
    assert done.returncode == 0, done.stderr[-3000:]
    report(done.stdout)
    return json.loads(done.stdout)


def test_several_processes_read_the_same_samples_and_come_to_the_same(tmp_path: Path) -> None:
    figures = program("agree", str(tmp_path), *(["all"] if LONG else []))
    assert all(figures["samples"].values()), figures["samples"]
    assert all(gap <= 1e-5 for gap in figures["losses"].values()), figures["losses"]
    assert all(figures["identical"].values()), figures["identical"]
    # Muon rounds to bfloat16 where the processor has it, and then every last bit counts.
    for kind in ("resumed", "others"):
        gaps = figures[kind]
        assert all(gap <= (2e-3 if name == "muon" else 1e-5) for name, gap in gaps.items()), gaps


def test_a_killed_rank_ends_the_other_and_resuming_is_exact(tmp_path: Path) -> None:
    figures = program("ranks", str(tmp_path), str(KILLS))
    assert figures["killed"] >= KILLS and figures["named"] == figures["killed"]
    assert figures["identical"] == figures["finished"] > 0
    assert figures["slowest to end, s"] < 30


def test_a_rank_that_hangs_is_named(tmp_path: Path) -> None:
    """It lives, and its threads too, but its main thread never comes to the next step."""
    code = (
        "import sys, time; from pathlib import Path; import glassformer as gf\n"
        "from tests.faults.ranks import SMALL, start, wait, write_text\n"
        "from glassformer.training.step import Steps\n"
        "folder = Path(sys.argv[1]); text = write_text(folder); plain = Steps.step\n"
        "def step(self, *arguments):\n"
        "    if self.world.rank == 1 and self.progress.step == 3: time.sleep(60)\n"
        "    return plain(self, *arguments)\n"
        "Steps.step = step\n"
        "work = lambda rank: gf.train(text, out=folder / 'run', settings=SMALL)\n"
        "print(wait(start(2, work, folder / 'log'), 40))\n"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLASSFORMER_STUCK": "8"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        env=environment,
    )
    assert done.stdout.strip() == "[1, 1]", (done.stdout, done.stderr[-2000:])
    output = (tmp_path / "log-0").read_text()
    for words in ("rank 1 behind the others", "rank 1 at step 3, update", "--resume"):
        assert words in output


def test_every_checkpoint_holds_what_every_process_wrote(tmp_path: Path) -> None:
    """Also when the leader's disk is slow and the others are a checkpoint ahead of it."""
    code = (
        "import sys, time; from pathlib import Path; import glassformer as gf\n"
        "from tests.faults.ranks import SMALL, start, wait, write_text\n"
        "from glassformer.training.checkpoint import write as checkpoint\n"
        "folder = Path(sys.argv[1]); text = write_text(folder); plain = checkpoint._write_files\n"
        "def write(draft, snapshot):\n"
        "    if any(name.startswith('shard-00001') for name in snapshot.files): time.sleep(0.15)\n"
        "    return plain(draft, snapshot)\n"
        "checkpoint._write_files = write\n"
        "settings = {**SMALL, 'training.parallel': 'fsdp', 'training.keep': 99}\n"
        "settings |= {'training.checkpoint_every': 1}\n"
        "work = lambda rank: gf.train(text, out=folder / 'run', settings=settings)\n"
        "print(wait(start(2, work, folder / 'log'), 60))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert done.stdout.strip() == "[0, 0]", (done.stdout, (tmp_path / "log-0").read_text())
    checkpoints = sorted((tmp_path / "run" / "checkpoints").glob("step-*"))
    assert len(checkpoints) == 12
    for checkpoint in checkpoints:
        assert find_damage(checkpoint) is None
        assert {f"shard-0000{n}-of-00002.safetensors" for n in (1, 2)} <= {
            p.name for p in checkpoint.iterdir()
        }
    (checkpoints[-1] / "shard-00002-of-00002.safetensors").unlink()
    with pytest.raises(RunError, match="lacks shards"):
        make_trainer(tmp_path / "x", configure()).resume(checkpoints[-1])


SETTINGS = {**SMALL, "training.processes": 2, "training.steps": 2000, "training.eval_every": 2000}


def command(text: Path, out: Path, *more: str) -> list[str]:
    settings = [f"--set={key}={json.dumps(value)}" for key, value in SETTINGS.items()]
    return [sys.executable, "-m", "glassformer", "train", str(text), "--out", str(out), *settings, *more]


def until(path: Path, process: subprocess.Popen[str]) -> None:
    for _ in range(2400):  # a machine may be busy with other tests
        if path.exists():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError(f"{path} did not come")


def started(folder: Path) -> tuple[subprocess.Popen[str], list[str]]:
    """A training by two processes that has saved, and the numbers of its processes."""
    out = folder / "run"
    process = subprocess.Popen(command(write_text(folder), out), stderr=subprocess.PIPE, text=True, cwd=ROOT)
    until(out / "checkpoints" / "latest.json", process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 2
    return process, children


def listening(pids: set[int]) -> list[str]:
    """The addresses that these processes listen on, as /proc has them."""
    own = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            try:
                own.add(str(link.readlink()))
            except OSError:
                continue
    lines = [
        line.split() for f in ("tcp", "tcp6") for line in Path(f"/proc/net/{f}").read_text().splitlines()
    ]
    return [line[1] for line in lines[1:] if line[3] == "0A" and f"socket:[{line[9]}]" in own]


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs /proc")
def test_processes_of_our_own_listen_on_loopback_and_stop_together_at_a_signal(tmp_path: Path) -> None:
    process, children = started(tmp_path)
    addresses = listening({process.pid, *map(int, children)})
    assert addresses and all(address.startswith("0100007F:") for address in addresses), addresses
    process.send_signal(signal.SIGTERM)
    _, output = process.communicate(timeout=90)
    assert process.returncode == 143, output
    assert output.count("Stopped at step") == 1 and "--resume" in output
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    step = json.loads((tmp_path / "run" / "checkpoints" / "latest.json").read_text())["checkpoint"]
    assert f"Stopped at step {int(step[5:])} " in output


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs /proc")
def test_a_killed_process_is_named_by_its_launcher(tmp_path: Path) -> None:
    process, children = started(tmp_path)
    ranks = {
        dict(e.split("=", 1) for e in Path(f"/proc/{c}/environ").read_text().split("\0") if "=" in e)[
            "RANK"
        ]: c
        for c in children
    }
    began = time.monotonic()
    os.kill(int(ranks["1"]), signal.SIGKILL)
    _, output = process.communicate(timeout=40)
    assert time.monotonic() - began < 30
    assert process.returncode == 1 and "rank 1 of 2 was killed by SIGKILL" in output


@pytest.mark.skipif(not LONG, reason="by make test-faults")
def test_torchrun_starts_it_again(tmp_path: Path) -> None:
    """Elastic restart: a rank is killed, all are started anew and go on from the last checkpoint."""
    text, out = write_text(tmp_path), tmp_path / "run"
    torchrun = [str(Path(sys.executable).parent / "torchrun"), "--nproc-per-node=2", "--max-restarts=2", "-m"]
    arguments = [a for a in command(text, out, "--resume")[2:] if "processes" not in a]
    process = subprocess.Popen([*torchrun, *arguments], stderr=subprocess.PIPE, text=True, cwd=ROOT)
    until(out / "checkpoints" / "latest.json", process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGKILL)
    _, output = process.communicate(timeout=200)
    assert process.returncode == 0, output
    assert "Continuing" in output and gf.load(out).result["steps"] == 2000


def test_what_several_processes_cannot_do_is_said(tmp_path: Path) -> None:
    text = write_text(tmp_path)
    with pytest.raises(UsageError, match=r"batch of 6 does not divide among 4 processes.*such as 8"):
        gf.train(text, out=tmp_path / "a", settings={**SMALL, "training.batch": 6, "training.processes": 4})
    assert not (tmp_path / "a").exists()
    for changes, kind, precision, message in (
        ({"norm": "batch"}, "ddp", "float32", "model.norm batch needs the whole batch"),
        ({"family": "gru"}, "fsdp", "float32", "for model.family transformer"),
        ({}, "fsdp", "fp16", "bf16 or float32 instead"),
    ):
        model = make_model(
            "language", build({"model": {"vocab": 9, "width": 8, "heads": 1, **changes}}).model
        )
        check_layout(model, kind, 1, precision)
        with pytest.raises(UsageError, match=message):
            check_layout(model, kind, 2, precision)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORLD_SIZE", "2")
        with pytest.raises(UsageError, match="'RANK' is missing"):
            gf.train(text, out=tmp_path / "c", settings=SMALL)
