"""Ctrl-C and its kin: the first asks the loop to save and stop, the second does not ask.

Launchers (make, torchrun) pass a signal on that the terminal has sent to everyone already; what comes right
after the first is taken for its echo.
"""

import os
import signal
import sys
import threading
import time
from types import FrameType, TracebackType

ECHO = 1.0  # seconds


def speaks() -> bool:
    """Whether this process is the one of several that talks to the user."""
    return os.environ.get("RANK", "0") == "0"


class StopRequest:
    """Inside this context SIGINT and SIGTERM only leave a note, which the loop reads after each step."""

    def __init__(self) -> None:
        self.signal, self._since = 0, 0.0
        self._before: dict[int, signal.Handlers | int | None] = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            if time.monotonic() - self._since > ECHO:
                if int(os.environ.get("WORLD_SIZE", "1")) > 1:
                    os._exit(128 + number)  # the others would be waited for
                raise SystemExit(128 + number)
            return
        self.signal, self._since = number, time.monotonic()
        if speaks():
            sys.stderr.write(
                "\nStopping after this step; everything will be saved. Once more to stop at once.\n"
            )

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)  # type: ignore[assignment]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
