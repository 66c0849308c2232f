"""The thread for what else is asked of a run: looks, labels, translations, embeddings, one after the other.

Texts go on meanwhile, on the thread of their own (writer.py): both only read the model's weights. A job may
be done in pieces; when its client has gone, the rest of the pieces is left out.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from glassformer.serving.errors import ApiError

T = TypeVar("T")
R = TypeVar("R")


class Jobs:
    def __init__(self, name: str, most: int):
        self.name, self.most = name, most
        self._waiting: deque[_Job | None] = deque()  # None: the end
        self._some = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=f"jobs {name}", daemon=True)
        self._thread.start()

    async def do(self, work: Callable[[T], R], pieces: Sequence[T]) -> list[R]:
        """What `work` makes of each piece, on the thread; cancelled, it ends with the piece it is at."""
        if len(self._waiting) >= self.most:
            raise ApiError(
                429, f"{len(self._waiting)} requests to {self.name} wait already: try again", retry=1
            )
        job = _Job(work, list(pieces), asyncio.get_running_loop())
        self._waiting.append(job)
        self._some.release()
        try:
            return await job.future
        finally:
            job.cancelled = True

    async def one(self, work: Callable[[], R]) -> R:
        """A job of one piece."""
        return (await self.do(lambda _: work(), [None]))[0]

    def stop(self) -> None:
        self._waiting.append(None)
        self._some.release()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            self._some.acquire()
            job = self._waiting.popleft()
            if job is None:
                return
            job.run()


class _Job:
    def __init__(self, work: Callable[[Any], Any], pieces: list[Any], loop: asyncio.AbstractEventLoop):
        self.work, self.pieces, self.loop = work, pieces, loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.cancelled = False

    def run(self) -> None:
        done: list[Any] = []
        try:
            for piece in self.pieces:
                if self.cancelled:
                    return
                done.append(self.work(piece))
        except Exception as error:
            self._tell(lambda error=error: self.future.set_exception(error))
            return
        self._tell(lambda: self.future.set_result(done))

    def _tell(self, tell: Callable[[], None]) -> None:
        try:
            self.loop.call_soon_threadsafe(lambda: None if self.future.done() else tell())
        except RuntimeError:  # the loop has ended before the thread
            self.cancelled = True
