"""What a step is asked, in tensors at fixed addresses: a graph reads them wherever it was made.

All of them lie in one block, once on the host and once on the device, so that one copy brings them over.

Letters: R rows.
"""

from collections.abc import Sequence
from math import prod

import numpy as np
import torch
from torch import Tensor

LINE = 64  # bytes: where a tensor begins is a multiple of it


class Asked:
    """Named tensors: `host[name]` is written to, `device[name]` is what kernels read after `bring`."""

    def __init__(self, device: torch.device, shapes: dict[str, tuple[torch.dtype, Sequence[int]]]):
        sizes = {name: prod(shape) * dtype.itemsize for name, (dtype, shape) in shapes.items()}
        starts, end = dict[str, int](), 0
        for name, size in sizes.items():
            starts[name] = end
            end += size + -size % LINE
        self._from = torch.zeros(end, dtype=torch.uint8)
        self._to = torch.zeros(end, dtype=torch.uint8, device=device)
        self.host: dict[str, np.ndarray] = {}
        self.device: dict[str, Tensor] = {}
        for name, (dtype, shape) in shapes.items():
            part = slice(starts[name], starts[name] + sizes[name])
            self.host[name] = self._from[part].view(dtype).view(*shape).numpy()
            self.device[name] = self._to[part].view(dtype).view(*shape)

    def bring(self) -> None:
        """Copy all to the device. The host may write again at once: its memory is not pinned, so the driver
        has taken a copy of it by the time this returns."""
        self._to.copy_(self._from, non_blocking=True)
