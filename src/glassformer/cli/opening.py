"""Runs, opened by commands: the process is theirs, so it is set up for computing first."""

from typing import TYPE_CHECKING

from glassformer.cli import console

if TYPE_CHECKING:  # loaded when a command runs, so that --help is instant
    from glassformer.runs.run import Run


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
