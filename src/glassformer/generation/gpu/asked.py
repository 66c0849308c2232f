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
COPIES = 4  # that may be under way before the host waits


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
        # From other memory than this the driver would wait for all that was launched before.
        gpu = device.type == "cuda"
        self._pinned = [torch.zeros(end, dtype=torch.uint8, pin_memory=True) for _ in range(COPIES * gpu)]
        self._sent = [torch.cuda.Event() for _ in self._pinned]
        self._copies = 0
        self.host: dict[str, np.ndarray] = {}
        self.device: dict[str, Tensor] = {}
        for name, (dtype, shape) in shapes.items():
            part = slice(starts[name], starts[name] + sizes[name])
            self.host[name] = self._from[part].view(dtype).view(*shape).numpy()
            self.device[name] = self._to[part].view(dtype).view(*shape)

    def bring(self) -> None:
        """Copy all to the device, after what was launched before. The host may write again at once."""
        if not self._pinned:
            self._to.copy_(self._from)
            return
        which = self._copies = (self._copies + 1) % COPIES
        self._sent[which].synchronize()
        self._pinned[which].copy_(self._from)
        self._to.copy_(self._pinned[which], non_blocking=True)
        self._sent[which].record(torch.cuda.current_stream(self._to.device))
