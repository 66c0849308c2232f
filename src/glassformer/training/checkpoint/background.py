"""Writing while training goes on: one thread, one file after the other, in the order they were asked for."""

import queue
import threading
from collections.abc import Callable

Work = Callable[[], object]
WAITING = 2  # copies in memory at most; who brings another one waits


class Saver:
    """Does what it is given, in order. What goes wrong is raised where the next thing is given, or waited."""

    def __init__(self) -> None:
        self._works: queue.Queue[Work | None] = queue.Queue(WAITING)
        self._failed: BaseException | None = None
        self._given_up = False
        self._thread: threading.Thread | None = None

    def give(self, work: Work) -> None:
        self.check()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True, name="saving")
            self._thread.start()
        self._works.put(work)

    def check(self) -> None:
        if self._failed is not None:
            error, self._failed = self._failed, None
            raise error

    def wait(self) -> None:
        """Until everything given has been done."""
        self._works.join()
        self.check()

    def close(self) -> None:
        """The same, and the thread ends."""
        self._works.join()
        if self._thread is not None:
            self._works.put(None)
            self._thread.join()
            self._thread = None
        self.check()

    def _run(self) -> None:
        while (work := self._works.get()) is not None:
            try:
                if not self._given_up:  # after a failure nothing later is written either
                    work()
            except BaseException as error:
                self._failed, self._given_up = error, True
            finally:
                self._works.task_done()
        self._works.task_done()
