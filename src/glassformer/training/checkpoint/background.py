"""Writing while training goes on: one thread, one file after the other, in the order they were asked for."""

import queue
import threading
from collections.abc import Callable

Work = Callable[[], object]
WAITING = 2  # copies in memory at most; who brings another one waits


class Saver:
    """Does what is submitted, in order. What goes wrong is raised at the next submission, or by waiting."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Work | None] = queue.Queue(WAITING)
        self._error: BaseException | None = None
        self._aborted = False
        self._thread: threading.Thread | None = None

    def submit(self, work: Work) -> None:
        self.check()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True, name="saving")
            self._thread.start()
        self._queue.put(work)

    def check(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def wait(self) -> None:
        """Until everything submitted has been done."""
        self._queue.join()
        self.check()

    def close(self) -> None:
        """The same, and the thread ends."""
        self._queue.join()
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None
        self.check()

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                if not self._aborted:  # after a failure nothing later is written either
                    work()
            except BaseException as error:
                self._error, self._aborted = error, True
            finally:
                self._queue.task_done()
        self._queue.task_done()
