"""A training that is to take so many minutes ends in time, and what is done stays what it was."""

import time
from pathlib import Path

import pytest

import glassformer as gf
from glassformer.config.training import TrainingConfig
from glassformer.training import pace as pace_module
from glassformer.training.pace import Pace
from glassformer.training.schedule import learning_rate_factor


def test_a_plan_is_shortened_to_what_fits_and_never_made_longer() -> None:
    config = TrainingConfig(steps=1000, schedule="constant", eval_every=100)
    soon, late = Pace(time.monotonic() + 60), Pace(time.monotonic() + 6000)
    steps = soon.steps_that_fit(config, 100, step_seconds=10.0, other_seconds=2.0, evaluations=1)
    assert 100 + (60 - 3 - 4 - 1) / 0.12 < steps < 100 + 60 / 0.12
    assert late.steps_that_fit(config, 100, 10.0, 2.0, 1) == 1000
    shorter = config.model_copy(update={"steps": 300})
    assert late.steps_that_fit(shorter, 100, 10.0, 2.0, 1, most=1000) == 1000, "the busy moment is over"
    falling = TrainingConfig(steps=300, warmup=10, schedule="wsd")
    assert late.steps_that_fit(falling, 200, 10.0, 2.0, 1, most=1000) == 300, "its rate has begun to fall"


def test_of_a_short_time_little_is_kept_for_the_end() -> None:
    """A tenth at most: of six seconds not half."""
    config = TrainingConfig(steps=1000, schedule="constant", eval_every=100)
    half_over = Pace(time.monotonic() + 3, 6)
    steps = half_over.steps_that_fit(config, 20, step_seconds=0.2, other_seconds=0.0, evaluations=0)
    assert steps == pytest.approx(20 + 2.4 / 0.01, rel=0.05)


@pytest.mark.parametrize("schedule", ["wsd", "cosine"])
def test_the_steps_that_are_done_had_the_rate_of_the_new_plan(schedule: str) -> None:
    config = TrainingConfig(steps=1000, warmup=50, schedule=schedule)
    steps = Pace(time.monotonic()).steps_that_fit(config, 300, 300.0, 0.0, 1)
    shorter = config.model_copy(update={"steps": steps})
    for step in range(300):
        assert learning_rate_factor(config, step) == learning_rate_factor(shorter, step)
    assert (steps < 750) if schedule == "wsd" else (steps == 1000)  # cosine falls from its first step


def test_a_run_held_to_its_time_ends_there_and_resumes_to_the_same_bits(
    text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace_module, "LEAST", 1)
    settings = {"model.layers": 1, "model.width": 16, "model.context": 16, "training.minutes": 0.001}
    settings |= {"training.keep": 20, "training.checkpoint_every": 2, "training.compile": "off"}
    run = gf.train(text_file, out=tmp_path / "run", settings=settings)
    steps = run.result["steps"]
    assert steps < 50 and run.config.training.steps == steps  # fifty were planned at the least
    last = (tmp_path / "run" / "checkpoints" / f"step-{steps:08d}" / "model.safetensors").read_bytes()
    for path in sorted((tmp_path / "run" / "checkpoints").glob("step-*"))[1:]:
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    assert gf.train(out=tmp_path / "run", resume=True).result["steps"] == steps
    again = tmp_path / "run" / "checkpoints" / f"step-{steps:08d}" / "model.safetensors"
    assert again.read_bytes() == last


@pytest.mark.long
def test_two_processes_agree_on_a_shorter_plan(text_file: Path, tmp_path: Path) -> None:
    settings = {"model.layers": 1, "model.width": 64, "model.context": 64, "training.minutes": 0.15}
    settings |= {"training.batch": 8, "training.compile": "off", "training.processes": 2}
    run = gf.train(text_file, out=tmp_path / "run", settings=settings)
    steps = run.result["steps"]
    assert run.config.training.steps == steps
    assert [r["step"] for r in run.metrics if r["split"] == "train"][-1] == steps


def test_a_recipe_held_to_its_time_is_resumed_by_the_same_command(
    text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace_module, "LEAST", 1)
    recipe = tmp_path / "own.yaml"
    model = "model: {layers: 1, width: 16, heads: 2, context: 16}"
    recipe.write_text(f"{model}\ntraining: {{steps: 400, batch: 4, compile: 'off', eval_every: 40}}\n")
    options = {"recipe": str(recipe), "out": tmp_path / "run", "settings": {"training.minutes": 0.02}}
    steps = gf.train(text_file, **options).result["steps"]
    assert steps < 400
    assert gf.train(text_file, **options, resume=True).result["steps"] == steps
