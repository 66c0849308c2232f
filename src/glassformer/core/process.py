"""What a process that computes for long sets up once, for all of itself."""

import ctypes

import torch

from glassformer.core.waiting import adapt_waiting


def tune_process() -> None:
    """Settings that hold for the whole process and change no result that matters: for training, for serving.

    Whoever owns the process calls this; opening a run or choosing a device leaves the process as it is.
    """
    _keep_freed_memory()
    adapt_waiting()
    torch.set_flush_denormal(True)  # below 1e-38 is zero: the processor takes a hundred times as long there


def _keep_freed_memory() -> None:
    """Let the C library keep freed memory instead of giving it back and asking anew in every step.

    Activations are freed and allocated again thousands of times; page faults for them took up to a third of
    a step on the CPU. Only glibc knows these two switches; elsewhere nothing happens.
    """
    mmap_threshold, trim_threshold = -3, -1
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(mmap_threshold, 1 << 30)
        libc.mallopt(trim_threshold, 1 << 30)
    except (OSError, AttributeError, TypeError):
        pass
