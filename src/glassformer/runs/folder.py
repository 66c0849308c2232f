"""Whether a folder is a run, told without opening it: commands ask before anything heavy is loaded."""

from pathlib import Path

from glassformer.core.errors import RunError, closest
from glassformer.core.files import names_in

CONFIG = "config.yaml"


def refuse_no_run(path: Path) -> None:
    """Refuse what is no run directory, with the name that may have been meant."""
    if (path / CONFIG).is_file():
        return
    if path.exists():
        raise RunError(f"{path} is no run directory: it has no {CONFIG}.")
    near = [name for name in names_in(path.parent) if (path.parent / name / CONFIG).is_file()]
    raise RunError(
        f"{path} does not exist.{closest(path.name, near)} Train one: glassformer train TEXT --out {path}"
    )
