"""Before training: everything that is still open is decided, from the data, the machine and a recipe."""

import torch

from glassformer.config.schema import Config, Settings, build
from glassformer.core.device import Precision
from glassformer.models.model import Body
from glassformer.runs.autosize import choose_model, measure_step
from glassformer.runs.several import check_division
from glassformer.tasks.registry import make_model
from glassformer.tasks.task import Task
from glassformer.training.compile import compile_pays
from glassformer.training.display import Display
from glassformer.training.parallel.layout import check_layout


def decide(
    given: Settings, recipe: str | None, task: Task, device: torch.device, display: Display, processes: int
) -> Config:
    """Everything decided: sizes, number of steps, precision, compiling."""
    check_division(given.get("training", {}), processes)
    if recipe is None:
        sized = choose_model(given, task, device, processes)
        config = sized.config
        for reason in sized.reasons:
            display.note(reason)
    else:
        config = build(given)
        if config.training.steps == 0:
            seconds = measure_step(task, config, device, processes)
            minutes = config.training.minutes or 1.0
            config.training.steps = max(10, int(minutes * 60 / seconds))
        m, t = config.model, config.training
        display.note(
            f"Recipe {recipe}: {m.family}, {m.layers} layers, width {m.width}; "
            f"{t.steps} steps of {t.batch} × {m.context} tokens with {t.optimizer}."
        )
    check_division(config.training.model_dump(), processes)
    model = make_model(config.task, config.model)
    task.check(config)  # what the data cannot serve is said before anything is written
    task.objective(model, config)
    for warning in task.warnings(config, "train"):
        display.note(f"Note: {warning}.")
    opaque = any(isinstance(m, Body) and not m.compiles for m in model.modules())
    if opaque and config.training.compile == "auto":
        config.training.compile = "off"
    if config.training.compile == "auto":
        steps = config.training.steps
        pays = compile_pays(steps, device, lambda: measure_step(task, config, device, processes))
        config.training.compile = "on" if pays else "off"
    config.training.precision = Precision.choose(config.training.precision, device).name
    check_layout(model, config.training.parallel, processes, config.training.precision)
    return config
