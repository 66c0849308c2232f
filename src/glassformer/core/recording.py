"""CUDA graphs: what is launched inside is recorded, to be launched again as one piece of work.

PyTorch takes one recording at a time in a process, whoever makes it. And when a graph goes, newer versions
take back what products on its stream have as room to work in, also from other graphs of that stream. So who
keeps graphs has a stream that nobody else has, and lets them go all at once.
"""

import threading
import weakref
from collections import defaultdict
from collections.abc import Callable

import torch

_one_at_a_time = threading.Lock()
_free_streams: dict[torch.device, "list[torch.cuda.Stream]"] = defaultdict(list)


def own_stream(owner: object, device: torch.device) -> "torch.cuda.Stream":
    """A stream for one owner, as long as that lives. (PyTorch itself hands out 32, then these again.)"""
    free = _free_streams[device]
    stream = free.pop() if free else torch.cuda.Stream(device)
    weakref.finalize(owner, free.append, stream)
    return stream


def record(
    work: Callable[[], None], stream: "torch.cuda.Stream", beside: "torch.cuda.CUDAGraph | None" = None
) -> "torch.cuda.CUDAGraph":
    """The graph of some work, which is not done. `beside` another one: both compute in the same memory, so
    they must not run at once, nor leave anything there.
    """
    graph = torch.cuda.CUDAGraph()
    pool = None if beside is None else beside.pool()
    with _one_at_a_time, torch.cuda.stream(stream):  # which is left again if the recording fails
        torch.cuda.synchronize(stream.device)
        try:
            # Other threads go on meanwhile: one that makes batches asks the driver for page-locked memory.
            with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                work()
        except RuntimeError as error:
            if _is_of_memory(error) or _is_of_memory(error.__context__):
                raise torch.OutOfMemoryError(str(error)) from error
            raise
    return graph


def _is_of_memory(error: BaseException | None) -> bool:
    """Whether there was too little memory, in whosever words."""
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error)
