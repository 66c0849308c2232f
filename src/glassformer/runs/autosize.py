"""Sizes by themselves: from how much text there is and what the machine can do, to a whole configuration.

Training for a given time on a given machine is a number of operations, C ≈ 6·N·D for N parameters and D
tokens. In runs of minutes about eight tokens per parameter use it best (the often-cited twenty hold for
runs a million times longer), or fewer where the text has been read so often by then that it teaches little
more. For examples the model is a small one that sees them whole, as their task says. The number of steps
follows from a measurement of the chosen model, not from a guess. Whatever the user or a recipe has set stays.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from glassformer.config.model import RECURRENT
from glassformer.config.recipes import merge
from glassformer.config.schema import Config, build
from glassformer.config.section import Settings
from glassformer.config.training import PAPER_WARMUP
from glassformer.core.shapes import ShapesAlone
from glassformer.models.model import parameter_count
from glassformer.runs.machine import Machine
from glassformer.tasks.task import ExampleAmount, Sizing, Task, TextAmount

MINUTES = 4.0  # what a run is planned for when nothing is said
TOKENS_PER_PARAMETER = 8
ENOUGH_PASSES = 25  # over a text, after which more weights are worth more than more passes
WEIGHTS_PER_TOKEN = 10  # at most: fewer learn less of a small text, many more learn it by heart
TRAINING_SHARE, EXAMPLE_SHARE = 0.85, 0.8  # of a run's time; the rest is evaluating and saving
MOST_EPOCHS = 40  # beyond this many passes over the text nothing is learned that generalises
SHAPES = [(2, 64), (3, 96), (4, 128), (4, 192), (6, 256), (6, 384), (8, 512), (12, 768)]  # layers, width
LEAST_FOR_TEXT = (4, 128)  # the shape that no text is too small for; less only for want of time
HEAD_WIDTH = 32
FEW_PASSES = 3  # over examples, below which nothing needs to be dropped
PATIENCE = 7 / 12  # of a run's evaluations, on examples: few of them to validate on make a noisy score
EVALUATIONS, LEAST_EVALUATIONS = 12, 4  # in a run; fewer where they would take more than their share of it
EVALUATION_SHARE = 0.1
FORWARD_SHARE = 1 / 3  # of a step's time, that what is only evaluated takes
CPU_HIDDEN = 2  # times the width: there a wider stream gains more by the time that a wider net takes
SHAPED = {"family", "width", "heads", "hidden", "activation"}  # settings that a hidden width follows from
ORDER = {"position", "attention", "window", "shift"}  # settings of how the order of tokens is known


@dataclass(frozen=True)
class Sizes:
    config: Config
    reasons: list[str]
    seconds: float  # of a step, as measured


def choose_sizes(asked: Settings, data: Task, machine: Machine) -> Sizes:
    """All sizes that `asked` leaves open, and two lines on why."""
    amount = data.amount()
    if isinstance(amount, TextAmount):
        return _for_text(asked, data, amount, machine)
    return _for_examples(asked, data, amount, machine)


def _for_text(asked: Settings, data: Task, amount: TextAmount, machine: Machine) -> Sizes:
    tokens, on_cpu = amount.tokens, machine.device.type == "cpu"
    training: dict[str, Any] = asked.get("training", {})
    minutes = training.get("minutes") or MINUTES
    operations = machine.operations_per_second() * minutes * 60
    parameters = (operations / (6 * TOKENS_PER_PARAMETER)) ** 0.5
    parameters = max(parameters, operations / (6 * ENOUGH_PASSES * tokens))
    enough = max(WEIGHTS_PER_TOKEN * tokens, _weights(*LEAST_FOR_TEXT))
    parameters = min(parameters, enough)
    fitting = [(n, w) for n, w in SHAPES if _weights(n, w) <= parameters] or SHAPES[:1]
    layers, width = fitting[-1]
    longest = max(8, min(tokens // 8, amount.valid_tokens - 1))
    context = min(256, 1 << (longest.bit_length() - 1))
    per_step = 2048 if on_cpu else 32768
    shape: dict[str, Any] = asked.get("model", {})
    if shape.get("family", "transformer") != "transformer":
        layers = min(layers, 2)  # the others are wide, not deep
    chosen: Settings = {
        "model": {"layers": layers, "width": width, "heads": max(1, width // HEAD_WIDTH), "context": context},
    }
    if on_cpu and not SHAPED & shape.keys():
        chosen["model"]["hidden"] = CPU_HIDDEN * width
    if "width" in shape and "heads" not in shape:
        chosen["model"]["heads"] = _heads_for(shape["width"])
    elif "heads" in shape and "width" not in shape:
        unit = 2 * shape["heads"]
        chosen["model"]["width"] = max(unit, round(width / unit) * unit)
    chosen = merge(chosen, asked)
    context = chosen["model"]["context"]
    batch = training.get("batch") or max(8, per_step // context)
    batch = max(1, min(batch, tokens // (2 * context)))  # streams must not be shorter than a window
    if "batch" not in training:
        batch = _divisible(batch, training, machine.processes)
    chosen = merge({"training": {"batch": batch}}, chosen)
    useful = max(50, MOST_EPOCHS * tokens // (batch * context))

    def plan(dropout: float) -> tuple[Settings, float, int, int]:
        """With this dropout: settings, seconds of a step, the steps there is time for, and those taken."""
        settings = merge({"model": {"dropout": dropout}}, chosen)
        seconds = machine.seconds_per_step(build(settings))
        affordable = max(50, int(minutes * 60 * TRAINING_SHARE / seconds))
        return settings, seconds, affordable, training.get("steps") or min(affordable, useful)

    planned, seconds, affordable, steps = plan(0.0)
    dropout = _dropout_for(steps * batch * context / tokens)
    if dropout and "dropout" not in shape:  # with it a step takes longer
        planned, seconds, affordable, steps = plan(dropout)
    epochs = steps * batch * context / tokens
    rest: Settings = {
        "training": {"steps": steps, "sample_every": max(10, steps // 4), **_rhythm(steps, training)},
    }
    config = build(merge(rest, planned, {"training": {"steps": steps}}))
    why = f"what {minutes:g} minute{'s' * (minutes != 1)} here can train well"
    if parameters == enough:
        why = "enough for the text"
    if {"layers", "width"} <= shape.keys():
        why = "as asked"
    passes = f"{epochs:.1f} times through {_count(tokens)} tokens"
    longer = "steps" not in training and steps == affordable  # else more time would not be used
    return Sizes(config, _reasons(config, data, passes, why, seconds, longer), seconds)


def _weights(layers: int, width: int) -> int:
    """About so many, in the matrices of so many blocks."""
    return 12 * layers * width * width


def _dropout_for(epochs: float) -> float:
    """Of a text that is seen so many times: the more often, the easier it is to learn by heart."""
    return 0.2 if epochs > 20 else 0.1 if epochs > 8 else 0.0


def _for_examples(asked: Settings, data: Task, amount: ExampleAmount, machine: Machine) -> Sizes:
    """A small model that sees all but the longest examples whole, and as many passes as the time allows."""
    training: dict[str, Any] = asked.get("training", {})
    shape: dict[str, Any] = asked.get("model", {})
    lengths, sizing = amount.lengths, amount.sizing
    minutes = training.get("minutes") or sizing.minutes
    n, longest = len(lengths), int(np.quantile(lengths, 0.995)) + 1
    context = int(lengths.max()) + 8 if longest <= 128 else min(512, longest + 8)
    batch = _divisible(min(sizing.batch, max(8, n // 20)), training, machine.processes)
    chosen: Settings = {
        "model": {**_shape_for(sizing, shape, machine), "context": context},
        "training": {"batch": batch, **sizing.training},
    }
    width = shape.get("width", chosen["model"]["width"])
    chosen["model"]["heads"] = _heads_for(width)
    chosen = merge(chosen, asked)
    batch = chosen["training"]["batch"]
    seconds = machine.seconds_per_step(build(chosen))
    affordable = max(50, int(minutes * 60 * EXAMPLE_SHARE / seconds))
    steps = training.get("steps") or min(affordable, int(max(sizing.least_steps, sizing.epochs * n / batch)))
    epochs = steps * batch / n
    # Against the time of all steps, not seconds: a busy machine makes both longer.
    evaluation = FORWARD_SHARE * amount.valid / batch
    evaluations = int(min(EVALUATIONS, max(LEAST_EVALUATIONS, EVALUATION_SHARE * steps / evaluation)))
    rhythm = _rhythm(steps, training, evaluations)
    asked_for = steps / training.get("eval_every", rhythm["eval_every"])  # evaluations, as it is in the end
    patience = max(2, round(PATIENCE * max(evaluations, asked_for)))
    rest: Settings = {"training": {"steps": steps, **rhythm, "patience": patience}}
    if epochs < FEW_PASSES:  # what is seen so rarely is not learned by heart
        gentle = {"model": {"dropout": 0.0}, "training": {"token_dropout": 0.0}}
        chosen = merge(chosen, gentle, asked)
    config = build(merge(rest, chosen, {"training": {"steps": steps}}))
    passes = f"{epochs:.1f} times through {n:,} examples"
    why = f"half of the examples have {int(np.median(lengths))} tokens or fewer, nearly all at most {longest}"
    longer = "steps" not in training and steps == affordable
    return Sizes(config, _reasons(config, data, passes, why, seconds, longer), seconds)


def _shape_for(sizing: Sizing, shape: dict[str, Any], machine: Machine) -> dict[str, Any]:
    """The model that suits the task, or what of it suits the family that was asked for."""
    family = shape.get("family", sizing.model["family"])
    if family in RECURRENT:
        return dict(sizing.model if family == sizing.model["family"] else sizing.recurrent)
    if family != sizing.model["family"]:
        kept = {name: value for name, value in sizing.model.items() if name == "dropout"}
        return {"layers": 2, "width": 128, **kept}
    chosen = dict(sizing.model)
    if ORDER & shape.keys():  # whoever asks how order is known should get that and nothing beside it
        chosen.pop("shift", None)
    return {**chosen, **(sizing.on_gpu if machine.device.type != "cpu" else {})}


def _divisible(batch: int, training: dict[str, Any], processes: int) -> int:
    """A batch near this one that falls into equal parts, for micro-batches and processes."""
    parts = training.get("accumulate", 1) * processes
    return max(parts, batch // parts * parts)


def _rhythm(steps: int, training: dict[str, Any], evaluations: int = EVALUATIONS) -> dict[str, Any]:
    """How often to measure and save, and how long to warm up."""
    often, save = (max(10, -(-steps // count)) for count in (evaluations, EVALUATIONS))
    warmup: dict[str, Any] = {"warmup": min(100, steps // 10)}
    if training.get("optimizer") == "adam" and training.get("schedule", "noam") == "noam":
        fitting = min(PAPER_WARMUP, max(1, steps // 5))
        # To the paper's highest rate, which by its formula a shorter warm-up would exceed.
        warmup = {"warmup": fitting, "lr": round(sqrt(fitting / PAPER_WARMUP), 4)}
    elif training.get("schedule") == "noam":
        warmup = {}
    return {"eval_every": often, "checkpoint_every": save, "patience": 4, **warmup}


def _reasons(config: Config, data: Task, passes: str, why: str, seconds: float, hint: bool) -> list[str]:
    m, t = config.model, config.training
    with ShapesAlone():
        count = parameter_count(data.build(m))
    return [
        f"Model: {m.family}, {in_layers(m.layers)}, width {m.width}, {_count(count)} parameters, "
        f"context {m.context}: {why}.",
        f"Training: {t.steps} steps of {t.batch} × {m.context} tokens, {passes}, dropout {m.dropout:g}; "
        f"about {_time(t.steps * seconds)} at {seconds * 1000:.0f} ms a step"
        f"{' (--set training.minutes=30 for a better model)' if hint else ''}.",
    ]


def in_layers(count: int) -> str:
    return "1 layer" if count == 1 else f"{count} layers"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 60 else f"{seconds / 60:.1f} minutes"


def _heads_for(width: int) -> int:
    """As many heads as make them nearest to the usual width, and even."""
    counts = [h for h in range(1, width + 1) if width % h == 0 and (width // h) % 2 == 0] or [1]
    return min(counts, key=lambda h: abs(width // h - HEAD_WIDTH))


def _count(n: int) -> str:
    return f"{n / 1e6:.2f} M" if n >= 1e6 else f"{n / 1e3:.0f} k" if n >= 1e3 else str(n)
