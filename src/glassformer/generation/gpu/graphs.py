"""Kernels that are launched together, again and again: recorded once as a CUDA graph, then replayed."""

from collections.abc import Callable, Hashable

import torch

from glassformer.core.recording import own_stream, record

LEAST_REACH = 256  # positions that attention looks at; further ones are four times as many


def wide_reach(reach: int, context: int) -> int:
    """At least so many positions: one of a few numbers, as each has graphs of its own."""
    wide = LEAST_REACH
    while wide < reach:
        wide *= 4
    return min(wide, context)


class Graphs:
    """Recordings by name. On a device without graphs every call runs what it would have recorded."""

    def __init__(self, device: torch.device, shares: bool = False):
        """If it `shares`, all recordings compute in the same memory, and nothing may be left there: results
        are copied to places of their own."""
        self._device, self._shares = device, shares
        self._stream = own_stream(self, device) if device.type == "cuda" else None
        self._recorded: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self._too_large: set[Hashable] = set()  # what there was no memory to record

    def run(self, name: Hashable, launch: Callable[[], None]) -> None:
        """`launch` starts kernels that read and write the same addresses each time."""
        if self._stream is None or name in self._too_large:
            launch()
            return
        with torch.cuda.device(self._device):
            if name in self._recorded:
                self._recorded[name].replay()
                return
            launch()  # compiles what is not compiled yet, which cannot be recorded; this time it counts
            beside = next(iter(self._recorded.values()), None) if self._shares else None
            try:
                self._recorded[name] = record(launch, self._stream, beside)
            except torch.OutOfMemoryError:
                self._too_large.add(name)
                self._recorded.clear()
