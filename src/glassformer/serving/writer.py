"""The thread that writes a run's texts: it alone turns the engine, as long as there is something to write.

What it has to tell goes to the event loop once a turn, for all texts together. A fault of the engine itself
ends the texts that are there, each with an error, and a new engine takes over.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Protocol

from glassformer.core.errors import GlassformerError
from glassformer.generation.engine import Engine
from glassformer.serving.counts import Counts
from glassformer.serving.errors import ApiError

IDLE = 0.25  # seconds between two looks when nothing is to be done
LONGEST_RETRY = 30


class Listener(Protocol):
    """Who is told, on the event loop, that something happened."""

    def wake(self) -> None: ...


class Writer:
    def __init__(
        self,
        name: str,
        engine: Engine,
        make_engine: Callable[[], Engine],
        queue: int,
        counts: Counts,
        log: Callable[[str], None],
    ):
        """`make_engine` makes another one, should this one fail."""
        self.name, self.queue, self.counts, self.log = name, queue, counts, log
        self.engine, self._make_engine = engine, make_engine
        self._loop = asyncio.get_running_loop()
        self._news: dict[Listener, None] = {}  # of this turn; the engine's thread alone touches it
        self._stopping: Exception | None = None
        self._seconds = 0.05  # that a text takes, lately
        self._thread = threading.Thread(target=self._run, name=f"writer {name}", daemon=True)
        self._thread.start()

    def reserve(self, texts: int) -> None:
        """Refuse texts for which there is neither room nor a place in the queue."""
        if self._stopping is not None:
            raise ApiError(503, "the server is stopping: ask another one", retry=5)
        ahead = len(self.engine)
        if ahead + texts > self.engine.rows + self.queue:
            wait = self._seconds * (ahead + texts - self.engine.rows) / self.engine.rows
            raise ApiError(
                429,
                f"{ahead} texts are written or wait already, and {self.engine.rows + self.queue} may: try "
                "again, or ask for fewer",
                code="queue_full",
                retry=max(1, min(LONGEST_RETRY, round(wait))),
            )

    def check_writes(self, engine: Engine) -> None:
        """Refuse what was given to an engine that has ended meanwhile: nobody will write it."""
        if self._stopping is not None or engine is not self.engine:
            raise ApiError(503, "the model stopped writing just now: try again", retry=1)

    def tell(self, listener: Listener) -> None:
        """Have somebody woken after this turn; on the engine's thread."""
        self._news[listener] = None

    def took(self, seconds: float) -> None:
        """A text is done; on the engine's thread."""
        self._seconds += 0.1 * (seconds - self._seconds)

    def stop(self, reason: str) -> None:
        """End every text with an error, and the thread; from any thread."""
        if self._stopping is None:
            self._stopping = GlassformerError(reason)

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        while self._stopping is None:
            began = time.perf_counter()
            try:
                busy = self.engine.turn()
            except Exception as error:
                self._begin_anew(error)
                busy = True
            if busy:
                self.counts.step.labels(self.name).observe(time.perf_counter() - began)
            self._pass_on()
            if not busy:
                self.engine.wait(IDLE)
        self.engine.end_all(self._stopping)
        self._pass_on()

    def _begin_anew(self, error: Exception) -> None:
        self.log(f"The engine of {self.name} failed ({type(error).__name__}); a new one takes over.")
        failed, self.engine = self.engine, self._make_engine()
        failed.end_all(error)

    def _pass_on(self) -> None:
        self.counts.running.labels(self.name).set(len(self.engine.running))
        self.counts.waiting.labels(self.name).set(len(self.engine) - len(self.engine.running))
        if not self._news:
            return
        listeners, self._news = list(self._news), {}
        try:
            self._loop.call_soon_threadsafe(_wake, listeners)
        except RuntimeError:  # the loop has ended before the thread
            self._stopping = self._stopping or GlassformerError("the server has stopped")


def _wake(listeners: list[Listener]) -> None:
    for listener in listeners:
        listener.wake()
