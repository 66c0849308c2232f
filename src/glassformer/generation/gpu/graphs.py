"""Kernels that are launched together, again and again: recorded once as a CUDA graph, then replayed."""

from collections.abc import Callable, Hashable

import torch


class Graphs:
    """Recordings by name. On a device without graphs every call runs what it would have recorded."""

    def __init__(self, device: torch.device, shares: bool = False):
        """If it `shares`, all recordings compute in the same memory, and nothing may be left there: results
        are copied to places of their own."""
        self._device, self._shares = device, shares
        self._recorded: dict[Hashable, torch.cuda.CUDAGraph] = {}

    def run(self, name: Hashable, launch: Callable[[], None]) -> None:
        """`launch` starts kernels that read and write the same addresses each time."""
        if self._device.type != "cuda":
            launch()
            return
        with torch.cuda.device(self._device):
            if name in self._recorded:
                self._recorded[name].replay()
                return
            launch()  # compiles what is not compiled yet, which cannot be recorded; this time it counts
            self._recorded[name] = self._record(launch)

    def _record(self, launch: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """Without doing it."""
        torch.cuda.synchronize(self._device)
        graph = torch.cuda.CUDAGraph()
        pool = next((g.pool() for g in self._recorded.values()), None) if self._shares else None
        # Other threads may go on using the GPU meanwhile.
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            launch()
        return graph
