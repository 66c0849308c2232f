"""The one way from what was asked to a configuration.

    resolve(asked, recipe, data, machine) ──► Resolved(config, reasons)

A pure function: what it is given it leaves as it is, what it decides it returns with the reasons, and
nothing is changed after it. Sizes come from autosize.py unless a recipe gives them; what neither says has its
default.
"""

from dataclasses import dataclass

from glassformer.config.recipes import merge
from glassformer.config.schema import Config, build
from glassformer.config.section import Settings
from glassformer.config.training import TrainingConfig
from glassformer.core.device import Precision
from glassformer.core.errors import UsageError
from glassformer.core.shapes import ShapesAlone
from glassformer.models.model import Body
from glassformer.runs.autosize import choose_sizes, in_layers
from glassformer.runs.machine import Machine, choose_precision
from glassformer.runs.processes import check_division
from glassformer.tasks.task import Task
from glassformer.training.compile import SHORT_STEP, compile_pays
from glassformer.training.device.fitting import WAYS, check_kernels, choose_way, fits, fits_graph
from glassformer.training.optim import freeze
from glassformer.training.parallel.layout import check_layout

RECIPE_MINUTES = 1.0  # that a recipe without a number of steps is trained for when nothing is said


@dataclass(frozen=True)
class Resolved:
    config: Config
    reasons: list[str]  # for a person, a line each


def resolve(asked: Settings, recipe: str | None, data: Task, machine: Machine) -> Resolved:
    """Everything decided: sizes, number of steps, precision, compiling. What cannot be is refused here."""
    check_division(asked.get("training", {}), machine.processes)
    known = _agreed(asked, data.settings())
    seconds: float | None = None
    if recipe is None:
        sizes = choose_sizes(known, data, machine)
        config, reasons, seconds = sizes.config, sizes.reasons, sizes.seconds
    else:
        config = build(known)
        if config.training.steps == 0:
            seconds = machine.seconds_per_step(config)
            minutes = config.training.minutes or RECIPE_MINUTES
            steps = max(10, int(minutes * 60 / seconds))
            config = build(merge(known, {"training": {"steps": steps}}))
        m, t = config.model, config.training
        reasons = [
            f"Recipe {recipe}: {m.family}, {in_layers(m.layers)}, width {m.width}; "
            f"{t.steps} steps of {t.batch} × {m.context} tokens with {t.optimizer}."
        ]
    check_division(config.training.model_dump(), machine.processes)
    data.check(config)
    with ShapesAlone():  # its shapes are enough to see what can be
        model = data.build(config.model)
    objective = data.objective(model, config)
    precision = choose_precision(config, machine.device)
    freeze(model, config.training.freeze)
    how = model, objective, config.training, Precision(precision, machine.device), machine.processes
    check_kernels(*how)
    way = choose_way(*how)
    check_layout(model, config.training.parallel, machine.processes, precision)
    compiled = config.training.compile
    if compiled == "auto" and (way == "fused" or config.training.kernels == "graph"):
        compiled = "off"  # own kernels need no compiler, and a graph that was asked for has none
    if compiled == "auto":
        opaque = any(isinstance(m, Body) and not m.compiles for m in model.modules())
        measure = machine.seconds_per_step if seconds is None else lambda _: seconds
        least = SHORT_STEP if way == "graph" else 0.0
        steps, device = config.training.steps, machine.device
        pays = not opaque and compile_pays(steps, device, lambda: measure(config), least)
        compiled = "on" if pays else "off"
    if machine.device.type == "cuda" and config.training.kernels == "auto" and way != "fused":
        compiles = way == "graph" and compiled == "on"
        why = "compiled, as its steps are long" if compiles else fits_graph(*how)
        by = f"PyTorch's kernels call by call ({why})" if compiles or way == "calls" else WAYS[way]
        reasons.append(f"Note: steps go by {by}; the fused step is not for this: {fits(*how)}.")
    decided = {"training": {"compile": compiled, "precision": precision}}
    reasons = [*reasons, *(f"Note: {warning}." for warning in data.warnings(config, "train"))]
    reasons += _long_warmup(config.training)
    return Resolved(build(merge(config.model_dump(), decided)), reasons)


def _long_warmup(training: TrainingConfig) -> list[str]:
    """A warm-up that a run cannot finish leaves it with a fraction of its learning rate."""
    if training.warmup <= training.steps // 2:
        return []
    reaches = f"the learning rate ends at {training.steps / training.warmup:.0%} of its height"
    what = reaches if training.warmup > training.steps else "little is left for its height"
    return [
        f"Note: a warm-up of {training.warmup:,} steps in a run of {training.steps:,}: {what}. "
        f"--set training.warmup={max(1, training.steps // 5)} would fit."
    ]


def _agreed(asked: Settings, of_data: Settings) -> Settings:
    """What the data says, unless the user said something else about the same."""
    for name, value in of_data.get("model", {}).items():
        wish = asked.get("model", {}).get(name) or value
        if wish != value:
            raise UsageError(
                f"model.{name} {wish}: the data has {value}. Leave model.{name} out"
                + (", and set tokenizer.vocab." if name.endswith("vocab") else ".")
            )
    return merge(asked, of_data)
