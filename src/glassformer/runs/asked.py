"""What the user said: source, task, recipe and settings as one nested dictionary."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from glassformer.config.recipes import load_recipe, merge, nested
from glassformer.config.schema import TEXT_TASKS, coerce
from glassformer.config.section import Settings
from glassformer.core.errors import UsageError
from glassformer.data.catalog import HUB_PREFIX
from glassformer.data.datasets import task_of
from glassformer.data.tables import is_table

MIX = "mix"  # stands where the one source would


@dataclass(frozen=True)
class More:
    """How much longer a run that ended is to be trained, by one of the two."""

    steps: int | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        if self.steps is not None and self.minutes is not None:
            raise UsageError("--more-steps and --more-minutes: give one of them")
        for name, value in (("--more-steps", self.steps), ("--more-minutes", self.minutes)):
            if value is not None and not 0 < value < float("inf"):
                raise UsageError(f"{name} {value:g}: expected more than 0")

    def __bool__(self) -> bool:
        return self.steps is not None or self.minutes is not None


def gather_asked(
    source: str | Path | None,
    task: str | None,
    target: str | Path | None,
    recipe: str | None,
    settings: Settings | None,
    init: bool = False,
    fill: bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> Settings:
    """Everything the user said, as one nested dictionary, with task and source filled in.

    A run that starts from another one has its tokenizer and its shape; a recipe's own then do not count.
    `say` is told what the task of a table was taken for, where nobody said it.
    """
    own_settings = coerce(nested(settings or {}), "settings")
    tested = load_recipe(recipe) if recipe else {}
    if init:
        kept = {k: v for k, v in tested.get("model", {}).items() if k == "pooling" or k.endswith("dropout")}
        tested = {**{k: v for k, v in tested.items() if k != "tokenizer"}, "model": kept}
    own: Settings = own_settings.get("training", {})
    if "optimizer" in own or own.get("schedule") == "noam":  # what was tuned for another does not carry over
        tuned = {"lr", "schedule", "warmup", "beta1", "beta2", "eps"}
        kept = {k: v for k, v in tested.get("training", {}).items() if k not in tuned}
        tested = {**tested, "training": kept}
    asked = merge(tested, own_settings)
    data = {**asked.get("data", {})}
    if data.get("mix") == {} and "mix" in own_settings.get("data", {}):
        raise UsageError("data.mix names no source: expected {SOURCE: weight, …}")
    if data.get("mix"):
        if source is not None or "source" in own_settings.get("data", {}):
            raise UsageError("data.mix names the sources: leave SOURCE out, or data.mix")
        data["source"] = MIX
    if source is not None:
        data["source"] = str(source)
    if target is not None:
        data["target"] = str(target)
    if not fill:  # a run that goes on knows the rest
        return {**asked, "data": data, **({"task": task} if task else {})}
    data.setdefault("source", "pydocs")
    name = task or asked.get("task")
    columns = [key for key in ("text_column", "label_column") if data.get(key) is not None]
    if name is None:
        name = "classify" if columns else task_of(data["source"], data.get("target"))
        if not columns and not data.get("target") and is_table(data["source"]):
            say(_assumed(data["source"], name))
    elif name in TEXT_TASKS and is_table(data["source"]):
        say(
            f"Note: {data['source']} is read as plain text, with all its columns: a classifier that begins "
            "from this run has seen labels of rows that it is tested on."
        )
    if data.get("target") and name != "translate":
        raise UsageError(f"--target {data['target']} is the other language of pairs, and the task is {name}")
    if columns and name != "classify":
        raise UsageError(
            f"data.{columns[0]} is of a table to classify, and the task is {name}: leave one of them out"
        )
    return {**asked, "task": name, "data": data}


def _assumed(source: str, task: str) -> str:
    """What a table is taken for when nothing is said, and what to say for the other."""
    if task == "classify":
        return (
            f"Note: {source} is taken for texts with labels (--task classify); for plain text say "
            "--task language."
        )
    return (
        f"Note: {source} is read as plain text; for labels say --task classify (and if need be --text-column "
        "and --label-column), for pairs --task translate."
    )


def held_to(settings: Settings | None) -> float:
    """The minutes that the user wants a training to take; 0: none, or so many steps."""
    training: Settings = nested(settings or {}).get("training", {})
    return 0.0 if training.get("steps") else float(training.get("minutes") or 0.0)


def default_name(asked: Settings) -> str:
    source = str(asked["data"]["source"])
    name = Path(source.removeprefix(HUB_PREFIX)).name
    if source.startswith(HUB_PREFIX):
        name = name.partition("@")[0]
    while Path(name).suffix in (".gz", ".zst"):
        name = Path(name).stem
    return "stdin" if source == "-" else Path(name).stem.strip("*.?[]") or "run"
