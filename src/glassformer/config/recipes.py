"""Where settings come from: recipes, `--set key=value`, and the config.yaml of a run.

Three hands give them, the later winning: what sizing.py chooses from text and machine, a recipe, and `--set`.
They are gathered as plain nested dictionaries and become a `Config` once, before anything is computed.
"""

import json
from pathlib import Path

import yaml

from glassformer.config.schema import FORMAT_VERSION, SECTIONS, Config, Settings, build, coerce, flatten
from glassformer.core.errors import RunError, UsageError, closest
from glassformer.core.files import write_atomically

RECIPES = Path(__file__).parents[1] / "recipes"

# What a resumed run may be given anew, since its course does not depend on it (another device is announced).
MAY_CHANGE = {
    "training.device",
    "training.keep",
    "training.parallel",
    "training.processes",
    "training.checkpoint_every",
    "training.sample_every",
    "training.sample_prompt",
    "training.tensorboard",
}


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


def parse_overrides(pairs: list[str]) -> Settings:
    """`model.layers=4` and its like, as given to `--set`; values are read as YAML."""
    settings: Settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        section, dot, field = key.strip().partition(".")
        if not equals:
            raise UsageError(f"--set {pair}: expected key=value, for example model.layers=4")
        try:
            parsed = yaml.safe_load(value) if value else value
        except yaml.YAMLError:
            parsed = value
        settings = merge(settings, {section: {field: parsed}} if dot else {section: parsed})
    return coerce(settings, "--set")


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
    content = _read_yaml(path)
    settings = content.get("settings", content) or {}
    if not isinstance(settings, dict):
        raise UsageError(f"recipe {name}: expected settings such as `model: {{layers: 4}}`")
    return coerce(settings, f"recipe {name}")


def load_variants(name: str) -> dict[str, Settings]:
    """The models that a recipe sets side by side, by name; most recipes have none."""
    path = RECIPES / f"{name}.yaml"
    content = (
        _read_yaml(path if path.is_file() else Path(name)) if (path.is_file() or Path(name).is_file()) else {}
    )
    variants = content.get("variants", {})
    if not isinstance(variants, dict):
        raise UsageError(f"recipe {name}: expected variants such as `lstm: {{model: {{family: lstm}}}}`")
    return {key: coerce(settings, f"recipe {name}, {key}") for key, settings in variants.items()}


def save_config(config: Config, path: Path) -> None:
    text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    write_atomically(path, text)


def load_config(path: Path) -> Config:
    content = _read_yaml(path)
    version = content.get("format_version")
    if version != FORMAT_VERSION:
        raise RunError(
            f"{path} has format_version {version!r}; this glassformer reads {FORMAT_VERSION}. "
            "Open it with the version that wrote it."
        )
    return build(content, str(path))


def continued_config(folder: Path, given: Settings) -> Config:
    """The settings of a run that goes on; what would change its course is refused, with the difference."""
    config = load_config(folder / "config.yaml")
    before = flatten(config.model_dump())
    asked = flatten(given)
    for place in ("data.source", "data.target"):
        if _same_source(asked.get(place), before[place]):
            asked.pop(place, None)
    if asked.get("data.mix"):
        before_mix: dict[str, float] = before["data.mix"]
        same = {_found_again(name, before_mix): weight for name, weight in asked["data.mix"].items()}
        given = merge(given, {"data": {"mix": same}})
    if asked.get("training.steps") == 0:  # as many as fitted, decided when the run began
        asked.pop("training.steps")
    for decided in ("training.compile", "training.precision"):
        if asked.get(decided) == "auto":  # decided when the run began
            asked.pop(decided)
    changes = flatten(build(merge(config.model_dump(), given)).model_dump()) if given else before
    differing = {k: (before[k], changes[k]) for k in asked if k in before and changes[k] != before[k]}
    refused = [f"  {k}: {a} → {b}" for k, (a, b) in differing.items() if k not in MAY_CHANGE]
    longer = {"training.steps", "training.minutes"} & differing.keys()
    if refused:
        raise UsageError(
            f"{folder} was begun with other settings, and resuming must not change them:\n"
            + "\n".join(refused)
            + "\nLeave them out, or start a new run with another --out"
            + (f" (--init {folder} begins it with these weights)." if longer else ".")
        )
    for key, (_, value) in differing.items():
        section, _, field = key.partition(".")
        setattr(getattr(config, section), field, value)
    return config


def _found_again(name: str, known: dict[str, float]) -> str:
    """A source of a mix as the run has it written down: with its whole path."""
    return name if name in known else str(Path(name).expanduser().resolve())


def refuse_changed(checkpoint: Path, settings: Settings) -> None:
    """A config.yaml that was edited since: what it says must be what the checkpoint was made by."""
    try:
        state = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
        before: Settings = dict(state.get("settings") or {})
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return  # whoever loads the checkpoint says what is wrong with it
    refused = [
        f"  {key}: {before[key]} → {value}"
        for key, value in settings.items()
        if key in before and before[key] != value and key not in MAY_CHANGE
    ]
    if refused:
        raise UsageError(
            f"{checkpoint} was made by other settings than config.yaml has now:\n"
            + "\n".join(refused)
            + "\nRestore them, or start a new run with another --out."
        )


def _same_source(asked: str | None, begun_with: str | None) -> bool:
    return asked in (None, "-", begun_with) or str(Path(str(asked)).expanduser().resolve()) == begun_with


def _read_yaml(path: Path) -> Settings:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise UsageError(f"{path} is not valid YAML: {' '.join(str(error).split())[:300]}") from None
    except RecursionError:
        raise UsageError(f"{path} is nested too deeply") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    if not isinstance(content, dict):
        raise UsageError(f"{path}: expected settings such as `model: {{layers: 4}}`")
    return content
