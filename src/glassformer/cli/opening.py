"""Runs, opened by commands: the process is theirs, so it is set up for computing first."""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glassformer.cli import console
from glassformer.cli.hints import swapped
from glassformer.core.errors import GlassformerError
from glassformer.core.wording import command_line_speaks
from glassformer.runs.folder import refuse_no_run, refuse_other_task

if TYPE_CHECKING:  # loaded when a command runs, so that --help is instant
    from glassformer.runs.run import Run


def checked_run(path: str | None) -> str | None:
    """A RUN as it was typed, refused before anything is loaded if there is none."""
    try:
        if path is not None:
            refuse_no_run(Path(path))
    except GlassformerError as error:
        with command_line_speaks():
            console.note(f"Error: {swapped(str(path)) or error}")
        raise typer.Exit(error.exit_code) from None
    return path


RunPath = Annotated[
    str, typer.Argument(metavar="RUN", help="A run directory.", show_default=False, callback=checked_run)
]

SHOWN = 12  # characters that a warning names


def check_task_of(path: str, fitting: Collection[str], wanted: str) -> None:
    """Refuse a run that learned another task, from its settings alone."""
    from glassformer.config.saved import load_config

    refuse_other_task(Path(path), load_config(Path(path) / "config.yaml").task, fitting, wanted)


def open_run(path: str) -> "Run":
    from glassformer.core.process import tune_process
    from glassformer.runs.run import load

    tune_process()
    run = load(path)
    if not run.is_sealed:
        console.note(
            f"Note: {path} is unsealed (made by an older version): a changed file in it goes unnoticed."
        )
    if not run.is_finished and not run.is_imported:
        console.note(f"Note: {path} is not finished; this is its best so far. To go on: {run.go_on_command}")
    return run


def warn_unseen(run: "Run", *texts: str) -> list[str]:
    """Name the characters that a model knows nothing of, since none of its training text has them."""
    unseen = run.unseen("".join(dict.fromkeys(texts)))
    if unseen:
        named = ", ".join(
            c if c.isprintable() and not c.isspace() else ascii(c)[1:-1] for c in unseen[:SHOWN]
        )
        more = f" and {len(unseen) - SHOWN} more" if len(unseen) > SHOWN else ""
        console.note(
            f"Warning: no training text of {run.path} has {named}{more}: what it makes of them means nothing."
        )
    return unseen
