"""The training loop. There is one, for every objective and every model.

    for each step:
        one update (step.py)
        now and then: log, evaluate, sample, save
        a step that broke: stop, or go back to the last checkpoint

Evaluating and sampling are handed in as functions; the loop does not know how they are done.
"""

import math
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Any

import torch
from torch import nn

from glassformer.config.training import TrainingConfig
from glassformer.core.errors import GlassformerError, Interrupted
from glassformer.core.files import make_folder, write_atomically
from glassformer.core.strict_json import dump_json
from glassformer.objectives.objective import Objective
from glassformer.training.checkpoint.background import Saver
from glassformer.training.checkpoint.read import load_checkpoint
from glassformer.training.checkpoint.run_seal import save_run_weights
from glassformer.training.checkpoint.snapshot import Progress, environment, take_snapshot
from glassformer.training.checkpoint.write import latest_checkpoint, save_checkpoint
from glassformer.training.hooks import Hooks
from glassformer.training.log import MetricsLog
from glassformer.training.pace import Pace
from glassformer.training.parallel.watch import FINISHING
from glassformer.training.parallel.world import ALONE, World, broadcast_path
from glassformer.training.signals import StopRequest
from glassformer.training.step import BrokenStepError, Steps

LEAST_GAIN = 1e-4  # of the criterion, below which an evaluation does not count as better for `patience`
SLOWER = 0.5  # what each rollback leaves of the learning rate


class Trainer(Steps):
    """A model, an objective and a folder, and the steps that lead from one to the other.

    Any `nn.Module` and any `Objective` will do. The folder gets metrics.jsonl, checkpoints/ and
    model.safetensors.

        trainer = Trainer(model, objective, TrainingConfig(steps=1000), "runs/mine")
        trainer.run()
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        config: TrainingConfig,
        folder: Path | str,
        hooks: Hooks | None = None,
        *,
        device: torch.device | None = None,
        width: int | None = None,
        world: World = ALONE,
    ):
        super().__init__(model, objective, config, device=device, width=width, world=world)
        self.folder, self.hooks, self.saver = Path(folder), hooks or Hooks(), Saver()
        self.settings: dict[str, Any] = {}  # of the whole run, to be written down with each checkpoint
        self._saves, self._saved_at = 0, -1
        self._evaluations, self._began = 0, 0.0
        kernels = self.way if self.way != "calls" else "own" if self.own_kernels else "PyTorch"
        how = (config.compile == "on", kernels, self.precision.name, self.layout.name, world.size)
        self.environment = environment(self.device, *how)

    def resume(self, checkpoint: Path) -> None:
        """Go on from a checkpoint. Another machine is fine, but then not bit for bit; that is said."""
        previous = {"layout": "one", "processes": 1, **self._load(checkpoint)}
        differences = [
            f"{key} {previous.get(key)} → {value}"
            for key, value in self.environment.items()
            if previous.get(key) != value
        ]
        if differences:
            self.hooks.display.note(
                "Not bit for bit what an unbroken run would give, since this changed: "
                + ", ".join(differences)
            )

    def _load(self, checkpoint: Path) -> dict[str, Any]:
        """Take up a checkpoint; gives what it was made in."""
        optimizers, scaler = self.updates.optimizers, self.updates.scaler
        self.progress, previous, objective_state = load_checkpoint(checkpoint, self.model, optimizers)
        self.objective.load_state_dict(
            {name: tensor.to(self.device) for name, tensor in objective_state.items()}
        )
        if self.device_step is not None:
            self.device_step.reset()
        if scaler is not None:
            scaler.load_state_dict(self.progress.scaler or self.precision.new_scaler().state_dict())
        return previous

    def run(self) -> Progress:
        """Train to the end, or until a signal or early stopping ends it. Everything is saved either way."""
        config, display = self.config, self.hooks.display
        forward = self.layout.forward(config.compile == "on")
        make_folder(self.folder)
        log = self._open_log()
        if self.device_step is not None:
            display.note(f"Steps are one piece of work each, by {self.environment['kernels']}.")
        if config.compile == "on" and self.progress.step < config.steps:
            display.note("The model is compiled first, so the first step takes a while.")
        display.start(self.progress.step, config.steps)
        self._began, planned = time.monotonic() - self.progress.seconds, config.steps
        try:
            with StopRequest() as stop:
                if config.rollbacks and self.progress.step == 0:
                    self._save()  # something to go back to
                if self.hooks.evaluate and self.hooks.start_counts and self.progress.step == 0:
                    self._evaluate(log)
                while self.progress.step < self.config.steps and not self._out_of_patience():
                    try:
                        record = self.step_that_fits(forward, self._may_go_ahead(stop, planned))
                    except BrokenStepError as error:
                        self._write_down(error)
                        log = self._roll_back(error, log)
                        continue
                    display.step(record)
                    on_device = self.device_step
                    is_ahead = on_device is not None and on_device.is_ahead  # then it stops one step later
                    self._now_and_then(record, log, 0 if is_ahead else self._agreed(stop))
                    if self.hooks.pace and self.hooks.pace.is_due(self.progress.step, planned):
                        self._keep_pace(self.hooks.pace, planned)
                if self._saved_at != self.progress.step:
                    self._save(wait=False)
                if self.hooks.evaluate is None:
                    self._save_weights()
                self.saver.close()
                if signal := self._agreed(stop):
                    raise self._interrupted(signal)
        except Exception as error:
            if self.world.size == 1 or isinstance(error, GlassformerError):  # else others may be missing
                with suppress(Exception):  # the first thing that went wrong is the one to say
                    self.saver.close()
            raise
        finally:
            self.reader.close()
            display.stop()
            log.close()
        self.world.set_phase(FINISHING)
        return self.progress

    def _may_go_ahead(self, stop: StopRequest, planned: int) -> bool:
        """Whether nobody looks at the weights behind the next step, so that one more may begin at once."""
        step, config, hooks = self.progress.step + 1, self.config, self.hooks
        if self.device_step is None or stop.signal or step >= config.steps:
            return False
        rhythms = [config.checkpoint_every]
        rhythms += [config.eval_every] if hooks.evaluate else []
        rhythms += [config.sample_every] if hooks.sample and config.sample_every else []
        due = hooks.pace is not None and hooks.pace.is_due(step, planned)
        return not due and all(step % often for often in rhythms)

    def _agreed(self, stop: StopRequest) -> int:
        """The signal that any process has got."""
        return int(max(self.world.all_gather(stop.signal)))

    def _interrupted(self, signal: int) -> Interrupted:
        step, steps = self.progress.step, self.config.steps
        again = "the same command and --resume."
        if self.config.extended:  # the same command would ask for still more
            again = f"glassformer train --out {quote(str(self.folder))} --resume"
        return Interrupted(
            f"Stopped at step {step} of {steps}, saved in {self.folder}. Go on with {again}", signal
        )

    def _now_and_then(self, record: dict[str, Any], log: MetricsLog, stop: int) -> None:
        """What follows some steps: log, evaluate, sample, save; and after a signal, the end."""
        config, progress = self.config, self.progress
        last = progress.step == config.steps
        self.saver.check()  # what went wrong in writing is said soon
        if last or progress.step % max(1, config.steps // 2000) == 0:
            log.write(record)
        if self.hooks.evaluate and (last or progress.step % config.eval_every == 0):
            self.world.set_phase("evaluation")
            self.reader.wait()  # a tokenizer may serve both, and is not asked by two threads at once
            self._evaluate(log)
        # A model in parts can only speak with all processes, and they might come to different words.
        speaks = self.hooks.sample and self.world.is_main and self.layout.name != "fsdp"
        if speaks and config.sample_every and progress.step % config.sample_every == 0:
            self.reader.wait()
            self._sample()
        if stop or last or progress.step % config.checkpoint_every == 0:
            self._save(wait=False)
        if stop:
            if progress.best is None:  # nothing was evaluated yet: the last is all there is
                self._save_weights()
            self.saver.close()
            self.world.barrier()
            raise self._interrupted(stop)

    def _keep_pace(self, pace: Pace, planned: int) -> None:
        """Bring the plan to what fits into the time, at most `planned`; written down before the next step."""
        progress, config = self.progress, self.config
        other = time.monotonic() - self._began - progress.seconds
        fitting = pace.steps_that_fit(
            config, progress.step, progress.seconds, other, self._evaluations, self.width, planned
        )
        steps = int(self.world.all_gather(fitting)[0])  # one clock for all processes
        if steps == config.steps or (steps > config.steps and steps < 1.1 * config.steps):
            return  # a little longer is not worth a word
        self.config = config.model_copy(update={"steps": steps})
        self.settings["training.steps"] = steps
        self.saver.wait()
        if self.world.is_main and self.hooks.shortened is not None:
            self.hooks.shortened(steps)
        self.hooks.display.planned(steps)
        self.hooks.display.note(f"Held to its time: {steps} steps, not {config.steps}.")

    def _open_log(self) -> MetricsLog:
        path = self.folder / "metrics.jsonl" if self.world.is_main else None
        return MetricsLog(path, self.progress.step, self.config.tensorboard)

    def _write_down(self, error: BrokenStepError) -> None:
        """What it takes to see a broken step again, as diverged.json."""
        if self.world.is_main:
            record = {"reason": error.reason, **asdict(error.recipe)}
            write_atomically(self.folder / "diverged.json", dump_json(record, indent=1))

    def _roll_back(self, error: BrokenStepError, log: MetricsLog) -> MetricsLog:
        """Go back to the last checkpoint and on from there with a lower learning rate; not too many times."""
        failed_step, rollbacks = self.progress.step + 1, self.progress.rollbacks
        if rollbacks >= self.config.rollbacks:
            raise error
        self.saver.wait()
        self.world.barrier()
        newest = latest_checkpoint(self.folder / "checkpoints") if self.world.is_main else None
        newest = broadcast_path(self.world, f"rollback/{rollbacks}", newest)
        if newest is None:
            raise error
        scale = self.progress.lr_scale * SLOWER
        self._load(newest)
        self.progress.rollbacks, self.progress.lr_scale = rollbacks + 1, scale
        self.hooks.display.note(
            f"Training broke at step {failed_step}: back to step {self.progress.step}, with the learning "
            f"rate times {scale:g} (rollback {rollbacks + 1} of {self.config.rollbacks})."
        )
        log.close()
        return self._open_log()

    def _evaluate(self, log: MetricsLog) -> None:
        assert self.hooks.evaluate is not None
        progress = self.progress
        result = self.hooks.evaluate()
        self._evaluations += 1
        criterion = self.world.all_gather(result.criterion)[0]  # a last bit must not part the processes' ways
        record = {**result.numbers(), "step": progress.step, "split": "valid"}
        log.write({**record, "train_tokens": progress.tokens, "seconds": progress.seconds})
        before = math.inf if progress.best is None else progress.best
        best = criterion < before
        if best:
            progress.best, progress.best_step = criterion, progress.step
            self._save_weights()
        improved = criterion < before - LEAST_GAIN
        progress.since_best = 0 if improved else progress.since_best + 1
        self.hooks.display.evaluated(progress.step, result.summary(), best)
        if self._out_of_patience() and progress.step < self.config.steps:
            self.hooks.display.note(
                f"Stopping early: no improvement in the last {progress.since_best} evaluations; "
                f"the best was at step {progress.best_step}."
            )

    def _sample(self) -> None:
        assert self.hooks.sample is not None
        if text := self.hooks.sample():
            self.hooks.display.sampled(self.progress.step, text)

    def _out_of_patience(self) -> bool:
        """Of a first plan alone: one that was made longer is trained to the end that was asked for, and its
        rate has to rise again before it can do better than at its last end.
        """
        impatient = bool(self.config.patience) and self.progress.since_best >= self.config.patience
        return impatient and not self.config.extended

    def _save_weights(self) -> None:
        weights = self.layout.full_state_dict()
        if self.world.is_main:
            self.saver.submit(lambda: save_run_weights(weights, self.folder))

    def _save(self, wait: bool = True) -> None:
        """A checkpoint of the run as it is now, written while training goes on unless told to wait."""
        self._saves += 1
        self._saved_at = self.progress.step
        self.world.set_phase("saving")
        snapshot = take_snapshot(
            self.model,
            self.updates.optimizers,
            self.progress,
            self.environment,
            self.objective.state_dict(),
            self.world,
            self._saves,
            self.settings,
        )
        folder = self.folder / "checkpoints"
        self.saver.submit(lambda: save_checkpoint(folder, snapshot, self.config.keep, self.world))
        if wait:
            self.saver.wait()
