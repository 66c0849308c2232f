"""Batches made ahead: while a step computes, one thread makes the micro-batches of the next.

What a step reads is a function of (seed, step), so making it early changes nothing. A step that was not
expected (after a rollback, or when a run is resumed) is made when it is asked for, and what was made ahead is
dropped. At no time are two batches made at once: an objective need not be safe to use from two threads.

Where the CPU itself computes, handing a small batch from thread to thread takes about as long as making it;
such a one is made on the spot.
"""

import queue
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import torch

from glassformer.objectives.objective import Batch, Objective
from glassformer.training.parallel.world import World
from glassformer.training.schedule import BatchSizes

Work = Callable[[], None]


@dataclass(frozen=True)
class StepBatches:
    """This process's part of a step: micro-batches, and the predictions and tokens in all of them."""

    batches: list[Batch]
    targets: int
    tokens: int


class Reader:
    """Gives the batches of a step. Its thread begins with the first batch that is made ahead."""

    least_seconds = 1e-3  # in which batches are made, from which a thread pays on a CPU; measured

    def __init__(
        self, objective: Objective, sizes: BatchSizes, accumulate: int, world: World, device: torch.device
    ):
        self.objective, self.sizes, self.accumulate = objective, sizes, accumulate
        self.world, self.device = world, device
        self._next: tuple[int, Future[StepBatches]] | None = None
        self._works: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.seconds = 0.0  # that the last step's batches took
        self.waited = 0.0  # seconds that the last step has waited for its batches
        weakref.finalize(self, self._works.put, None)  # a thread that nobody ended goes with its reader

    def read(self, step: int, ahead: bool = True) -> StepBatches:
        """The batches of a step, on the device; those of the step after it are begun, if `ahead` and if that
        pays.
        """
        pending, self._next = self._next, None
        began = time.perf_counter()
        if pending is not None and pending[0] == step:
            data = pending[1].result()  # or what went wrong in making them
        else:
            if pending is not None:
                pending[1].exception()  # wait for its end; nobody asked for what it made
            data = self.make(step)
        self.waited = time.perf_counter() - began
        if ahead and (self.device.type != "cpu" or self.seconds >= self.least_seconds):
            self._next = step + 1, self._submit(step + 1)
        batches = [self.to_device(batch) for batch in data.batches]
        return StepBatches(batches, data.targets, data.tokens)

    def shards(self, step: int) -> list[tuple[int, int]]:
        """First sample and number of samples of each of this process's micro-batches."""
        first, micro = self.sizes.consumed(step), self.sizes.size(step) // self.accumulate
        return [self.world.shard(first + i * micro, micro) for i in range(self.accumulate)]

    def make(self, step: int) -> StepBatches:
        """The same in the memory of the CPU, page-locked where a GPU is to fetch it."""
        began = time.perf_counter()
        batches = [self.objective.batch(*shard) for shard in self.shards(step)]
        targets = sum(self.objective.targets(batch) for batch in batches)
        tokens = sum(self.objective.tokens(batch) for batch in batches)
        if self.device.type == "cuda":
            batches = [{n: _pinned(t) for n, t in batch.items()} for batch in batches]
        self.seconds = time.perf_counter() - began
        return StepBatches(batches, targets, tokens)

    def to_device(self, batch: Batch) -> Batch:
        """All but single numbers, which are for the host."""
        return {n: t.to(self.device, non_blocking=True) if t.ndim else t for n, t in batch.items()}

    def wait(self) -> None:
        """Until nothing is being made, so that others may use what batches are made of."""
        if self._next is not None:
            self._next[1].exception()

    def close(self) -> None:
        """Drop what was made ahead and end the thread; reading begins another one."""
        self._next = None
        if self._thread is not None:
            self._works.put(None)
            self._thread.join()
            self._thread = None

    def _submit(self, step: int) -> "Future[StepBatches]":
        if self._thread is None:
            # A thread's current GPU is the first one, whichever its process uses.
            gpu = torch.cuda.current_device() if self.device.type == "cuda" else None
            self._thread = threading.Thread(target=_run, args=(self._works, gpu), daemon=True, name="batches")
            self._thread.start()
        future: Future[StepBatches] = Future()

        def work() -> None:
            try:
                future.set_result(self.make(step))
            except BaseException as error:
                future.set_exception(error)

        self._works.put(work)
        return future


def _pinned(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().pin_memory() if tensor.ndim else tensor


def _run(works: "queue.SimpleQueue[Work | None]", gpu: int | None) -> None:
    """The thread. It holds no reader while it waits."""
    if gpu is not None:
        torch.cuda.set_device(gpu)
    while (work := works.get()) is not None:
        work()
        del work
