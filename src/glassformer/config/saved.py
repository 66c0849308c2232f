"""The config.yaml of a run: written, read, and held to when the run goes on."""

import json
from pathlib import Path

import yaml

from glassformer.config.recipes import merge, nested, read_yaml
from glassformer.config.schema import FORMAT_VERSION, Config, build, flatten, shortened
from glassformer.config.section import Settings
from glassformer.core.errors import RunError, UsageError
from glassformer.core.files import read_json, whole_path, write_atomically
from glassformer.core.strict_json import dump_json

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

PLAN = {"training.steps", "training.extended"}  # what changes when a run goes on longer, or ends in time

SEALED_VERSION = 2  # of a run directory, from which on it must have a seal
# May be moved; that it is the same text, and the same vectors where they are needed, is checked by itself.
PLACES = {"data.source", "data.target", "data.vectors"}


def sealed_settings(config: Config) -> Settings:
    """What a run is held to whenever it is opened: all settings but those that may change."""
    flat = flatten(config.model_dump(mode="json"))
    flat["data.mix"] = list(flat["data.mix"].values())
    return {key: value for key, value in flat.items() if key not in MAY_CHANGE | PLACES}


def refuse_edited(path: Path, config: Config, sealed: Settings) -> None:
    """A config.yaml that was edited would make another model of the same weights."""
    now = json.loads(dump_json(sealed_settings(config)))  # as JSON has it: keys are texts
    # A setting that is new since then has its default, which is what the run was made with.
    changed = [f"{key}: {value} → {now.get(key)}" for key, value in sealed.items() if now.get(key) != value]
    if changed:
        raise RunError(
            f"{path} was edited since the run was made ({'; '.join(changed[:3])}). Restore it. Another model "
            f"is another run: train it with --set and, to begin with these weights, --init {path.parent}."
        )


# What a run that does not say was made with: the settings before there was a choice.
ORIGINAL = {"data": {"split": "name", "newlines": "keep"}, "training": {"kernels": "off"}}


def save_config(config: Config, path: Path) -> None:
    text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    write_atomically(path, text)


def load_config(path: Path) -> Config:
    content = read_yaml(path)
    version = content.get("format_version")
    if version not in range(1, FORMAT_VERSION + 1):
        raise RunError(
            f"{path} has format_version {shortened(version)}; this glassformer reads 1 to {FORMAT_VERSION}. "
            "Open it with the version that wrote it."
        )
    for name, original in ORIGINAL.items():
        section = content.get(name)
        if isinstance(section, dict):
            content = merge(content, {name: {**original, **section}})
    return build(content, str(path))


def continued_config(folder: Path, settings: Settings) -> Config:
    """The settings of a run that goes on; what would change its course is refused, with the difference."""
    config = load_config(folder / "config.yaml")
    before = flatten(config.model_dump())
    asked = flatten(settings)
    for place in PLACES:
        if _same_source(asked.get(place), before[place]):
            asked.pop(place, None)
    if asked.get("data.mix"):
        before_mix: dict[str, float] = before["data.mix"]
        same = {_found_again(name, before_mix): weight for name, weight in asked["data.mix"].items()}
        settings = merge(settings, {"data": {"mix": same}})
    if asked.get("training.steps") == 0:  # as many as fitted, decided when the run began
        asked.pop("training.steps")
    if asked.get("training.steps") in config.training.extended.values():  # it was made longer since
        asked.pop("training.steps")
    for decided in ("training.compile", "training.precision"):
        if asked.get(decided) == "auto":  # decided when the run began
            asked.pop(decided)
    changes = flatten(build(merge(config.model_dump(), settings)).model_dump()) if settings else before
    differing = {k: (before[k], changes[k]) for k in asked if k in before and changes[k] != before[k]}
    refused = [f"  {k}: {a} → {b}" for k, (a, b) in differing.items() if k not in MAY_CHANGE]
    longer = {"training.steps", "training.minutes"} & differing.keys()
    if refused:
        raise UsageError(
            f"{folder} was begun with other settings, and resuming must not change them:\n"
            + "\n".join(refused)
            + "\nLeave them out, or start a new run with another --out"
            + (", or make this one longer: --more-steps N, --more-minutes M." if longer else ".")
        )
    changed = nested({key: value for key, (_, value) in differing.items()})
    return build(merge(config.model_dump(), changed))


def _found_again(name: str, known: dict[str, float]) -> str:
    """A source of a mix as the run has it written down: with its whole path."""
    return name if name in known else str(whole_path(name))


def refuse_changed(checkpoint: Path, settings: Settings) -> None:
    """A config.yaml that was edited since: what it says must be what the checkpoint was made by."""
    try:
        state = read_json(checkpoint / "state.json")
        before: Settings = dict(state.get("settings") or {})
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return  # whoever loads the checkpoint says what is wrong with it
    settings = json.loads(dump_json(settings))  # as JSON has it: keys are texts
    may_change = MAY_CHANGE | (PLAN if _is_other_plan(before, settings) else set())
    refused = [
        f"  {key}: {before[key]} → {value}"
        for key, value in settings.items()
        if key in before and before[key] != value and key not in may_change
    ]
    if refused:
        raise UsageError(
            f"{checkpoint} was made by other settings than config.yaml has now:\n"
            + "\n".join(refused)
            + "\nRestore them, or start a new run with another --out."
        )


def _is_other_plan(before: Settings, now: Settings) -> bool:
    """Whether a run was made longer since, or brought to what fits into its time."""
    earlier, later = before.get("training.extended", {}), now["training.extended"]
    steps = before.get("training.steps")
    if earlier == later and now["training.minutes"] and isinstance(steps, int):
        return True
    return before.get("training.steps") in later.values() and earlier.items() <= later.items()


def _same_source(asked: str | None, begun_with: str | None) -> bool:
    return asked in (None, "-", begun_with) or str(whole_path(str(asked))) == begun_with
