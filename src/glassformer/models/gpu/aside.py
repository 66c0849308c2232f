"""Gradients of weights and norms on a stream beside: nothing of the pass waits for them.

    main    … ──► dy of a layer ──► dx = dy W ──► dy of the layer below ──► …            ──► join
    beside              └────────► dW += dyᵀ x ──────┘ (a few may be under way)

What such a product reads is held until the main stream has waited for it: memory is given to somebody else in
the order of the main stream alone. The sums are those of one stream, in the same order, so are the bits.
"""

from collections import deque
from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import Variable

MOST = 3  # products and sums that are under way


class Aside:
    def __init__(self, device: torch.device):
        self.stream = torch.cuda.Stream(device)
        self._held: deque[tuple[torch.cuda.Event, tuple[Tensor, ...]]] = deque()
        self._joins = False  # at the end of the backward pass that is under way

    def begin(self) -> None:
        """A new pass; of one that broke off nothing is left."""
        while self._held:
            self._let_go()
        self._joins = False

    def run(self, work: Callable[[], None], *read: Tensor) -> None:
        """Do what reads these tensors, beside the backward pass, before that has ended."""
        if not self._joins:
            self._joins = True
            Variable._execution_engine.queue_callback(self.begin)
        self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
        with torch.cuda.stream(self.stream):
            work()
            done = torch.cuda.Event()
            done.record(self.stream)
        self._held.append((done, read))
        if len(self._held) > MOST:
            self._let_go()

    def _let_go(self) -> None:
        done, _ = self._held.popleft()
        torch.cuda.current_stream(self.stream.device).wait_event(done)
