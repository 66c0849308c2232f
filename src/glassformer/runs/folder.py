"""Whether a folder is a run, told without opening it: commands ask before anything heavy is loaded."""

from collections.abc import Collection
from pathlib import Path
from shlex import quote

from glassformer.core.errors import RunError, UsageError, closest
from glassformer.core.files import names_in
from glassformer.data.text_files import RUN_CONFIG as CONFIG


def is_run(path: Path) -> bool:
    return (path / CONFIG).is_file()


def refuse_no_run(path: Path) -> None:
    """Refuse what is no run directory, with the name that may have been meant."""
    if is_run(path):
        return
    if path.exists():
        raise RunError(f"{path} is no run directory: it has no {CONFIG}.")
    near = [name for name in names_in(path.parent) if is_run(path.parent / name)]
    hint = closest(path.name, near, path.parent)
    train = f"glassformer train TEXT --out {quote(str(path))}"
    raise RunError(f"{path} does not exist.{hint} Train one: {train}")


def refuse_begun(folder: Path) -> None:
    """Refuse to begin a run where there is one, or where a file is."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file; a run needs a folder. Choose another --out.")
    if is_run(folder):
        raise exists_already(folder)


def exists_already(folder: Path) -> RunError:
    return RunError(
        f"{folder} exists already. Continue it with --resume, train it longer with --more-minutes, choose "
        "another --out, or remove it."
    )


def refuse_other_task(path: Path, task: str, fitting: Collection[str], wanted: str) -> None:
    """Refuse a run that learned something else, with the command that uses it."""
    from glassformer.config.schema import COMMANDS  # most of what is asked here needs no settings

    if task not in fitting:
        raise UsageError(
            f"{path} learned the task {task}, and this is for {wanted}. What it can do: glassformer "
            f"{COMMANDS[task]} {quote(str(path))}, glassformer look {quote(str(path))}"
        )


def runs_under(path: str) -> list[str]:
    """A run is itself; the folder of a sweep is its runs, and the page beside them is none."""
    folder = Path(path)
    if folder.is_file() and folder.name == "compare.html":
        return []
    inside = sorted(str(p.parent) for p in folder.glob(f"*/{CONFIG}"))
    return inside if inside and not is_run(folder) else [path]
