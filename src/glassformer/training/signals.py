"""Ctrl-C and its kin: the first asks the loop to save and stop, the second does not ask.

A terminal or pipe that is gone asks too: nobody could see what comes next.

Launchers (make, torchrun) pass a signal on that the terminal has sent to everyone already; what comes right
after the first is taken for its echo.
"""

import os
import signal
import sys
import threading
import time
from types import FrameType, TracebackType

from glassformer.core.terminal import is_one_of_several, lost, speaks

ECHO = 1.0  # seconds
STOPPING = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]


class StopRequest:
    """Inside this context a signal that would end us leaves a note, which the loop reads after each step."""

    def __init__(self) -> None:
        self._signal, self._since = 0, 0.0
        self._before: dict[int, signal.Handlers | int | None] = {}

    @property
    def signal(self) -> int:
        """The one that came, or that a vanished terminal or pipe stands for; 0: none."""
        return self._signal or lost()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._signal:
            if time.monotonic() - self._since > ECHO:
                if is_one_of_several():
                    os._exit(128 + number)  # the others would be waited for
                raise SystemExit(128 + number)
            return
        self._signal, self._since = number, time.monotonic()
        if speaks():
            sys.stderr.write(
                "\nStopping after this step; everything will be saved. Once more to stop at once.\n"
            )

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            for number in STOPPING:
                if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup wants it
                    self._before[number] = signal.signal(number, self._note)  # type: ignore[assignment]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
