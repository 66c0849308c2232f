"""`--sweep key=a,b,c`: the values of a grid, checked one by one before anything is trained."""

from collections.abc import Sequence
from typing import Any

import yaml

from glassformer.config.recipes import parse_overrides, parse_yaml
from glassformer.core.errors import UsageError
from glassformer.core.strict_json import dump_json

Grid = list[tuple[str, list[Any]]]


def parse_sweep(pairs: Sequence[str]) -> Grid:
    """`model.layers=2,4` and its like, as given to `--sweep`."""
    grid: Grid = []
    for pair in pairs:
        key, equals, values = pair.partition("=")
        if not equals or not values:
            raise UsageError(f"--sweep {pair}: expected key=a,b,c, for example model.layers=2,4,6")
        try:
            listed = parse_yaml(f"[{values}]")
        except yaml.YAMLError:
            listed = []
        if not listed or any(value is None for value in listed):
            raise UsageError(f"--sweep {pair}: expected values with commas between, for example {key}=2,4,6")
        for value in listed:
            parse_overrides([f"{key}={dump_json(value)}"], "--sweep")
        grid.append((key.strip(), listed))
    return grid
