"""Several runs: a grid of settings, and the variants of a recipe."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from glassformer.config.grid import Grid
from glassformer.config.recipes import load_variants, merge, nested, parse_overrides
from glassformer.config.section import Settings
from glassformer.core.errors import UsageError
from glassformer.core.files import inside
from glassformer.core.strict_json import dump_json
from glassformer.runs.asked import default_name, gather_asked
from glassformer.runs.begin import refuse_existing
from glassformer.runs.run import Run
from glassformer.runs.train import finished, train
from glassformer.training.display import Display, Silent


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
    display: Display | None = None,
) -> list[Run]:
    """Train a run for every combination of a grid, such as `{"model.layers": [2, 4]}`, and for every model
    that the recipe sets side by side."""
    return sweep_runs(
        None if source is None else str(source),
        [(key, list(values)) for key, values in (grid or {}).items()],
        load_variants(recipe) if recipe else {},
        out=None if out is None else str(out),
        settings=nested(settings or {}),
        display=display or Silent(),
        recipe=recipe,
        task=task,
        target=None if target is None else str(target),
        init=None if init is None else str(init),
        resume=resume,
    )


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
