"""A run that ended goes on: to the bit where the schedule knows no end, learning again where it decayed."""

import json
import os
import shutil
import signal
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import glassformer as gf
from glassformer.config.saved import sealed_settings
from glassformer.config.training import TrainingConfig
from glassformer.core.errors import RunError, UsageError
from glassformer.training.checkpoint.run_seal import find_seal, reseal_settings
from glassformer.training.display import Display
from glassformer.training.schedule import learning_rate_factor
from tests.forked import run_forked

SMALL: dict[str, Any] = {
    "model.layers": 1,
    "model.heads": 2,
    "model.width": 16,
    "model.context": 16,
    "model.dropout": 0.1,
    "training.steps": 10,
    "training.warmup": 2,
    "training.batch": 4,
    "training.checkpoint_every": 5,
    "training.keep": 9,
    "training.eval_every": 5,
    "training.patience": 0,
    "training.sample_every": 0,
    "training.compile": "off",
    "training.device": "cpu",
}


class Notes(Display):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def state(run: Path) -> dict[str, torch.Tensor]:
    last = json.loads((run / "checkpoints" / "latest.json").read_text())["checkpoint"]
    files = [run / "model.safetensors", *sorted((run / "checkpoints" / last).glob("*.safetensors"))]
    return {f"{path.name} {key}": t for path in files for key, t in load_file(path).items()}


def same(a: Path, b: Path) -> bool:
    first, second = state(a), state(b)
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


@pytest.mark.parametrize("schedule", ["constant", "noam"])
def test_without_a_decay_it_is_as_if_planned_so(schedule: str, text_file: Path, tmp_path: Path) -> None:
    settings = {**SMALL, "training.schedule": schedule, "training.optimizer": "adamw"}
    gf.train(text_file, out=tmp_path / "short", settings=settings)
    longer = gf.train(out=tmp_path / "short", more_steps=7)
    planned = gf.train(text_file, out=tmp_path / "long", settings={**settings, "training.steps": 17})
    assert same(tmp_path / "short", tmp_path / "long")
    assert longer.result["valid"] == planned.result["valid"] and longer.result["steps"] == 17


def test_a_decayed_rate_rises_again_and_comes_down_to_the_new_end() -> None:
    for schedule in ("wsd", "cosine"):
        config = TrainingConfig(schedule=schedule, steps=300, warmup=10, extended={100: 100, 150: 200})
        factors = [learning_rate_factor(config, step) for step in range(300)]
        alone = TrainingConfig(schedule=schedule, steps=100, warmup=10)
        assert factors[:100] == [learning_rate_factor(alone, step) for step in range(100)]
        jumps = [abs(a - b) for a, b in pairwise(factors)]
        assert max(jumps) < 0.11, "the rate goes on from where it was"
        assert max(factors[100:150]) == max(factors[150:]) == 1.0
        assert factors[149] > 0.2 and factors[-1] < 0.02, (
            "it was stopped early, the last plan came to its end"
        )


def test_an_extension_learns_and_is_written_down(text_file: Path, tmp_path: Path) -> None:
    before = gf.train(text_file, out=tmp_path / "run", settings={**SMALL, "training.steps": 40})
    shown = Notes()
    run = gf.train(out=tmp_path / "run", more_minutes=2 * before.result["seconds"] / 60, display=shown)
    assert run.config.training.extended == {40: 40} and run.config.training.steps == run.result["steps"] > 60
    assert run.result["valid"]["loss"] < before.result["valid"]["loss"] - 0.2
    assert any("rises again" in note for note in shown.notes)
    assert any("goes on: 40 steps are done" in note for note in shown.notes)
    steps = [r["step"] for r in run.metrics if r["split"] == "train"]  # held to the seal
    assert steps == list(range(1, run.result["steps"] + 1))
    assert gf.load(tmp_path / "run").evaluate().loss == pytest.approx(run.result["valid"]["loss"], rel=1e-6)
    # What it was begun with may be said again.
    again = gf.train(text_file, out=tmp_path / "run", settings={**SMALL, "training.steps": 40}, resume=True)
    assert again.result["steps"] == run.result["steps"]
    with pytest.raises(UsageError, match=r"make this one longer: more_steps"):
        gf.train(out=tmp_path / "run", settings={"training.steps": 999}, resume=True)


def test_killed_in_the_middle_it_resumes_to_the_same_bits(text_file: Path, tmp_path: Path) -> None:
    gf.train(text_file, out=tmp_path / "whole", settings={**SMALL, "training.schedule": "cosine"})
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    gf.train(out=tmp_path / "whole", more_steps=120)
    child = os.fork()
    if child == 0:
        try:
            gf.train(out=tmp_path / "killed", more_steps=120)
        finally:
            os._exit(0)
    while not (tmp_path / "killed" / "checkpoints" / "step-00000030").exists():
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    with pytest.raises(RunError, match=r"not finished: it stopped at step \d+ of 130.*resume=True"):
        gf.train(out=tmp_path / "killed", more_steps=120)
    gf.train(out=tmp_path / "killed", resume=True)
    assert same(tmp_path / "whole", tmp_path / "killed")


def test_one_that_stopped_early_gets_new_patience(text_file: Path, tmp_path: Path) -> None:
    hopeless = {
        "training.lr": 1e-9,
        "training.muon_lr": 1e-9,
        "training.patience": 2,
        "training.eval_every": 2,
    }
    run = gf.train(text_file, out=tmp_path / "run", settings={**SMALL, **hopeless, "training.steps": 30})
    stopped = run.result["steps"]
    assert stopped < 30
    shown = Notes()
    run = gf.train(out=tmp_path / "run", more_steps=20, display=shown)
    assert any("had stopped early" in note for note in shown.notes)
    assert run.result["steps"] == stopped + 20  # so many were asked for: patience does not end them
    assert run.config.training.extended == {stopped: 30}


def test_one_that_stopped_early_and_was_made_longer_is_not_made_longer_twice(
    text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A break before the first new checkpoint leaves the old one, at which patience had ended."""
    hopeless = {
        "training.lr": 1e-9,
        "training.muon_lr": 1e-9,
        "training.patience": 2,
        "training.eval_every": 2,
    }
    text = shutil.copy(text_file, tmp_path / "text.txt")
    gf.train(text, out=tmp_path / "run", settings={**SMALL, **hopeless, "training.steps": 30})

    def broken(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("glassformer.runs.train._go_on", broken)
        with pytest.raises(KeyboardInterrupt):
            gf.train(out=tmp_path / "run", more_steps=20)
    with pytest.raises(RunError, match="not finished"):
        gf.train(out=tmp_path / "run", more_steps=20)
    assert gf.train(out=tmp_path / "run", resume=True).result["steps"] > 6
    before = (tmp_path / "run" / "config.yaml").read_bytes()
    text.unlink()
    with pytest.raises(gf.GlassformerError):
        gf.train(out=tmp_path / "run", more_steps=20)
    assert (tmp_path / "run" / "config.yaml").read_bytes() == before, "nothing is changed for nothing"


def test_a_kill_between_seal_and_settings_leaves_a_run_that_opens(text_file: Path, tmp_path: Path) -> None:
    run = gf.train(text_file, out=tmp_path / "run", settings=SMALL)
    changed = run.config.model_copy(update={"training": run.config.training.model_copy(update={"steps": 15})})

    def killed() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reseal_settings(tmp_path / "run", sealed_settings(changed), killed)
    assert gf.load(tmp_path / "run").result["steps"] == 10
    gf.train(out=tmp_path / "run", resume=True)
    seal = find_seal(tmp_path / "run")
    assert seal is not None and seal.settings["training.steps"] == 10


def test_what_cannot_go_on_is_said(text_file: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give one of them"):
        gf.train(out=tmp_path / "run", more_steps=1, more_minutes=1)
    with pytest.raises(RunError, match="does not exist"):
        gf.train(text_file, out=tmp_path / "run", more_steps=1)
    gf.train(text_file, out=tmp_path / "run", settings=SMALL)
    done = run_forked(
        "train", "--out", "run", "--more-steps", "2", "--sweep", "model.layers=1,2", cwd=tmp_path
    )
    assert done.returncode == 2 and "go on with one run" in done.stderr
    done = run_forked("train", "--out", "run", "--more-steps", "2", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["steps"] == 12 and "12 is the end now" in done.stderr
