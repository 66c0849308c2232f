"""Runs, opened by commands: the process is theirs, so it is set up for computing first."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # loaded when a command runs, so that --help is instant
    from glassformer.runs.run import Run


def open_run(path: str) -> "Run":
    from glassformer.core.process import tune_process
    from glassformer.runs.run import load

    tune_process()
    return load(path)
