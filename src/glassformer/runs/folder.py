"""Whether a folder is a run, told without opening it: commands ask before anything heavy is loaded."""

from pathlib import Path

from glassformer.core.errors import RunError, closest
from glassformer.core.files import names_in
from glassformer.data.text_files import RUN_CONFIG as CONFIG


def refuse_no_run(path: Path) -> None:
    """Refuse what is no run directory, with the name that may have been meant."""
    if (path / CONFIG).is_file():
        return
    if path.exists():
        raise RunError(f"{path} is no run directory: it has no {CONFIG}.")
    beside = [path.parent / name for name in names_in(path.parent)]
    near = [str(run) for run in beside if (run / CONFIG).is_file()]
    raise RunError(
        f"{path} does not exist.{closest(str(path), near)} Train one: glassformer train TEXT --out {path}"
    )
