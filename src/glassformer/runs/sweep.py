"""Several runs: a grid of settings, and the variants of a recipe."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from glassformer.config.grid import Grid
from glassformer.config.recipes import load_variants, merge, nested, parse_overrides
from glassformer.config.section import Settings
from glassformer.core.errors import UsageError
from glassformer.core.files import inside
from glassformer.core.strict_json import dump_json
from glassformer.evaluation.comparison import Row
from glassformer.runs.asked import default_name, gather_asked
from glassformer.runs.begin import refuse_existing
from glassformer.runs.compare import Comparison, compare_runs
from glassformer.runs.run import Run
from glassformer.runs.train import finished, train
from glassformer.training.display import Display, choose_display


class Sweep(list[Run]):
    """The runs of a sweep in the order they were trained; `print` shows them side by side."""

    def __repr__(self) -> str:
        return f"Sweep({', '.join(run.path.name for run in self)})"

    def __str__(self) -> str:
        return str(self.compare())

    def _repr_html_(self) -> str:
        return self.compare()._repr_html_()

    def compare(self) -> Comparison:
        """Its runs side by side."""
        return compare_runs(self)

    @property
    def rows(self) -> list[Row]:
        """The numbers of each run."""
        return self.compare().rows

    @property
    def best(self) -> Run:
        """The run with the best score."""
        _, _, more = self.rows[0].score
        scores = {run.path: row.score[1] for run, row in zip(self, self.rows, strict=True)}
        return (max if more else min)(self, key=lambda run: scores[run.path])


def sweep(
    source: str | Path | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    *,
    recipe: str | None = None,
    task: str | None = None,
    target: str | Path | None = None,
    out: str | Path | None = None,
    init: str | Path | None = None,
    resume: bool = False,
    settings: Settings | None = None,
    display: Display | Literal["auto"] | None = "auto",
    quiet: bool = False,
) -> Sweep:
    """Train a run for every combination of a grid, such as `{"model.layers": [2, 4]}`, and for every model
    that the recipe sets side by side. Gives the list of runs, which can be compared at once.

    Progress is shown as by `train`; `quiet=True` or `display=None` shows nothing."""
    runs = sweep_runs(
        None if source is None else str(source),
        _listed(grid or {}),
        load_variants(recipe) if recipe else {},
        out=None if out is None else str(out),
        settings=nested(settings or {}),
        display=choose_display(display, quiet),
        recipe=recipe,
        task=task,
        target=None if target is None else str(target),
        init=None if init is None else str(init),
        resume=resume,
    )
    return Sweep(runs)


def _listed(grid: Mapping[str, Any]) -> Grid:
    """A grid as it was given from Python; one value is a list of one."""
    listed = [(key, [v] if isinstance(v, str | int | float) else list(v)) for key, v in grid.items()]
    for key, values in listed:
        if not values:
            raise UsageError(f"--sweep {key}: expected at least one value")
    return listed


def sweep_runs(
    source: str | None,
    grid: Grid,
    variants: dict[str, Settings],
    *,
    out: str | None,
    settings: Settings,
    display: Display,
    recipe: str | None = None,
    task: str | None = None,
    target: str | None = None,
    init: str | None = None,
    resume: bool = False,
) -> list[Run]:
    """Train every combination, each in a folder of its own; finished ones are not trained again on resume."""
    if not grid and not variants:
        raise UsageError("a sweep needs something to vary: --sweep model.layers=2,4")
    name = Path(recipe).stem if recipe else default_name(gather_asked(source, None, None, None, settings))
    folder = Path(out) if out else Path("runs") / name
    points: list[tuple[str, Settings]] = [
        ("-".join([name, *labels]).strip("-"), merge(changes, *chosen))
        for name, changes in (variants or {"": {}}).items()
        for labels, chosen in _combinations(grid)
    ]
    places = [inside(folder, name) for name, _ in points]
    if len(set(places)) < len(places):
        raise UsageError("two runs of the sweep would have the same name: give each value once")
    if not resume:
        for place in places:
            if place.exists():
                refuse_existing(place)
    runs: list[Run] = []
    for number, (place, (name, changes)) in enumerate(zip(places, points, strict=True), start=1):
        display.note(f"[{number} of {len(points)}] {name}")
        asked = {
            "recipe": recipe,
            "task": task,
            "target": target,
            "init": init,
            "settings": merge(changes, settings) if variants else merge(settings, changes),
        }
        if resume and (place / "result.json").is_file():
            runs.append(finished(source, out=place, **asked))
        else:
            runs.append(train(source, out=place, display=display, resume=resume, **asked))
    return runs


def _combinations(grid: Grid) -> list[tuple[list[str], list[Settings]]]:
    """Every choice of one value per key: its labels, and its settings."""
    choices: list[list[tuple[str, Settings]]] = [
        [
            (
                f"{key.rpartition('.')[2]}={value}".replace("/", "_"),
                parse_overrides([f"{key}={dump_json(value)}"]),
            )
            for value in values
        ]
        for key, values in grid
    ]
    return [([label for label, _ in c], [s for _, s in c]) for c in itertools.product(*choices)]
