"""How the command line speaks: results to standard output, everything else to standard error."""

import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from glassformer.core.errors import GlassformerError
from glassformer.core.status import status
from glassformer.core.strict_json import dump_json
from glassformer.core.terminal import drop, guard_streams, raw_error, read_standard_input
from glassformer.core.wording import command_line_speaks

F = TypeVar("F", bound=Callable[..., Any])
STOPPED = "\nStopped; nothing was left half done."


def phase(what: str) -> None:
    """Say what goes on from here until there is something to say or to read."""
    status.begin(what)


def clear_phase() -> None:
    """Before a person is asked for something."""
    status.end()


def error_console() -> Any:
    from rich.console import Console

    status.end()
    return Console(file=raw_error(), highlight=False)


def note(text: str) -> None:
    status.erase()
    sys.stderr.write(f"{text}\n")


@contextmanager
def working(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal, for what takes a while; gives a function to call with each advance."""
    console = error_console()
    if not console.is_terminal or total < 50:
        phase(what.capitalize())
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(what),
        BarColumn(24),
        MofNCompleteColumn(),
        TextColumn("ETA"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda n: bar.advance(task, n)


def read_input() -> str:
    """All of standard input, which a person may be about to type."""
    status.end()
    text = read_standard_input()
    status.begin("Loading", in_log=False)
    return text


def put(text: str, end: str = "\n") -> None:
    """Text to standard output, whatever it holds: what the terminal cannot show is replaced."""
    status.end()
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write((text + end).encode(encoding, errors="replace").decode(encoding))
    sys.stdout.flush()


def put_json(value: Any) -> None:
    put(dump_json(value))


def _out_of_memory(error: Exception) -> bool:
    """Whether the machine or its GPU had no room: PyTorch says it in several ways."""
    said = str(error).lower()
    phrases = (
        "out of memory",
        "can't allocate memory",
        "not enough memory",
        "storage size calculation overflowed",
    )
    return isinstance(error, MemoryError) or any(phrase in said for phrase in phrases)


def run_app(app: Callable[..., Any]) -> None:
    """The whole program, from its first streams and signals to its exit code."""
    guard_streams()
    interrupted = _hear_interrupts()
    try:
        with command_line_speaks():
            sys.exit(_run(app))
    except OSError as error:
        drop(sys.stdout)
        note(f"Error: {error}")
        sys.exit(1)
    except BaseException as error:
        # A library that is interrupted while it loads may make another error of it.
        ended = isinstance(error, SystemExit) and not (interrupted and error.code == 1)
        if ended or not (interrupted or isinstance(error, KeyboardInterrupt)):
            raise
        note(STOPPED)
        sys.exit(130)


def _run(app: Callable[..., Any]) -> int:
    """Its exit code; a wrong usage is explained, and with it what was probably meant."""
    import typer

    wrong_usage: Any = typer.BadParameter.__mro__[1]  # typer does not name it, and click may be its own copy
    try:
        code = app(standalone_mode=False)
    except wrong_usage as error:
        from glassformer.cli.hints import hint

        error.show()
        if more := hint(error):
            note(more)
        return 2
    return code if isinstance(code, int) else 0


def _hear_interrupts() -> list[int]:
    """Have Ctrl-C raise, unless whoever started this process wants it ignored; gives those that came."""
    heard: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        if _is_importing(frame):  # libraries that are interrupted while they load may swallow it
            note(STOPPED)
            os._exit(128 + number)
        raise KeyboardInterrupt

    main_thread = threading.current_thread() is threading.main_thread()
    if main_thread and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupt)
    return heard


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None and "importlib._bootstrap" not in frame.f_code.co_filename:
        frame = frame.f_back
    return frame is not None


def command(function: F) -> F:
    """A command whose user errors are one clear message and an exit code, never a traceback."""
    import typer

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        status.begin("Loading", in_log=False)
        try:
            with command_line_speaks():
                return function(*args, **kwargs)
        except GlassformerError as error:
            sys.stdout.flush()
            with command_line_speaks():
                note(f"{'' if error.exit_code >= 128 else 'Error: '}{error}")
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            note(STOPPED)
            raise typer.Exit(130) from None
        except (RuntimeError, MemoryError) as error:
            if not _out_of_memory(error):
                raise
            note(
                "Error: there is not enough memory for this. Try a smaller training.batch (or the same with "
                "a larger training.accumulate), a smaller model.context, or a smaller model."
            )
            raise typer.Exit(1) from None
        except BrokenPipeError:  # the reader of our output has gone
            drop(sys.stdout)
            raise typer.Exit(0) from None
        except OSError as error:
            drop(sys.stdout)
            note(f"Error: {error}")
            raise typer.Exit(1) from None
        finally:
            status.end()

    return wrapped  # type: ignore[return-value]
