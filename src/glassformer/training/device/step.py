"""A step as one piece of work for the device: on a GPU, one CUDA graph for each shape of its batches.

What differs from step to step (tokens, seeds, the learning rate) is written to fixed places before; loss and
norm of the gradient are fetched from one after. So a step can be begun before the last one was read.

The graph is recorded on a stream of its own, on which everything else of the step happens too. Before that
kernels are compiled, all at once, and the work is done twice with the mark of a broken step set, so that
nothing moves: what the optimizers keep is made then.
"""

from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from glassformer.config.training import TrainingConfig
from glassformer.models.fast.wanted import own_loops
from glassformer.models.gpu.rehearsal import rehearsed
from glassformer.models.gpu.twin import Twin
from glassformer.objectives.objective import Batch, Objective
from glassformer.training.device.updates import DeviceUpdates
from glassformer.training.reader import StepBatches

WARM_UPS = 2
Shape = tuple[tuple[tuple[str, tuple[int, ...]], ...], ...]


@dataclass
class Begun:
    """A step that the device has been given."""

    step: int
    tokens: int
    said: Tensor  # loss and norm, in the memory of the host once it is done
    done: "torch.cuda.Event | None"

    def read(self) -> tuple[float, float, int]:
        if self.done is not None:
            self.done.synchronize()
        loss, norm = self.said.tolist()
        return loss, norm, self.tokens


@dataclass
class Recorded:
    """A graph for batches of one shape, and the places these are read from."""

    shape: Shape
    graph: "torch.cuda.CUDAGraph"
    batches: list[Batch]


class DeviceStep:
    def __init__(self, twin: Twin, objective: Objective, updates: DeviceUpdates, config: TrainingConfig):
        self.twin, self.objective, self.updates, self.config = twin, objective, updates, config
        self.device = twin.seed.device
        self.on_gpu = self.device.type == "cuda"
        self.stream = torch.cuda.Stream(self.device) if self.on_gpu else None
        self.seeds = torch.zeros(config.accumulate, dtype=torch.int64, device=self.device)
        self.share = torch.ones((), device=self.device)  # of one target in the loss of the step
        self.said = torch.zeros(2, device=self.device)
        self.recorded: Recorded | None = None  # the newest: batches that grew do not shrink again
        self.begun: deque[Begun] = deque()

    def begin(self, step: int, data: StepBatches, factor: float, seeds: list[int]) -> None:
        """Give the device a step: its batches, what the schedule makes of the rates, a seed for each."""
        self.follow()
        with torch.cuda.stream(self.stream):
            self.seeds.copy_(torch.tensor(seeds, pin_memory=self.on_gpu), non_blocking=True)
            self.share.fill_(1 / data.targets)
            self.updates.factor.fill_(factor)
            if self.on_gpu:
                self._replay(data.batches)
            else:
                self._work(data.batches)
            increment_version(self.updates.gradients.parameters)  # which no graph does, nor a kernel
            said = torch.empty(2, pin_memory=self.on_gpu)
            said.copy_(self.said, non_blocking=True)
            done = None
            if self.on_gpu:
                done = torch.cuda.Event()
                done.record(self.stream)
        self.begun.append(Begun(step, data.tokens, said, done))

    def follow(self) -> None:
        """What comes next waits for what others have given the device until now."""
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(self.device))

    def has_begun(self, step: int) -> bool:
        return any(begun.step == step for begun in self.begun)

    @property
    def is_ahead(self) -> bool:
        """Whether a step was begun that nobody has read."""
        return bool(self.begun)

    def read(self) -> tuple[float, float, int]:
        """Loss, norm and tokens of the oldest step that was not read, when it is done."""
        return self.begun.popleft().read()

    def reset(self) -> None:
        """After a broken step, or when weights and moments were read from a file: nothing is under way, and
        what was recorded may point to what is no more."""
        if self.stream is not None:
            self.stream.synchronize()
        self.begun.clear()
        self.recorded = None
        self.updates.begin_anew()

    def _work(self, batches: list[Batch]) -> None:
        """The whole step, from tokens to new weights."""
        self.updates.gradients.zero(spared=self.twin.slots.begin_step())
        total = self._pass(batches)
        assert self.twin.slots.are_written
        norm = self.updates.move(total)
        self.said.copy_(torch.stack([total, norm]))

    def _pass(self, batches: list[Batch]) -> Tensor:
        """Forward and backward; the loss of all."""
        total = torch.zeros((), device=self.device)
        for i, batch in enumerate(batches):
            self.twin.seed.copy_(self.seeds[i])
            with own_loops(True):
                loss = self.objective.loss(self.twin, batch, self.config.label_smoothing) * self.share
            total += loss.detach()
            loss.backward()
        return total

    def _replay(self, batches: list[Batch]) -> None:
        shape = tuple(tuple((name, tuple(t.shape)) for name, t in batch.items()) for batch in batches)
        if self.recorded is None or self.recorded.shape != shape:
            self.recorded = None  # its memory goes first
            self.recorded = self._record(shape, batches)
        for place, batch in zip(self.recorded.batches, batches, strict=True):
            for name, tensor in batch.items():
                place[name].copy_(tensor, non_blocking=True)
        self.recorded.graph.replay()

    def _record(self, shape: Shape, batches: list[Batch]) -> Recorded:
        """A graph for batches of this shape. Nothing moves while it is made."""
        torch.cuda.synchronize(self.device)
        places = [{name: t.to(self.device, copy=True) for name, t in batch.items()} for batch in batches]
        with rehearsed(self.device):
            self._pass(places[:1])  # gradients are none yet, and begin at zero
        broken = self.updates.broken
        before = broken.clone()
        broken.fill_(1.0)
        for _ in range(WARM_UPS):
            self._work(places)
        broken.copy_(before)
        torch.cuda.synchronize(self.device)
        graph = torch.cuda.CUDAGraph()
        # Others go on meanwhile: a thread that makes batches asks the driver for page-locked memory.
        capture = torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local")
        with capture:
            self._work(places)
        return Recorded(shape, graph, places)
