"""The threads that walk through a model together.

The thread that asks for a walk takes part in it. The others wait for the next one: awake for a moment, since
the next token is mostly asked for at once, and then asleep, so that nobody else's work suffers. One that is
still asleep, or without a core, is not waited for: the others do its part (kernels/share.py).

On a busy machine a helper may lose its core in the middle of a part, and then it is waited for, longer than
the whole walk may take. When that happens again and again, walks go on without helpers for a while. No result
depends on how many there are.
"""

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence

import numpy as np

from glassformer.generation.fast.kernels.plan import Plan
from glassformer.generation.fast.kernels.share import LOST, MINE, STEP
from glassformer.generation.fast.kernels.walk import walk

AWAKE = 20_000  # looks for the next walk before a thread sleeps: half a millisecond or so
LINE = 64  # bytes of memory that go together
AGAIN = 0.05  # seconds within which a second long wait says that the machine is busy
ALONE, LONGEST_ALONE = 0.25, 4.0  # seconds without helpers, at first, and when it does not get better


def aligned(count: int) -> np.ndarray:
    """So many zeros (int64) that begin with a line of memory."""
    block = np.zeros(count + LINE // 8, np.int64)
    start = -block.ctypes.data % LINE // 8
    return block[start : start + count]


class Team:
    """Threads for the walks of one plan."""

    def __init__(
        self, plan: np.ndarray, layers: np.ndarray, reals: np.ndarray, threads: int, memory: Sequence[object]
    ):
        """`memory` is what the plan's addresses lie in: a helper that is late may look at it when the team is
        gone already, so each holds on to it."""
        self._plan, self._threads = plan, threads
        self._arrays = plan, layers, reals
        self._board = aligned(STEP * (MINE + threads))
        plan[Plan.TEAM], plan[Plan.BOARD] = threads, self._board.ctypes.data
        self._stretches = 0
        self._helpers = [Helper(me, self._arrays, [self._board, *memory]) for me in range(1, threads)]
        for helper in self._helpers:
            weakref.finalize(self, helper.end)
        self._waits = Waits()

    def walk(self) -> None:
        """What the plan says now."""
        if not self._helpers:
            self._stretches = walk(*self._arrays, 0, self._stretches, 0)
            return
        together = not self._waits.is_alone
        self._plan[Plan.TEAM] = self._threads if together else 1
        if together:
            for helper in self._helpers:
                if helper.asleep or helper.process != os.getpid():  # threads do not survive a fork
                    helper.wake()
        self._stretches = walk(*self._arrays, 0, self._stretches, 0)
        self._waits.count(int(self._board[STEP * LOST]))


class Waits:
    """Whether helpers are more trouble than help just now, by how often one was waited for long."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._waits, self._last = 0, float("-inf")
        self._alone, self._until = ALONE, float("-inf")

    @property
    def is_alone(self) -> bool:
        return self._now() < self._until

    def count(self, waits: int) -> None:
        """So many long waits up to now."""
        if waits == self._waits:
            return
        now, several = self._now(), waits > self._waits + 1
        if several or now - self._last < AGAIN:
            soon = now - self._until < 2 * self._alone  # after the last time alone it was no better
            self._alone = min(2 * self._alone, LONGEST_ALONE) if soon else ALONE
            self._until = now + self._alone
        self._waits, self._last = waits, now


class Helper:
    """One thread beside the one that asks. It knows nothing of the team, so that a team that nobody has any
    more ends its helpers."""

    def __init__(self, me: int, arrays: tuple[np.ndarray, np.ndarray, np.ndarray], memory: list[object]):
        self.asleep = True
        self._ended = False
        self._bell = threading.Semaphore(0)
        self._walk: Callable[[int], int] = lambda after: walk(*arrays, me, after, AWAKE)
        self._memory = memory
        self._thread: threading.Thread | None = None
        self.process = 0

    def wake(self) -> None:
        self.asleep = False
        if self._thread is None or self.process != os.getpid():
            self._thread = threading.Thread(target=self._run, daemon=True, name="decoding")
            self.process, self._bell = os.getpid(), threading.Semaphore(0)
            self._thread.start()
        else:
            self._bell.release()

    def end(self) -> None:
        """Waits for it: a thread that is in compiled code when Python ends takes the process with it."""
        self._ended = True
        self._bell.release()
        thread = self._thread
        if thread is not None and self.process == os.getpid() and thread is not threading.current_thread():
            thread.join(timeout=10)

    def _run(self) -> None:
        after = 0
        while not self._ended:
            after = self._walk(after)
            self.asleep = True
            self._bell.acquire()
