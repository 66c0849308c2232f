"""Where settings come from: recipes and `--set key=value`, as plain nested dictionaries."""

from pathlib import Path
from typing import Any

import yaml

from glassformer.config.schema import SECTIONS, coerce
from glassformer.config.section import Settings
from glassformer.core.errors import UsageError, closest
from glassformer.core.files import read_text

RECIPES = Path(__file__).parents[1] / "recipes"
LONGEST = 1 << 22  # bytes of a YAML file: reading one takes seconds for each million
MOST_NODES = 100_000  # values that it may stand for


def merge(*layers: Settings) -> Settings:
    """Later settings over earlier ones, section by section."""
    merged: Settings = {}
    for layer in layers:
        for name, value in layer.items():
            if name in SECTIONS and isinstance(value, dict):
                merged[name] = {**merged.get(name, {}), **value}
            else:
                merged[name] = value
    return merged


def nested(settings: Settings) -> Settings:
    """{"model.layers": 4} to {"model": {"layers": 4}}; what is nested already stays."""
    sections: Settings = {}
    for key, value in settings.items():
        section, dot, field = key.partition(".")
        sections = merge(sections, {section: {field: value}} if dot else {key: value})
    return sections


def parse_overrides(pairs: list[str], flag: str = "--set") -> Settings:
    """`model.layers=4` and its like, as given to `--set`; values are read as YAML."""
    settings: Settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        section, dot, field = key.strip().partition(".")
        if not equals:
            raise UsageError(f"{flag} {pair}: expected key=value, for example model.layers=4")
        try:
            parsed = parse_yaml(value) if value else value
        except yaml.YAMLError:
            parsed = value
        settings = merge(settings, {section: {field: parsed}} if dot else {section: parsed})
    return coerce(settings, flag)


def recipe_names() -> list[str]:
    return sorted(path.stem for path in RECIPES.glob("*.yaml"))


def load_recipe(name: str) -> Settings:
    """The settings of a recipe of the package, or of a YAML file of the user's."""
    path = RECIPES / f"{name}.yaml"
    if not path.is_file():
        path = Path(name)
        if not path.is_file():
            names = recipe_names()
            raise UsageError(
                f"there is no recipe '{name}'.{closest(name, names)} Recipes: {', '.join(names)}; "
                "or give the path of a YAML file."
            )
    content = read_yaml(path)
    settings = content.get("settings", content) or {}
    if not isinstance(settings, dict):
        raise UsageError(f"recipe {name}: expected settings such as `model: {{layers: 4}}`")
    return coerce(settings, f"recipe {name}")


def load_variants(name: str) -> dict[str, Settings]:
    """The models that a recipe sets side by side, by name; most recipes have none."""
    path = RECIPES / f"{name}.yaml"
    content = (
        read_yaml(path if path.is_file() else Path(name)) if (path.is_file() or Path(name).is_file()) else {}
    )
    variants = content.get("variants", {})
    if not isinstance(variants, dict):
        raise UsageError(f"recipe {name}: expected variants such as `lstm: {{model: {{family: lstm}}}}`")
    return {key: coerce(settings, f"recipe {name}, {key}") for key, settings in variants.items()}


def parse_yaml(text: str) -> Any:
    """YAML as plain data. A text that stands for far more than it says, by its aliases, is a YAMLError."""
    if _nodes(yaml.compose(text, Loader=yaml.SafeLoader), {}) > MOST_NODES:
        raise yaml.YAMLError(f"with its aliases written out it has more than {MOST_NODES:,} values")
    return yaml.safe_load(text)


def _nodes(node: yaml.Node | None, known: dict[int, float]) -> float:
    """How many values a node stands for when every alias in it is written out."""
    if id(node) not in known:
        known[id(node)] = float("inf")  # what holds itself has no end
        children: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            children = [child for pair in node.value for child in pair]
        elif isinstance(node, yaml.SequenceNode):
            children = node.value
        known[id(node)] = 1 + sum(_nodes(child, known) for child in children)
    return known[id(node)]


def read_yaml(path: Path, expected: str = "settings such as `model: {layers: 4}`") -> Settings:
    """A mapping; `expected` says what of, for one who gave something else."""
    try:
        content = parse_yaml(read_text(path, LONGEST))
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        problem = " ".join(str(error).split())[:300]
        raise UsageError(f"{path} is not valid YAML: {problem}; expected {expected}") from None
    except RecursionError:
        raise UsageError(f"{path} is nested too deeply") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    if not isinstance(content, dict):
        raise UsageError(f"{path}: expected {expected}")
    return content
