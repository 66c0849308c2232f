"""When a batch does not fit into the memory of a GPU: find one that does, and say it in settings."""

from collections.abc import Callable
from contextlib import suppress

import torch
from torch import nn

Work = Callable[[int], None]  # forward and backward of a micro-batch of so many samples


def micro_batch_that_fits(model: nn.Module, size: int, work: Work, reserve: int = 0) -> int | None:
    """The largest half, quarter, … of `size` samples that fits beside `reserve` bytes still to come."""
    micro = size // 2
    while micro >= 1:
        _forget(model)
        with suppress(torch.OutOfMemoryError):
            device = next(model.parameters()).device
            room = torch.empty(reserve, dtype=torch.uint8, device=device)
            work(micro)
            del room
            _forget(model)
            return micro
        micro //= 2
    _forget(model)
    return None


def advice(batch: int, accumulate: int, micro: int | None, processes: int = 1) -> str:
    """What to say: the batch that was asked for, and the same in parts that fit."""
    request = f"a batch of {batch} samples" + (f" in {accumulate} parts" if accumulate > 1 else "")
    if processes > 1:
        more = f"--set training.accumulate={2 * accumulate}"
        return (
            f"the GPU's memory is too small for {request} over {processes} processes. Try {more}, or "
            "--set training.parallel=fsdp, which divides weights and optimizer among them."
        )
    small = f"the GPU's memory is too small for {request}"
    if micro is None:
        return f"{small}, and for a single sample. Try a smaller model.context or a smaller model."
    parts = next(n for n in range(-(-batch // micro), batch + 1) if batch % n == 0)
    same = f"--set training.accumulate={parts} gives the same updates in parts of {batch // parts}"
    return f"{small}. {micro} at a time fit: {same}."


def _forget(model: nn.Module) -> None:
    model.zero_grad(set_to_none=True)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
