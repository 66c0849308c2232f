"""A step as one piece of work for the device: on a GPU, one CUDA graph for each shape of its batches.

What differs from step to step (tokens, seeds, the learning rate) is written to fixed places before; loss and
norm of the gradient are fetched from one after. So a step can be begun before the last one was read.

The graph is recorded on a stream of its own, on which everything else of the step happens too. Before that
own kernels are compiled, all at once, and the work is done twice with the mark of a broken step set, so that
nothing moves: what the optimizers keep is made then. PyTorch's kernels have done a real step by then.
"""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from glassformer.core.recording import own_stream, record
from glassformer.models.gpu.rehearsal import rehearsed
from glassformer.objectives.objective import Batch
from glassformer.training.device.passes import Pass
from glassformer.training.device.updates import DeviceUpdates
from glassformer.training.reader import StepBatches

WARM_UPS = 2
IDLE = 500  # steps without a batch of its shape, after which a graph makes room for others


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
    """A graph, and the places that its batches are read from."""

    graph: "torch.cuda.CUDAGraph"
    batches: list[Batch]
    used: int = 0  # when it was last replayed, in steps


class DeviceStep:
    def __init__(self, way: Pass, updates: DeviceUpdates):
        self.way, self.updates = way, updates
        self.device = updates.gradients.vector.device
        self.on_gpu = self.records = self.device.type == "cuda"
        self.stream = own_stream(self, self.device) if self.on_gpu else None
        self.share = torch.ones((), device=self.device)  # of one target in the loss of the step
        self.said = torch.zeros(2, device=self.device)
        self.recorded: dict[Hashable, Recorded] = {}  # by the shape of the batches
        self.steps = 0  # that were given to the device
        self.seen: set[int] = set()  # hashes of shapes that have gone through call by call
        self.begun: deque[Begun] = deque()
        self.was_ready = True  # for the newest step: batches of a new shape take longer

    def begin(self, step: int, data: StepBatches, factor: float, seeds: list[int]) -> None:
        """Give the device a step: its batches, what the schedule makes of the rates, a seed for each."""
        self.follow()
        with torch.cuda.stream(self.stream):
            self.way.seed(seeds)
            self.share.fill_(1 / data.targets)
            self.updates.factor.fill_(factor)
            if self.records:
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
        self.recorded.clear()
        self.seen.clear()  # what a recording is to find is made outside of it, by a step call by call
        self.updates.begin_anew()

    def _work(self, batches: list[Batch]) -> None:
        """The whole step, from tokens to new weights."""
        self.updates.gradients.zero(spared=self.way.begin())
        total = self._pass(batches)
        assert self.way.is_done
        norm = self.updates.move(total)
        self.said.copy_(torch.stack([total, norm]))

    def _pass(self, batches: list[Batch]) -> Tensor:
        """Forward and backward; the loss of all."""
        total = torch.zeros((), device=self.device)
        for i, batch in enumerate(batches):
            loss = self.way.loss(i, batch) * self.share
            total += loss.detach()
            loss.backward()
        return total

    def _replay(self, batches: list[Batch]) -> None:
        shape = shape_of(batches)
        self.steps += 1
        full = len(self.recorded) >= self.way.most_graphs
        known, self.was_ready = hash(shape) in self.seen, shape in self.recorded
        self.seen.add(hash(shape))
        if not self.was_ready and self.way.is_rehearsed:
            if full:
                self.recorded.clear()  # its memory goes first
            self._rehearse(batches)
        elif not self.was_ready and (not known or (full and not self._make_room())):
            self.was_ready = full
            self._work(batches)
            return
        if not self.was_ready:
            self.recorded[shape] = self._record(batches)
        recorded = self.recorded[shape]
        recorded.used = self.steps
        for place, batch in zip(recorded.batches, batches, strict=True):
            for name, tensor in batch.items():
                if tensor.ndim:
                    place[name].copy_(tensor, non_blocking=True)
        recorded.graph.replay()

    def _make_room(self) -> bool:
        """If a graph was not used for long: all go (core/recording.py), and come again as they are used."""
        if self.steps - min(recorded.used for recorded in self.recorded.values()) < IDLE:
            return False
        if self.stream is not None:
            self.stream.synchronize()
        self.recorded.clear()
        return True

    def _rehearse(self, batches: list[Batch]) -> None:
        """Compile what a step needs, and make what it keeps. Nothing moves meanwhile."""
        torch.cuda.synchronize(self.device)
        with rehearsed(self.device):
            self._pass(batches[:1])  # gradients are none yet, and begin at zero
        broken = self.updates.broken
        before = broken.clone()
        broken.fill_(1.0)
        try:
            for _ in range(WARM_UPS):
                self._work(batches)
        finally:
            broken.copy_(before)

    def _record(self, batches: list[Batch]) -> Recorded:
        """A graph for batches of this shape; nothing is computed while it is made."""
        places = [{name: t.clone() for name, t in batch.items()} for batch in batches]
        assert self.stream is not None
        beside = next((recorded.graph for recorded in self.recorded.values()), None)
        return Recorded(record(lambda: self._work(places), self.stream, beside), places)


def shape_of(batches: list[Batch]) -> Hashable:
    """What a graph is made for. Numbers that batches bring for the host are part of it."""
    return tuple(
        tuple((name, tuple(t.shape) if t.ndim else t.item()) for name, t in batch.items())
        for batch in batches
    )
