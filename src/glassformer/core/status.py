"""What goes on while there is nothing else to say: on a terminal a line that counts the seconds and vanishes,
elsewhere one plain line when it takes long. Nobody has to wonder whether the program still runs.

    status.begin("Measuring")   from now on this is what goes on
    status.erase()              before anything else is written; the line comes back when that takes long too
    status.end()                nothing goes on that needs saying
"""

import sys
import threading
import time

from glassformer.core.terminal import raw_error, speaks

TICK = 0.5  # seconds between two looks
LONG = 2.0  # seconds after which a log is told what goes on


class Status:
    def __init__(self) -> None:
        self._what: str | None = None
        self._began = self._spoken = 0.0
        self._drawn = self._logged = False
        self._lock, self._thread = threading.Lock(), None

    def begin(self, what: str, in_log: bool = True) -> None:
        """`in_log`: whether it is worth a line where standard error is no terminal."""
        if not speaks():
            return
        with self._lock:
            self._what, self._began, self._spoken = what, time.monotonic(), 0.0
            self._logged = not in_log
            if sys.stderr is not None and sys.stderr.isatty():
                self._draw()
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._tick, daemon=True, name="status")
            self._thread.start()

    def erase(self) -> None:
        with self._lock:
            self._erase()

    def end(self) -> None:
        with self._lock:
            self._what = None
            self._erase()

    def _erase(self) -> None:
        self._spoken = time.monotonic()
        if self._drawn:
            self._drawn = False
            self._write("\r\x1b[K")

    def _draw(self) -> None:
        seconds = time.monotonic() - self._began
        self._drawn = True
        self._write(f"\r\x1b[K{self._what} …" + (f" {seconds:.0f} s" if seconds >= 1 else ""))

    def _write(self, text: str) -> None:
        stream = raw_error()
        stream.write(text)
        stream.flush()

    def _tick(self) -> None:
        while True:
            time.sleep(TICK)
            with self._lock:
                if self._what is None:
                    return
                now = time.monotonic()
                if sys.stderr.isatty():
                    if now - self._spoken >= TICK:
                        self._draw()
                elif not self._logged and now - max(self._began, self._spoken) >= LONG:
                    self._logged = True
                    self._write(f"{self._what} …\n")


status = Status()
