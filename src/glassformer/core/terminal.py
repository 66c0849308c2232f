"""The terminal: what is shown there cannot act on it, and it may be closed or go away.

`guard_streams` is called once by the command line. From then on whatever is written to standard error, and to
standard output where that is a terminal, has its control characters escaped; a standard error that has gone
away is noted, for a training to save and stop (`lost`), and is nobody's exception.
"""

import errno
import os
import re
import signal
import sys
from contextlib import suppress
from typing import Any, BinaryIO, TextIO

from glassformer.core.errors import UsageError

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]|\r(?!\n)")
_lost: list[int] = []  # the signals that what went away stands for


def printable(text: str) -> str:
    """Text that cannot act on a terminal: control characters and halves of characters as \\x1b, \\udcff."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def caption(text: str) -> str:
    """The same for a figure, where a $ would begin a formula."""
    return printable(text).replace("$", r"\$")


def lost() -> int:
    """The signal that a vanished terminal (SIGHUP) or pipe (SIGPIPE) stands for; 0: all is there."""
    return _lost[0] if _lost else 0


class Guard:
    """A text stream: what is written through it is escaped; `forgiving`: and a failure only noted."""

    def __init__(self, stream: TextIO, escapes: bool = True, forgiving: bool = False):
        self.stream, self.escapes, self.forgiving = stream, escapes, forgiving

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        self._try(self.stream.write, printable(text) if self.escapes else text)
        return len(text)

    def flush(self) -> None:
        self._try(self.stream.flush)

    def _try(self, action: Any, *arguments: Any) -> None:
        try:
            action(*arguments)
        except OSError as error:
            if not self.forgiving or error.errno not in (errno.EPIPE, errno.EIO):
                raise
            _lost.append(int(signal.SIGPIPE if error.errno == errno.EPIPE else signal.SIGHUP))
            drop(self.stream)


def drop(stream: TextIO) -> None:
    """Let all that is still to come, and what Python tries again when it ends, go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with suppress(OSError, ValueError):
        os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def guard_streams() -> None:
    """Stand between this process and its standard streams; those that were closed lead nowhere."""
    for number in range(3):  # else the next file that is opened would be taken for one of them
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name) or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
        error = name == "stderr"
        setattr(sys, name, Guard(stream, escapes=error or stream.isatty(), forgiving=error))


def raw_error() -> Any:
    """Standard error for a program that draws on it and escapes what it is given itself."""
    stream: Any = sys.stderr
    return Guard(stream.stream, escapes=False, forgiving=True) if isinstance(stream, Guard) else stream


def speaks() -> bool:
    """Whether this process is the one of several that talks to the user."""
    return not is_one_of_several() or os.environ.get("RANK", "0") == "0"


def is_one_of_several() -> bool:
    return os.environ.get("WORLD_SIZE", "1") not in ("", "0", "1")


def standard_input() -> BinaryIO:
    if sys.stdin is None or sys.stdin.closed:
        raise UsageError("standard input is closed: there is nothing to read. Name a file, or give the text.")
    return sys.stdin.buffer


def without_last_newline(text: str) -> str:
    """What was typed or piped, without the line end that a shell or an editor puts after it."""
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


def read_standard_input() -> str:
    """All of it, as text."""
    try:
        return standard_input().read().decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"standard input is not UTF-8 text (byte {error.start + 1}).") from None
