"""Kernels compiled side by side before the first of them is wanted.

A pass that is rehearsed launches no kernel: each is given to a thread, which compiles it (or finds it among
those kept) and loads it. Most of that happens outside of Python's lock. What the pass computes meanwhile is
of no use.
"""

from collections.abc import Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from glassformer.core.cores import cores

THREADS = 8
ALIGNED = 16  # what a compiler asks of addresses and sizes is whether they are multiples of it

_under_way: "Rehearsal | None" = None


class _Place:
    """What a compiler sees of a tensor, which need not stay."""

    def __init__(self, tensor: Tensor):
        self.dtype, self._address = tensor.dtype, tensor.data_ptr() % ALIGNED

    def data_ptr(self) -> int:
        return self._address


class Rehearsal:
    def __init__(self, device: torch.device):
        self.device = device
        self.pool = ThreadPoolExecutor(max(1, min(THREADS, cores())))
        self.compiled: dict[Hashable, Future[None]] = {}

    def add(self, kernel: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Compile a kernel for such arguments, once."""
        places = tuple(_Place(x) if isinstance(x, Tensor) else x for x in args)
        key = kernel, _kind(kernel, places), tuple(sorted(options.items()))
        if key not in self.compiled:
            self.compiled[key] = self.pool.submit(self._compile, kernel, places, options)

    def _compile(self, kernel: Any, places: tuple[Any, ...], options: dict[str, Any]) -> None:
        with torch.cuda.device(self.device):
            made = kernel.warmup(*places, grid=(1,), **options)
            getattr(made, "run", None)  # asked for it, a kernel is loaded


def _kind(kernel: Any, places: tuple[Any, ...]) -> Hashable:
    """What makes a difference to the compiler."""
    kinds = list[Hashable]()
    for param, x in zip(kernel.params, places, strict=False):
        if isinstance(x, _Place):
            kinds.append((x.dtype, x.data_ptr()))
        elif isinstance(x, int) and not param.is_constexpr and not isinstance(x, bool):
            kinds.append("int" if param.do_not_specialize else (x == 1, x % ALIGNED == 0))
        elif isinstance(x, float):
            kinds.append("float")
        else:
            kinds.append(x)
    return tuple(kinds)


@contextmanager
def rehearsed(device: torch.device) -> Iterator[Rehearsal]:
    """Inside, kernels are compiled and not launched; at the end all are there."""
    global _under_way
    _under_way = rehearsal = Rehearsal(device)
    try:
        with rehearsal.pool:
            try:
                yield rehearsal
            finally:
                _under_way = None
        for done in rehearsal.compiled.values():
            done.result()
    finally:
        _under_way = None


def start(kernel: Any, programs: tuple[int, ...], *args: Any, **options: Any) -> None:
    """Launch a kernel, or compile it in a rehearsal."""
    if _under_way is not None:
        _under_way.add(kernel, args, options)
    else:
        kernel[programs](*args, **options)
