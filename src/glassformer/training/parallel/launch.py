"""Several processes on this machine, without another tool: start them, pass signals on, end them together."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from glassformer.core.errors import Interrupted, RunError
from glassformer.training.parallel.world import AGAIN, LAUNCHED, serve_store
from glassformer.training.signals import STOPPING

ENDING = 20.0  # seconds that the others have when one has ended badly, before they are ended
KILLING = 10.0  # and then, before they are killed


def launch(arguments: list[str], count: int, quiet: bool = False) -> None:
    """Run `glassformer ARGUMENTS` in `count` processes that know of each other; return when all are done.

    The common store is kept here, so that it outlives any of them. What they have to say goes to standard
    error; `quiet` keeps it back, and it is in the message when something fails.
    """
    store, port = serve_store()
    threads = str(max(1, (os.cpu_count() or 1) // count))
    common = {
        "OMP_NUM_THREADS": threads,
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # what a lost connection means is said by the watch
        **os.environ,
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # as torchrun says that the store is not rank 0's to keep
        LAUNCHED: "1",
    }
    with tempfile.TemporaryFile() as output:
        children = [
            subprocess.Popen(
                [sys.executable, "-m", "glassformer", *arguments],
                env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdin=None if rank == 0 else subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=output if quiet else None,
            )
            for rank in range(count)
        ]
        with _forwarding_signals(children) as signals:
            first = _wait(children)
        del store
        output.seek(0)
        text = output.read().decode(errors="replace").strip() if quiet else None
        _raise_failure(first, children, text, signals[0] if signals else None)


def _wait(children: list[subprocess.Popen[Any]]) -> int | None:
    """Until all have ended; gives the rank that was the first to end badly."""
    first, since, terminated = None, 0.0, False
    while None in [child.poll() for child in children]:
        time.sleep(0.05)
        if first is None:
            first, since = _failed(children), time.monotonic()
        elif time.monotonic() - since > ENDING + terminated * KILLING:
            for child in children:
                if child.poll() is None:
                    child.kill() if terminated else child.terminate()
            terminated = True
    return _failed(children) if first is None else first


def _failed(children: list[subprocess.Popen[Any]]) -> int | None:
    """One that ended badly; one that was killed rather than one that went because of it."""
    bad = [rank for rank, child in enumerate(children) if child.returncode]
    return min(bad, key=lambda rank: (children[rank].returncode > 0, rank), default=None)


def _raise_failure(
    first: int | None, children: list[subprocess.Popen[Any]], output: str | None, stop: int | None
) -> None:
    if first is None:
        return
    code = children[first].returncode
    if stop is not None and code == -stop:
        raise Interrupted("Stopped before training began; nothing was left half done.", stop)
    if code < 0:
        name = signal.Signals(-code).name
        raise RunError(f"rank {first} of {len(children)} was killed by {name}, so all ended. {AGAIN}")
    if output is None:  # the process has said what there is to say
        raise SystemExit(code)
    message = output.rpartition("Error: ")[2] or f"rank {first} ended with code {code}"
    raise RunError(message)


@contextmanager
def _forwarding_signals(children: list[subprocess.Popen[Any]]) -> Iterator[list[int]]:
    """Gives the signals that came."""
    signals: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        for child in children:
            if child.poll() is None:
                child.send_signal(number)

    before: dict[int, Any] = {}
    try:
        for number in (n for n in STOPPING if signal.getsignal(n) is not signal.SIG_IGN):
            before[number] = signal.signal(number, forward)
    except ValueError:  # not the main thread: signals are not ours to take
        pass
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
