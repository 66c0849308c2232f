"""One update of a model, for every objective and every model.

batch     samples by number, a pure function of (seed, step); each process takes its part (reader.py)
forward   and backward, micro-batch by micro-batch, normalised by the step's targets
check     a loss or gradient that is no number stops the step before it can do harm
update    clip, schedule, optimizers

On a GPU the last three are one piece of work for the device where that can be (device/).
"""

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from glassformer.config.training import TrainingConfig
from glassformer.core.device import Precision
from glassformer.core.errors import DivergedError, RunError
from glassformer.data.order import fold_seed
from glassformer.models.fast.wanted import have_threads, own_loops
from glassformer.models.gpu.twin import Twin
from glassformer.models.model import LanguageModel
from glassformer.objectives.objective import Batch, Objective, Padded
from glassformer.training.checkpoint.snapshot import Progress
from glassformer.training.compile import repeatable
from glassformer.training.device.fitting import choose_way, pass_type
from glassformer.training.device.passes import FusedPass, OpenPass
from glassformer.training.device.step import DeviceStep
from glassformer.training.device.updates import DeviceUpdates
from glassformer.training.diagnose import explain
from glassformer.training.parallel.layout import make_layout
from glassformer.training.parallel.world import ALONE, World
from glassformer.training.probe import advice, micro_batch_that_fits
from glassformer.training.reader import Reader
from glassformer.training.schedule import BatchSizes, check_schedule, learning_rate_factor
from glassformer.training.update import NotFiniteError, Updates


@dataclass(frozen=True)
class StepRecipe:
    """What it takes to see a step again: its samples and its seed."""

    step: int
    seed: int
    first_sample: int
    samples: int


class BrokenStepError(DivergedError):
    """A step whose loss or gradient is no number. No weight was moved; what it takes to repeat it is here."""

    def __init__(self, loss: float, norm: float, reason: str, recipe: StepRecipe, clip: float):
        self.reason, self.recipe = reason, recipe
        clipping = f"a training.clip below {clip:g}" if clip else "training.clip=1 (there is none now)"
        super().__init__(
            f"Training broke at step {recipe.step}: the loss is {loss:.4g} and the gradient "
            f"norm {norm:.4g}; {reason}. The update was not applied; what was saved before is "
            f"untouched. Try a lower training.lr, more training.warmup, {clipping}, "
            "training.precision=float32, or training.rollbacks=3."
        )


class Steps:
    """A model and an objective, and the updates that lead from one to the other; no file is written."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        config: TrainingConfig,
        *,
        device: torch.device | None = None,
        width: int | None = None,
        world: World = ALONE,
    ):
        """`device` is the model's unless told; `width` is for the noam schedule, which follows from it."""
        check_schedule(config, width)
        device = device or next(model.parameters()).device
        self.model, self.objective, self.config = model, objective, config
        self.device, self.width, self.world = device, width, world
        self.precision = Precision.choose(config.precision, device)
        able = config.compile != "on" and (device.type != "cpu" or have_threads())
        self.own_kernels = able and config.kernels != "off"
        self.layout = make_layout(model, config.parallel, world, device, self.precision.name)
        self.way = choose_way(model, objective, config, self.precision, world.size)
        self.device_step: DeviceStep | None = None
        if isinstance(objective, Padded):  # as each shape of batches has a graph of its own
            objective.few_lengths = self.way == "graph"
        if self.way == "calls":
            self.updates = Updates(self.layout, config, self.precision)
        else:
            self.updates, self.device_step = self._make_device_step()
        self.sizes = BatchSizes(config.batch, config.batch_growth)
        self.reader = Reader(objective, self.sizes, config.accumulate, world, device)
        self.progress = Progress()
        self._own_loss = 0.0

    def _make_device_step(self) -> tuple[DeviceUpdates, DeviceStep]:
        model, objective, config = self.model, self.objective, self.config
        updates = DeviceUpdates(self.layout, config, self.precision)
        what = objective, config.label_smoothing, self.own_kernels
        if self.way == "fused":
            assert isinstance(model, LanguageModel)
            twin = Twin(model, pass_type(self.precision), narrow=self.precision.name == "fp8")
            return updates, DeviceStep(FusedPass(twin, *what, config.accumulate), updates)
        return updates, DeviceStep(OpenPass(model, *what, self.precision), updates)

    def step(self, forward: Callable[..., Any], ahead: bool = False) -> dict[str, Any]:
        """One update. Returns what there is to say about it.

        `ahead`: nobody looks at the weights behind this step, so that the next may begin before it is read.
        """
        if self.device_step is not None:
            return self._step_on_device(self.device_step, ahead)
        config, progress = self.config, self.progress
        began = time.perf_counter()
        self.world.set_phase("batch")
        data = self.reader.read(progress.step, ahead=progress.step + 1 != config.steps)
        batches = data.batches
        targets, tokens = self.world.all_reduce(data.targets, data.tokens)
        self.model.train()
        total = torch.zeros((), device=self.device)
        for i, batch in enumerate(batches):
            self.world.set_phase(f"step {progress.step + 1}, micro-batch {i + 1}")
            self._seed(i)
            with repeatable(self.device), self.layout.micro(last=i + 1 == len(batches)):
                with self.precision.context(), own_loops(self.own_kernels):
                    loss = self.objective.loss(forward, batch, config.label_smoothing) / targets
                total += loss.detach()
                # Gradients are averaged over the processes, and are to be summed.
                self.updates.backward(loss * self.world.size if self.world.size > 1 else loss)
        self.world.set_phase(f"step {progress.step + 1}, update")
        self._own_loss = total.item()
        (nats,) = self.world.all_reduce(self._own_loss)
        factor = self._rate_factor(progress.step)
        try:
            norm = self.updates.apply(nats, factor, progress)
        except NotFiniteError as error:
            raise self._broken(batches, nats, error.norm) from None
        return self._done(nats, norm, int(tokens), time.perf_counter() - began)

    def _step_on_device(self, device_step: DeviceStep, ahead: bool) -> dict[str, Any]:
        """The same as one piece of work, maybe the next one after it, and then what came of it."""
        began, step = time.perf_counter(), self.progress.step
        self.model.train()
        if not device_step.has_begun(step):
            self._begin(device_step, step)
        if ahead and not device_step.has_begun(step + 1):
            self._begin(device_step, step + 1)
        nats, norm, tokens = device_step.read()
        if not math.isfinite(nats) or not math.isfinite(norm):
            device_step.reset()
            raise self._broken(self._repeated(step), nats, norm)
        return self._done(nats, norm, tokens, time.perf_counter() - began)

    def _repeated(self, step: int) -> list[Batch]:
        """The batches of a step that broke, after the open pass has made their gradients once more."""
        data = self.reader.read(step, ahead=False)
        for i, batch in enumerate(data.batches):
            self._seed(i)
            with self.precision.context(), own_loops(self.own_kernels):
                loss = self.objective.loss(self.model, batch, self.config.label_smoothing) / data.targets
            loss.backward()
        return data.batches

    def _begin(self, device_step: DeviceStep, step: int) -> None:
        device_step.follow()
        with torch.cuda.stream(device_step.stream):  # where its batches arrive too
            data = self.reader.read(step, ahead=step + 1 != self.config.steps)
        seeds = [self._seed_of(step, i) for i in range(len(data.batches))]
        device_step.begin(step, data, self._rate_factor(step), seeds)

    def _rate_factor(self, step: int) -> float:
        """What the schedule, and rollbacks, make of the learning rate."""
        return learning_rate_factor(self.config, step, self.width) * self.progress.lr_scale

    def _done(self, nats: float, norm: float, tokens: int, seconds: float) -> dict[str, Any]:
        """Count a step, and say what there is to say about it."""
        config, progress = self.config, self.progress
        factor = self._rate_factor(progress.step)
        progress.step += 1
        progress.tokens += tokens
        progress.seconds += seconds
        per_byte = self.objective.bytes_per_target
        bits = {"bits_per_byte": nats / math.log(2) / per_byte} if per_byte else {}
        return {
            "step": progress.step,
            "split": "train",
            "loss": nats,
            **bits,
            "lr": config.lr * factor,
            "grad_norm": norm,
            "batch": self.sizes.size(progress.step - 1),
            "tokens": progress.tokens,
            "seconds": progress.seconds,
            "seconds_per_step": seconds,
            "tokens_per_second": tokens / seconds,
        }

    def step_that_fits(self, forward: Callable[..., Any], ahead: bool = False) -> dict[str, Any]:
        """A step; or, where the memory is too small for it, the settings that would fit."""
        with suppress(torch.OutOfMemoryError):  # what it held is let go before anything is tried
            return self.step(forward, ahead)
        if self.device_step is not None:
            self.device_step.reset()
        self.reader.close()  # its next batches take room too
        size, first = self.sizes.size(self.progress.step), self.sizes.consumed(self.progress.step)

        def work(samples: int) -> None:
            batch = self.reader.to_device(self.objective.batch(first, samples))
            with self.precision.context():
                self.objective.loss(self.model, batch, 0.0).backward()

        if self.world.size > 1:  # a trial needs all processes; this one is in trouble alone
            raise RunError(advice(size, self.config.accumulate, None, self.world.size))
        states = sum(len(optimizer.state) for optimizer in self.updates.optimizers)
        reserve = 0 if states else sum(8 * p.numel() for p in self.model.parameters())  # two numbers for each
        micro = micro_batch_that_fits(self.model, size // self.config.accumulate, work, reserve)
        less = " --set training.kernels=off needs less too, and more time." if self.way == "graph" else ""
        raise RunError(advice(size, self.config.accumulate, micro) + less)

    def _broken(self, batches: list[Batch], loss: float, norm: float) -> BrokenStepError:
        """What there is to say about a step that broke."""
        reason = self._reason(batches, loss, norm)
        self.updates.forget()
        step = self.progress.step
        samples = self.sizes.consumed(step), self.sizes.size(step)
        recipe = StepRecipe(step + 1, self.config.seed, *samples)
        return BrokenStepError(loss, norm, reason, recipe, self.config.clip)

    def _reason(self, batches: list[Batch], loss: float, norm: float) -> str:
        if self.world.size > 1:  # a closer look would need all processes at every turn of it
            bad = [r for r, own in enumerate(self.world.all_gather(self._own_loss)) if not math.isfinite(own)]
            where = f"the loss of rank {', '.join(map(str, bad))}" if bad else "a gradient"
            return f"{where} is no number (train in one process to see the first bad tensor)"
        with self.precision.context(), own_loops(self.own_kernels):
            return explain(self.model, self.objective, batches, loss, norm, self._seed)

    def _seed(self, micro: int) -> None:
        """All randomness of a micro-batch (dropout) follows from where in the run it stands; what is recorded
        as one graph is seeded once."""
        if self.way == "graph" and micro:
            return
        torch.manual_seed(self._seed_of(self.progress.step, micro))

    def _seed_of(self, step: int, micro: int) -> int:
        return fold_seed(self.config.seed, step, micro, self.world.rank) >> 1
