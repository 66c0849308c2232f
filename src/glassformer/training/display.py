"""What a person sees while a model trains: a live line on a terminal, plain lines in a log."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from glassformer.core.errors import UsageError
from glassformer.core.status import status
from glassformer.core.terminal import printable, speaks
from glassformer.core.wording import in_python

NARROW = 120  # columns below which the bar says less


class Display:
    """What a display is asked to show; this one shows nothing, and the others say only what they change."""

    began: float | None = None  # when the user began to wait, by time.monotonic(); when training is called

    def reading(self, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """Shows how far tokenizing so many bytes has come; gives a function to call with a piece's length."""
        return nullcontext(lambda _: None)

    def phase(self, what: str) -> None:
        """Says what goes on from here until there is something else to show."""

    def start(self, step: int, steps: int) -> None: ...
    def planned(self, steps: int) -> None:
        """There are to be so many steps, other than was said at the start."""

    def step(self, record: dict[str, Any]) -> None: ...
    def evaluated(self, step: int, summary: str, best: bool) -> None: ...
    def sampled(self, step: int, text: str) -> None: ...
    def note(self, text: str) -> None: ...
    def ended(self, summary: str, verdict: str) -> None:
        """A training is over and measured; the command line says so itself."""

    def stop(self) -> None: ...


class Silent(Display):
    """Nothing at all."""


class _Numbers(ProgressColumn):
    def render(self, task: Task) -> Text:
        record = task.fields.get("record")
        return Text(_numbers(record, task.fields.get("brief", False)) if record else "")


class Terminal(Display):
    """Live on a terminal; where standard error is a file or pipe, a line now and then."""

    def __init__(self, console: Console, began: float | None = None):
        self.console, self.began = console, began
        self._bar: Progress | None = None
        self._last_line = 0.0

    @contextmanager
    def reading(self, total: int) -> Iterator[Callable[[int], None]]:
        if not self.console.is_terminal or total < 4_000_000:
            self.phase("Tokenizing")
            yield lambda _: None
            return
        status.end()
        columns = (TextColumn("tokenizing"), BarColumn(24), TextColumn("ETA"), TimeRemainingColumn())
        with Progress(*columns, console=self.console, transient=True) as bar:
            task = bar.add_task("", total=total)
            yield lambda size: bar.advance(task, size)

    def phase(self, what: str) -> None:
        status.begin(what)

    def start(self, step: int, steps: int) -> None:
        status.end()
        self._steps = steps
        if self.console.is_terminal:
            columns = (
                TextColumn("training"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                _Numbers(),
                TextColumn("ETA"),
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns, console=self.console, refresh_per_second=4)
            self._task = self._bar.add_task("", total=steps, completed=step)
            self._bar.start()

    def planned(self, steps: int) -> None:
        self._steps = steps
        if self._bar is not None:
            self._bar.update(self._task, total=steps)

    def step(self, record: dict[str, Any]) -> None:
        if self._bar is not None:
            brief = self.console.width < NARROW
            self._bar.update(self._task, completed=record["step"], record=record, brief=brief)
        elif time.monotonic() - self._last_line > 10:
            left = (self._steps - record["step"]) * record["seconds_per_step"]
            first = not self._last_line  # it has taken what is made once
            self._last_line = time.monotonic()
            eta = "" if first else f"  ETA {_time(left)}"
            self.note(f"step {record['step']}/{self._steps}  {_numbers(record)}{eta}")

    def evaluated(self, step: int, summary: str, best: bool) -> None:
        self.note(f"step {step}  validation: {summary}" + ("  (best)" if best else ""))

    def sampled(self, step: int, text: str) -> None:
        self.note(f"step {step}  sample:")
        shown = printable(text).replace("\n", "\n    ")
        self.console.print(Text(f"    {shown}", style="italic"))

    def note(self, text: str) -> None:
        status.erase()
        self.console.print(Text(printable(text)), soft_wrap=True)

    def stop(self) -> None:
        status.end()
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class InPython(Terminal):
    """The same for whoever called from Python: hints are in the words of Python."""

    def note(self, text: str) -> None:
        super().note(in_python(text))

    def ended(self, summary: str, verdict: str) -> None:
        self.stop()
        self.note(f"Validation: {summary}.")
        if verdict:
            self.note(verdict)


@contextmanager
def closing_display(display: Display) -> Iterator[None]:
    """However a training ends, nothing goes on being said."""
    try:
        yield
    finally:
        display.stop()


def choose_display(display: Display | Literal["auto"] | None, quiet: bool = False) -> Display:
    """What a training called from Python shows: `auto` is progress on a terminal and lines in a notebook, and
    nothing where standard error is a file or a pipe; None or `quiet`, nothing anywhere."""
    if isinstance(display, Display) and not quiet:
        return display
    if quiet or display is None or not speaks():
        return Silent()
    if display != "auto":
        raise UsageError(f'display={display!r}: expected "auto", None for silence, or a Display')
    if _in_notebook():  # as lines: a bar there would need another library
        return InPython(Console(file=sys.stdout, force_jupyter=False, force_terminal=False, width=NARROW))
    return InPython(Console(stderr=True, highlight=False)) if sys.stderr.isatty() else Silent()


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and "IPKernelApp" in shell.config


def _time(seconds: float) -> str:
    minutes = round(seconds / 60)
    return (
        f"{seconds:.0f} s" if minutes < 5 else f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"
    )


def _numbers(record: dict[str, Any], brief: bool = False) -> str:
    bits = f"  {record['bits_per_byte']:.3f} bits/byte" if "bits_per_byte" in record else ""
    if brief:
        return f"loss {record['loss']:.3f}  {record['tokens_per_second']:,.0f} tokens/s"
    return (
        f"loss {record['loss']:.3f}{bits}  lr {record['lr']:.1e}  "
        f"grad {record['grad_norm']:.2f}  {record['tokens_per_second']:,.0f} tokens/s"
    )
