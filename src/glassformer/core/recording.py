"""CUDA graphs: what is launched inside is recorded, to be launched again as one piece of work.

PyTorch takes one recording at a time in a process, whoever makes it; and on a stream of the device that is
meant, which its own choice need not be.
"""

import threading
from collections.abc import Callable
from contextlib import suppress

import torch

_one_at_a_time = threading.Lock()


def record(
    work: Callable[[], None], stream: "torch.cuda.Stream", beside: "torch.cuda.CUDAGraph | None" = None
) -> "torch.cuda.CUDAGraph":
    """The graph of some work, which is not done. `beside` another one: both compute in the same memory, so
    they must not run at once, nor leave anything there.
    """
    graph = torch.cuda.CUDAGraph()
    pool = None if beside is None else beside.pool()
    # Other threads go on meanwhile: one that makes batches asks the driver for page-locked memory.
    with _one_at_a_time:
        torch.cuda.synchronize(stream.device)
        try:
            with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                work()
        except BaseException:
            _renew_generator(stream.device)
            raise
    return graph


def _renew_generator(device: torch.device) -> None:
    """After a recording that failed, random numbers would be taken for part of it for ever."""
    with suppress(RuntimeError):
        new = torch.Generator(device)
        torch.cuda.default_generators[new.device.index].graphsafe_set_state(new.graphsafe_get_state())
