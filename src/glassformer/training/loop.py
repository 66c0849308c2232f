"""The training loop. There is one, for every task and every model.

    for each step:
        batch     samples by number, a pure function of (seed, step)
        forward   and backward, micro-batch by micro-batch, normalised by the step's targets
        check     a loss or gradient that is no number stops the run before it can do harm
        update    clip, schedule, optimizers
        now and then: log, evaluate, sample, save

Evaluating and sampling are handed in as functions; the loop does not know how they are done.
"""

import math
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from glassformer.errors import DivergedError, Interrupted, RunError
from glassformer.tasks.task import Batch, Task
from glassformer.text.order import number
from glassformer.training.checkpoint import (
    Progress,
    environment,
    load_checkpoint,
    save_checkpoint,
)
from glassformer.training.device import Precision, maybe_compile
from glassformer.training.diagnose import explain, write_down
from glassformer.training.hooks import Hooks
from glassformer.training.log import MetricsLog
from glassformer.training.optim import make_optimizers
from glassformer.training.probe import advice, micro_batch_that_fits
from glassformer.training.schedule import BatchSizes, learning_rate_factor
from glassformer.training.signals import StopRequest
from glassformer.training.weights import save_weights

if TYPE_CHECKING:
    from glassformer.config import TrainingConfig


LEAST_GAIN = 1e-4  # of the criterion, below which an evaluation does not count as better for `patience`
MOST_SKIPPED = 30  # fp16 overflows in a row that are put down to the scale of the loss


class Trainer:
    """A model, a task and a run directory, and the steps that lead from one to the other."""

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        config: "TrainingConfig",
        folder: Path,
        hooks: Hooks,
        *,
        device: torch.device,
        width: int,
    ):
        self.model, self.task, self.config, self.folder, self.hooks = model, task, config, folder, hooks
        self.device, self.width = device, width
        self.precision = Precision.choose(config.precision, device)
        self.scaler = self.precision.scaler()
        self.optimizers = make_optimizers(model, config)
        self.sizes = BatchSizes(config.batch, config.batch_growth)
        self.progress = Progress()
        self.environment = environment(device, config.compile == "on", self.precision.name)

    def resume(self, checkpoint: Path) -> None:
        """Go on from a checkpoint. Another machine is fine, but then not bit for bit; that is said."""
        self.progress, made_in, carried = load_checkpoint(checkpoint, self.model, self.optimizers)
        self.task.carry_on({name: tensor.to(self.device) for name, tensor in carried.items()})
        if self.scaler is not None and self.progress.scaler:
            self.scaler.load_state_dict(self.progress.scaler)
        changed = [
            f"{key} {made_in.get(key)} → {value}"
            for key, value in self.environment.items()
            if made_in.get(key) != value
        ]
        if changed:
            self.hooks.display.note(
                "Not bit for bit what an unbroken run would give, since this changed: " + ", ".join(changed)
            )

    def run(self) -> Progress:
        """Train to the end, or until a signal or early stopping ends it. Everything is saved either way."""
        config, progress, display = self.config, self.progress, self.hooks.display
        forward = maybe_compile(self.model, config.compile == "on")
        log = MetricsLog(self.folder / "metrics.jsonl", progress.step, config.tensorboard)
        log_every = max(1, config.steps // 2000)
        display.start(progress.step, config.steps)
        saved = progress.step
        try:
            with StopRequest() as stop:
                while progress.step < config.steps and not self._out_of_patience():
                    record = self._step_that_fits(forward)
                    display.step(record)
                    last = progress.step == config.steps
                    if progress.step % log_every == 0 or last:
                        log.write(record)
                    if self.hooks.evaluate and (last or progress.step % config.eval_every == 0):
                        self._evaluate(log)
                    if self.hooks.sample and config.sample_every and progress.step % config.sample_every == 0:
                        self._sample()
                    if stop.signal or last or progress.step % config.checkpoint_every == 0:
                        self._save()
                        saved = progress.step
                    if stop.signal:
                        if progress.best is None:  # nothing was evaluated yet: the last is all there is
                            save_weights(self.model, self.folder / "model.safetensors")
                        raise Interrupted(
                            f"Stopped at step {progress.step} of {config.steps}, saved in {self.folder}. "
                            "Go on with the same command and --resume.",
                            stop.signal,
                        )
            if saved != progress.step:
                self._save()
            if self.hooks.evaluate is None:
                save_weights(self.model, self.folder / "model.safetensors")
        finally:
            display.stop()
            log.close()
        return progress

    def _step_that_fits(self, forward: Callable[..., Any]) -> dict[str, Any]:
        """A step; or, where the memory is too small for it, the settings that would fit."""
        with suppress(torch.OutOfMemoryError):  # what it held is let go before anything is tried
            return self.step(forward)
        size, first = self.sizes.at(self.progress.step), self.sizes.consumed(self.progress.step)

        def work(samples: int) -> None:
            with self.precision.context():
                self.task.loss(self.model, self._batch(first, samples), 0.0).backward()

        states = sum(len(optimizer.state) for optimizer in self.optimizers)
        held = 0 if states else sum(8 * p.numel() for p in self.model.parameters())  # two numbers for each
        micro = micro_batch_that_fits(self.model, size // self.config.accumulate, work, held)
        raise RunError(advice(size, self.config.accumulate, micro))

    def step(self, forward: Callable[..., Any]) -> dict[str, Any]:
        """One update. Returns what there is to say about it."""
        config, progress = self.config, self.progress
        began = time.perf_counter()
        size, first = self.sizes.at(progress.step), self.sizes.consumed(progress.step)
        micro = size // config.accumulate
        batches = [self._batch(first + i * micro, micro) for i in range(config.accumulate)]
        targets = sum(self.task.targets(batch) for batch in batches)
        tokens = sum(self.task.tokens(batch) for batch in batches)
        self.model.train()
        total = torch.zeros((), device=self.device)
        for i, batch in enumerate(batches):
            self._seed(i)
            with self.precision.context():
                loss = self.task.loss(forward, batch, config.label_smoothing) / targets
            (self.scaler.scale(loss) if self.scaler else loss).backward()
            total += loss.detach()
        factor = learning_rate_factor(config, progress.step, self.width)
        norm = self._update(batches, total.item(), factor)
        seconds = time.perf_counter() - began
        progress.step += 1
        progress.tokens += tokens
        progress.seconds += seconds
        per_byte = self.task.bytes_per_target
        bits = {"bits_per_byte": total.item() / math.log(2) / per_byte} if per_byte else {}
        return {
            "step": progress.step,
            "split": "train",
            "loss": total.item(),
            **bits,
            "lr": config.lr * factor,
            "grad_norm": norm,
            "batch": size,
            "tokens": progress.tokens,
            "seconds": progress.seconds,
            "seconds_per_step": seconds,
            "tokens_per_second": tokens / seconds,
        }

    def _update(self, batches: list[Batch], loss: float, factor: float) -> float:
        """Check, clip and apply the gradients; returns their norm before clipping."""
        if self.scaler:
            for optimizer in self.optimizers:
                self.scaler.unscale_(optimizer)
        trained = [p for p in self.model.parameters() if p.grad is not None]
        total = get_total_norm([p.grad for p in trained if p.grad is not None])
        norm = total.item()
        if self.scaler and math.isfinite(loss) and not math.isfinite(norm) and self._skip_overflow():
            return norm
        if not math.isfinite(loss) or not math.isfinite(norm):
            with self.precision.context():
                reason = explain(self.model, self.task, batches, loss, norm, self._seed)
            at = self.progress.step
            samples = {"first_sample": self.sizes.consumed(at), "samples": self.sizes.at(at)}
            write_down(self.folder, reason, step=at + 1, seed=self.config.seed, **samples)
            raise DivergedError(
                f"Training broke at step {self.progress.step + 1}: the loss is {loss:.4g} and the gradient "
                f"norm {norm:.4g}; {reason}. The update was not applied; what was saved before is "
                "untouched. Try a lower training.lr, more training.warmup, a smaller training.clip, or "
                "training.precision=float32."
            )
        if self.config.clip:
            clip_grads_with_norm_(trained, self.config.clip, total)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["base_lr"] * factor
            if self.scaler:
                self.scaler.step(optimizer)
            else:
                optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if self.scaler:
            self.scaler.update()
            self.progress.scaler = self.scaler.state_dict()
        self.progress.skipped = 0
        return norm

    def _skip_overflow(self) -> bool:
        """fp16 gradients that overflow: no optimizer moves, the loss is scaled down. False after too many."""
        assert self.scaler is not None
        self.progress.skipped += 1
        if self.progress.skipped > MOST_SKIPPED:
            return False
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        self.scaler.update()
        self.progress.scaler = self.scaler.state_dict()
        return True

    def _batch(self, first: int, count: int) -> Batch:
        batch = self.task.batch(first, count)
        return {name: tensor.to(self.device, non_blocking=True) for name, tensor in batch.items()}

    def _seed(self, micro: int) -> None:
        """All randomness of a micro-batch (dropout) follows from where in the run it stands."""
        torch.manual_seed(number(self.config.seed, self.progress.step, micro, 0) >> 1)

    def _evaluate(self, log: MetricsLog) -> None:
        assert self.hooks.evaluate is not None
        progress = self.progress
        result = self.hooks.evaluate()
        record = {**result.numbers(), "step": progress.step, "split": "valid"}
        log.write({**record, "train_tokens": progress.tokens, "seconds": progress.seconds})
        before = math.inf if progress.best is None else progress.best
        best = result.criterion < before
        if best:
            progress.best, progress.best_step = result.criterion, progress.step
            save_weights(self.model, self.folder / "model.safetensors")
        improved = result.criterion < before - LEAST_GAIN
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
        return bool(self.config.patience) and self.progress.since_best >= self.config.patience

    def _save(self) -> None:
        save_checkpoint(
            self.folder / "checkpoints",
            self.model,
            self.optimizers,
            self.progress,
            self.environment,
            self.config.keep,
            self.task.carried(),
        )
