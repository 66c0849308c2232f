"""What a training was told, checked in order of what it costs: names first, then settings, no library."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from glassformer.core.errors import DataError, UsageError
from glassformer.core.files import user_path
from glassformer.data.catalog import refuse_missing
from glassformer.data.text_files import is_run_folder
from glassformer.runs.folder import refuse_begun, refuse_no_run

if TYPE_CHECKING:
    from glassformer.config.section import Settings


def check_names(
    source: str | None, task: str | None, target: str | None, out: str | None, init: str | None
) -> None:
    """The files and folders that a new run needs are there, and its own is not."""
    if source is not None:
        check_source(source, task)
    if target is not None:
        check_target(target)
    if init is not None:
        refuse_no_run(Path(init))
    if out is not None:
        refuse_begun(Path(out))


def check_source(source: str, task: str | None = None) -> None:
    refuse_missing(source, task)
    if is_run_folder(user_path(source)):
        run = quote(source)
        raise DataError(
            f"{source} is a run directory: it holds a model, not text. To go on with it: --out {run} "
            f"--resume, or --more-minutes 5 if it is finished; to begin with its weights: glassformer train "
            f"--init {run}"
        )


def check_target(target: str) -> None:
    if not user_path(target).is_file():
        raise DataError(f"there is no file '{target}' (--target: the other language, line by line).")


def check_pairs(pairs: str) -> None:
    if pairs != "default" and not Path(pairs).is_file():
        raise DataError(f"there is no file '{pairs}': expected two sentences per line, a tab between them.")


def run_folder(
    source: str | None,
    task: str | None,
    target: str | None,
    recipe: str | None,
    settings: "Settings",
    out: str | None,
) -> Path:
    """Where the run will be; what was said is known to make sense by itself."""
    from glassformer.config.schema import check_task
    from glassformer.runs.asked import default_name, gather_asked

    if task is not None:
        check_task(task)
    asked = gather_asked(source, task, target, recipe, settings)
    return Path(out) if out else Path("runs") / default_name(asked)


def check_more(steps: int | None, minutes: float | None) -> None:
    from glassformer.runs.asked import More

    More(steps, minutes)


def refuse_with_sweep(longer: bool) -> None:
    if longer:
        raise UsageError(
            "--more-steps and --more-minutes go on with one run: name it with --out, without --sweep"
        )


def check_named(source: str | None, out: str | None) -> None:
    """A run that goes on is named by --out, or by the data that named it."""
    if source is not None and is_run_folder(user_path(source)):
        raise UsageError(
            f"the run to go on with is named by --out: glassformer train --out {quote(source)} …"
        )
    if source is None and out is None:
        raise UsageError("--more-steps and --more-minutes go on with a run: name it with --out RUN")
