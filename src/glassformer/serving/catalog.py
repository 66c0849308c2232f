"""Which runs are served: found once, when the server starts, and from then on known by their names alone.

No request can name a path: a name is looked up in a table, and what is not in it does not exist.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from glassformer.core.errors import RunError, UsageError
from glassformer.runs.folder import is_run, refuse_no_run, runs_under

DEFAULT = "runs"  # the folder whose runs are served where none is named


@dataclass(frozen=True)
class Entry:
    name: str
    path: Path


def find_runs(named: Iterable[str]) -> dict[str, Entry]:
    """The runs that were named, a sweep by its folder; those under ./runs where none was."""
    paths = [path for name in named for path in runs_under(name)]
    for path in paths:
        refuse_no_run(Path(path))
    if not paths:
        paths = _under_default()
    return _by_name([Path(path) for path in dict.fromkeys(paths)])


def _under_default() -> list[str]:
    folder = Path(DEFAULT)
    children = sorted(p for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
    found = [path for child in children for path in runs_under(str(child)) if is_run(Path(path))]
    if not found:
        raise RunError(
            f"there is no run under ./{DEFAULT} to serve. Name one: glassformer serve RUN, or train one: "
            f"glassformer train TEXT --out {DEFAULT}/mine"
        )
    return found


def _by_name(paths: list[Path]) -> dict[str, Entry]:
    """By the names of their folders; where two are alike, with that of the folder they are in."""
    names = [path.resolve().name for path in paths]
    entries: dict[str, Entry] = {}
    for path, name in zip(paths, names, strict=True):
        whole = path.resolve()
        if names.count(name) > 1:
            name = f"{whole.parent.name}-{name}"
        if name in entries:
            raise UsageError(
                f"{entries[name].path} and {path} would both be served as '{name}': serve one of them, or "
                "give its folder another name"
            )
        entries[name] = Entry(name, path)
    return entries


def names_of(entries: Mapping[str, Entry], most: int = 8) -> str:
    """The first few names, for a message."""
    shown = ", ".join(list(entries)[:most])
    return shown + (f" and {len(entries) - most} more" if len(entries) > most else "")
