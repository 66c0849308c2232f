"""Runs, opened by commands: the process is theirs, so it is set up for computing first."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glassformer.cli import console
from glassformer.core.errors import GlassformerError
from glassformer.core.wording import command_line_speaks
from glassformer.runs.folder import refuse_no_run

if TYPE_CHECKING:  # loaded when a command runs, so that --help is instant
    from glassformer.runs.run import Run


def is_run(path: str | None) -> str | None:
    """A RUN as it was typed, refused before anything is loaded if there is none."""
    try:
        if path is not None:
            refuse_no_run(Path(path))
    except GlassformerError as error:
        with command_line_speaks():
            console.note(f"Error: {error}")
        raise typer.Exit(error.exit_code) from None
    return path


RunPath = Annotated[
    str, typer.Argument(metavar="RUN", help="A run directory.", show_default=False, callback=is_run)
]


def open_run(path: str) -> "Run":
    from glassformer.core.process import tune_process
    from glassformer.runs.run import load

    tune_process()
    run = load(path)
    if not run.is_sealed:
        console.note(
            f"Note: {path} is unsealed (made by an older version): a changed file in it goes unnoticed."
        )
    return run
