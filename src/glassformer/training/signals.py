"""Ctrl-C and its kin: the first asks the loop to save and stop, the second does not ask."""

import signal
import sys
import threading
from types import FrameType, TracebackType


class StopRequest:
    """Inside this context SIGINT and SIGTERM only leave a note, which the loop reads after each step."""

    def __init__(self) -> None:
        self.signal = 0
        self._before: dict[int, signal.Handlers | int | None] = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            raise SystemExit(128 + number)
        self.signal = number
        sys.stderr.write("\nStopping after this step; everything will be saved. Once more to stop at once.\n")

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
