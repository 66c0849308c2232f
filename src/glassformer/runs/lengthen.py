"""A run that ended, given more steps: its plan becomes longer, and from there on it is resumed as any other.

The plan is config.yaml's training.steps; training.extended says where earlier plans ended, so that the
learning rate stays a function of the settings and the step (training/schedule.py). A kill at any moment
leaves either the old plan or the new one.
"""

from pathlib import Path
from shlex import quote
from typing import Any

from glassformer.config.saved import save_config, sealed_settings
from glassformer.config.schema import Config, build
from glassformer.core.errors import RunError
from glassformer.runs.asked import More
from glassformer.runs.autosize import TRAINING_SHARE
from glassformer.training.checkpoint.read import read_progress
from glassformer.training.checkpoint.run_seal import find_seal, reseal_settings
from glassformer.training.checkpoint.snapshot import Progress
from glassformer.training.checkpoint.write import latest_checkpoint
from glassformer.training.display import Display
from glassformer.training.schedule import decays


def lengthen(folder: Path, config: Config, more: More, display: Display) -> None:
    """Write down a longer plan for a run that has come to its end; whoever calls holds the folder's lock."""
    if find_seal(folder) is None:
        raise RunError(
            f"{folder} was made by an older version and cannot be made longer. Begin a new run with its "
            f"weights: --init {quote(str(folder))} --out …"
        )
    checkpoint = latest_checkpoint(folder / "checkpoints", lambda t: display.note(f"Warning: {t}."))
    if checkpoint is None:
        raise RunError(
            f"{folder} has no checkpoint to go on from. Begin a new run with its weights: "
            f"--init {quote(str(folder))} --out …"
        )
    training, progress = config.training, read_progress(checkpoint)
    impatient = bool(training.patience) and progress.since_best >= training.patience
    impatient = impatient and not training.extended  # then it was told to go on already
    if progress.step < training.steps and not impatient:
        raise RunError(
            f"{folder} is not finished: it stopped at step {progress.step} of {training.steps}. Finish it "
            f"first: glassformer train --out {quote(str(folder))} --resume"
        )
    steps = progress.step + _steps(more, progress, display)
    change_plan(folder, config, steps=steps, extended={**training.extended, progress.step: training.steps})
    display.note(f"{folder} goes on: {progress.step} steps are done, {steps} is the end now.")
    if impatient:
        display.note(
            f"It had stopped early, {progress.since_best} evaluations after its best at step "
            f"{progress.best_step}; now it is trained to the end."
        )
    display.note(
        f"The learning rate had been brought down (training.schedule {training.schedule}): it rises again to "
        "its height and comes down once more, to where the run ends now."
        if decays(training)
        else f"The learning rate goes on as planned (training.schedule {training.schedule}): the steps are "
        "those of a run that was planned so long."
    )


def _steps(more: More, progress: Progress, display: Display) -> int:
    if more.steps is not None:
        return more.steps
    assert more.minutes is not None
    seconds = progress.seconds / max(1, progress.step)
    if not seconds:
        raise RunError("how long its steps take is not known, for none was done: give --more-steps")
    steps = max(1, int(more.minutes * 60 * TRAINING_SHARE / seconds))
    display.note(
        f"{more.minutes:g} minutes are {steps} steps, at the {seconds * 1000:.3g} ms that each took."
    )
    return steps


def change_plan(folder: Path, config: Config, **training: Any) -> None:
    """Write other settings of training into a run's config.yaml and its seal."""
    changed = build({**config.model_dump(), "training": {**config.training.model_dump(), **training}})
    if find_seal(folder) is None:
        save_config(changed, folder / "config.yaml")
        return
    reseal_settings(folder, sealed_settings(changed), lambda: save_config(changed, folder / "config.yaml"))
