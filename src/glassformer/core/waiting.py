"""How the threads of a computation wait for each other: awake on a quiet machine, asleep on a busy one.

The threads of an operator meet many thousand times a second. One that waits awake goes on at once, but takes
a core from whoever works there, which may be the very thread it waits for: beside one busy program, two such
threads on two cores lose nine tenths of their speed. Asleep they lose a fifth when alone and keep most of the
rest. Neither is right for both, so a watcher looks twice a second at how long this process's threads stood in
line for a core, and changes over.

GNU's OpenMP, which PyTorch brings along on Linux, decides it by counting: while there are more threads in
teams than cores, waiting is short. So a team of sleepers that never work is all it takes, and letting them go
takes it back. The number of threads that compute stays, and with it every bit of every result.

Where there is no such library, no such count in /proc, one thread, or the user has said how to wait
(OMP_WAIT_POLICY, GOMP_SPINCOUNT), everything stays as it is.
"""

import math
import os
import sys
import threading
import time
from pathlib import Path

import torch

SAID_BY_USER = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
TASKS = Path("/proc/self/task")
SECONDS = 0.5  # between two looks
BUSY, QUIET = 0.2, 0.1  # seconds in line per second, of all threads together
QUIET_LOOKS = 4  # in a row, before threads wait awake again

_watchers: dict[int, "Watcher"] = {}  # one for each process: threads do not survive a fork


def adapt_waiting() -> None:
    """Have this process's threads wait as suits the machine, from now on and as its load changes."""
    pid = os.getpid()
    if pid not in _watchers and can_adapt():
        _watchers[pid] = Watcher()
        threading.Thread(target=_watchers[pid].run, daemon=True, name="waiting").start()


def can_adapt() -> bool:
    told = any(name in os.environ for name in SAID_BY_USER)
    return (
        sys.platform == "linux"
        and not told
        and torch.get_num_threads() > 1
        and has_gnu_openmp()
        and seconds_in_line() is not None
    )


def has_gnu_openmp() -> bool:
    """Whether GNU's OpenMP is in this process, and no other."""
    try:
        loaded = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return "libgomp" in loaded and "libiomp" not in loaded


def seconds_in_line() -> dict[str, float] | None:
    """How long each thread of this process has been ready to run without a core, so far; None: not known."""
    waited: dict[str, float] = {}
    try:
        for task in (path.name for path in TASKS.iterdir()):
            try:
                text = (TASKS / task / "schedstat").read_text()
            except (FileNotFoundError, ProcessLookupError):  # a thread that has just ended
                continue
            waited[task] = int(text.split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
    return waited


class Load:
    """Whether the machine is busy, from how much this process stood in line in each look."""

    def __init__(self) -> None:
        self.busy = False
        self._quiet = 0

    def look(self, in_line: float) -> bool:
        """Take one more look; at once for the worse, after several for the better."""
        self._quiet = self._quiet + 1 if in_line < QUIET else 0
        if in_line >= BUSY:
            self.busy = True
        elif self._quiet >= QUIET_LOOKS:
            self.busy = False
        return self.busy


def teams_needed(threads: int, cores: int) -> int:
    """Teams of so many threads that have to sleep beside the one that computes.

    The library counts one for the process and, for each team, its threads without the one that leads it; when
    that is more than there are cores, waiting is short.
    """
    return max(1, math.ceil(cores / (threads - 1)) - 1)


class Sleepers:
    """Teams of threads that do nothing, so that there are more threads than cores and waiting is short."""

    def __init__(self) -> None:
        self._let_go: threading.Event | None = None
        self._threads: list[threading.Thread] = []

    def hold(self) -> None:
        if self._let_go is not None:
            return
        self._let_go = threading.Event()
        for _ in range(teams_needed(torch.get_num_threads(), len(os.sched_getaffinity(0)))):
            ready = threading.Event()
            sleeper = threading.Thread(
                target=_sleep, args=(ready, self._let_go), daemon=True, name="sleepers"
            )
            sleeper.start()
            ready.wait()
            self._threads.append(sleeper)

    def release(self) -> None:
        if self._let_go is not None:
            self._let_go.set()
            for thread in self._threads:
                thread.join()
            self._let_go, self._threads = None, []


def _sleep(ready: threading.Event, let_go: threading.Event) -> None:
    torch.zeros(1 << 17).add_(1)  # large enough that the threads of a team are made for it
    ready.set()
    let_go.wait()


class Watcher:
    def __init__(self) -> None:
        self.load, self.sleepers = Load(), Sleepers()

    def run(self) -> None:
        before, began = seconds_in_line(), time.monotonic()
        while before is not None:
            time.sleep(SECONDS)
            after, now = seconds_in_line(), time.monotonic()
            if after is None:
                break
            in_line = sum(seconds - before[task] for task, seconds in after.items() if task in before)
            self.look(in_line / (now - began))
            before, began = after, now
        self.sleepers.release()

    def look(self, in_line: float) -> None:
        self.sleepers.hold() if self.load.look(in_line) else self.sleepers.release()
