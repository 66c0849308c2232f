"""Training from end to end: from a source of data to a run directory."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from glassformer.config.saved import continued_config, load_config, refuse_changed, sealed_settings
from glassformer.config.schema import Config, flatten
from glassformer.config.section import Settings
from glassformer.core.device import choose_device
from glassformer.core.errors import RunError, UsageError
from glassformer.core.files import make_folder, remove_temporaries, whole_path, write_atomically
from glassformer.core.lock import locked
from glassformer.core.process import tune_process
from glassformer.core.strict_json import dump_json
from glassformer.data.examples import Examples
from glassformer.data.sources import Corpus
from glassformer.models.model import parameter_count
from glassformer.models.operations import operations_per_token
from glassformer.runs.asked import More, default_name, gather_asked, held_to
from glassformer.runs.begin import (
    SOURCE_TOKENIZER,
    TOKENIZER,
    holds_something,
    refuse_existing,
    write_beginning,
)
from glassformer.runs.folder import refuse_no_run
from glassformer.runs.lengthen import change_plan, lengthen
from glassformer.runs.machine import this_machine
from glassformer.runs.opened import own_data
from glassformer.runs.prepare import prepare, refuse_other_tokenizer
from glassformer.runs.processes import as_arguments, check_division, processes_to_start
from glassformer.runs.resolve import resolve
from glassformer.runs.run import Run
from glassformer.runs.spelling import place_spelling
from glassformer.runs.vectors import find_vectors, place_vectors, refuse_other_vectors
from glassformer.tasks.registry import find_task
from glassformer.tasks.task import Task
from glassformer.training.checkpoint.run_seal import complete_settings, seal_results, unseal_results
from glassformer.training.checkpoint.weights import load_matching, load_weights
from glassformer.training.checkpoint.write import latest_checkpoint
from glassformer.training.display import Display, Silent, choose_display, closing_display
from glassformer.training.hooks import Hooks
from glassformer.training.loop import Trainer
from glassformer.training.optim import freeze
from glassformer.training.pace import Pace
from glassformer.training.parallel.launch import launch
from glassformer.training.parallel.world import World, broadcast_path, init_world
from glassformer.training.plot import plot_losses


def train(
    source: str | Path | None = None,
    *,
    task: str | None = None,
    target: str | Path | None = None,
    recipe: str | None = None,
    out: str | Path | None = None,
    init: str | Path | None = None,
    resume: bool = False,
    more_steps: int | None = None,
    more_minutes: float | None = None,
    settings: Settings | None = None,
    display: Display | Literal["auto"] | None = "auto",
    quiet: bool = False,
) -> Run:
    """Train a model on `source` and return its run.

    Progress is shown on a terminal and in a notebook; `quiet=True` or `display=None` shows nothing.

    `settings` are nested (`{"model": {"layers": 4}}`) or dotted (`{"model.layers": 4}`). Without a recipe,
    all that is not set is chosen from the data and the machine. The task follows from the source unless
    given. One of several processes (torchrun, training.processes) does its part of the same.

    A run that ended is trained on with `more_steps` or `more_minutes` (lengthen.py), which imply `resume`.
    """
    display, more = choose_display(display, quiet), More(more_steps, more_minutes)
    resume = resume or bool(more)
    began = time.monotonic() if display.began is None else display.began
    assumed: list[str] = []
    asked = gather_asked(source, task, target, recipe, settings, init=init is not None, say=assumed.append)
    folder = Path(out) if out else Path("runs") / default_name(asked)
    count = processes_to_start(asked, folder, resume)
    if count > 1:
        check_division(asked.get("training", {}), count)
        options = {"task": task, "target": target, "recipe": recipe, "init": init}
        options |= {"more-steps": more.steps, "more-minutes": more.minutes}
        display.stop()
        launch(
            as_arguments(source, folder, settings, count, resume, **options), count, type(display) is Silent
        )
        return Run(folder)
    tune_process()

    def continued() -> Config:
        return _continued(folder, source, task, target, recipe, init, settings)

    minutes = held_to(settings)
    pace = Pace(began + 60 * minutes, 60 * minutes) if minutes else None
    with init_world() as world, closing_display(display):
        if not world.is_main:
            new = world.wait_for("begun") == "new"
            config = load_config(folder / "config.yaml") if new else continued()
            return _go_on(folder, config, Silent(), world, pace if new else None)
        if resume and (folder / "config.yaml").is_file():
            return _resume(folder, continued, display, world, more)
        if more:
            refuse_no_run(folder)
        if resume:
            if holds_something(folder):
                raise RunError(
                    f"{folder} cannot be resumed: its config.yaml is missing. Restore it, or choose another "
                    "--out."
                )
            display.note(f"{folder} holds no run yet, so it is begun.")
        for line in assumed:
            display.note(line)
        return _begin(folder, asked, recipe, init, display, world, pace)


def finished(
    source: str | Path | None = None,
    *,
    out: str | Path,
    task: str | None = None,
    target: str | Path | None = None,
    recipe: str | None = None,
    init: str | Path | None = None,
    settings: Settings | None = None,
) -> Run:
    """A run that is complete, if it is the one that these arguments ask for; else refused as on resuming."""
    folder = Path(out)
    _same_data(folder, _continued(folder, source, task, target, recipe, init, settings))
    return Run(folder)


def _continued(
    folder: Path,
    source: str | Path | None,
    task: str | None,
    target: str | Path | None,
    recipe: str | None,
    init: str | Path | None,
    settings: Settings | None,
) -> Config:
    """The settings of a run that goes on: what is said now is held against what it was begun with."""
    said = gather_asked(source, task, target, recipe, settings, init=init is not None, fill=False)
    begun = Run(folder, device="cpu").data
    planned = begun.get("given", {}).get("training.steps")
    if planned is not None and said.get("training", {}).get("steps") == planned:
        said["training"] = {k: v for k, v in said["training"].items() if k != "steps"}  # as it was begun
    config, begun_from = continued_config(folder, said), begun.get("init")
    if init is not None and str(whole_path(init)) != begun_from:
        raise UsageError(
            f"{folder} was begun from {begun_from or 'no other run'}, not from {init}. Leave --init out, or "
            "start a new run with another --out."
        )
    return config


def _begin(
    folder: Path,
    asked: Settings,
    recipe: str | None,
    init: str | Path | None,
    display: Display,
    world: World,
    pace: Pace | None,
) -> Run:
    """A new run: everything is decided and written down, then it is trained."""
    refuse_existing(folder)
    base = Run(init) if init else None
    device = choose_device(asked.get("training", {}).get("device", "auto"), world.local)
    prepared = prepare(asked, base, device, display)
    task = prepared.task
    display.phase("Measuring the machine, to choose sizes")
    resolved = resolve(prepared.asked, recipe, task, this_machine(task, device, world.size))
    for reason in resolved.reasons:
        display.note(reason)
    config = resolved.config
    model = _make_model(config, device, base, world, display)
    place_spelling(model, prepared.tokenizer)
    vectors = prepared.vectors
    if vectors is not None:
        place_vectors(model, vectors, config.training.seed)

    with locked(make_folder(folder)):
        facts = task.facts()
        if base is not None and "characters" in facts:  # what its base has read it knows too
            seen = base.data.get("characters")
            facts["characters"] = "".join(sorted({*facts["characters"], *seen})) if seen else None
        record = {
            "source": prepared.source.name,
            "rule": prepared.source.rule,
            "text_fingerprint": prepared.source.fingerprint,
            **facts,
            "init": str(base.path.resolve()) if base else None,
            **({"vectors": vectors.facts()} if vectors else {}),
            "given": flatten(asked),
        }
        spooled = Path(config.data.source) if asked["data"]["source"] == "-" else None
        own = prepared.source_tokenizer
        write_beginning(folder, config, record, prepared.tokenizer, spooled=spooled, source_tokenizer=own)
        world.publish("begun", "new")
        broadcast_path(world, "checkpoint", None)
        known = _begins_where(base, config)
        return _fit(folder, config, model, task, display, device, world, pace=pace, start_counts=known)


def _make_model(
    config: Config, device: torch.device, base: Run | None, world: World, display: Display | None = None
) -> nn.Module:
    """The model at its start: drawn from the seed, or another run's; frozen where asked.

    One that is to be divided among processes waits in memory, where it need not fit a device.
    """
    torch.manual_seed(config.training.seed)
    divided = world.size > 1 and config.training.parallel == "fsdp"
    model = find_task(config.task).build(config.model).to("cpu" if divided else device)
    if base is not None and base.config.task == config.task:
        base.load_weights(lambda path: load_weights(model, path))
    elif base is not None:
        new = base.load_weights(lambda path: load_matching(model, path))
        if display is not None:
            display.note(f"From {base.path}: all weights but {', '.join(new) or 'none'}, which are new.")
    freeze(model, config.training.freeze)
    return model


def _begins_where(base: Run | None, config: Config) -> bool:
    """Whether a run begins with weights that have learned its task: they may be the best it ever has."""
    return base is not None and base.config.task == config.task


def _fit(
    folder: Path,
    config: Config,
    model: nn.Module,
    task: Task,
    display: Display,
    device: torch.device,
    world: World,
    checkpoint: Path | None = None,
    pace: Pace | None = None,
    start_counts: bool = False,
) -> Run:
    """Train the model and write down how it ended."""
    hooks = Hooks(
        evaluate=lambda: task.evaluate(model, config, "valid", full=False),
        sample=lambda: task.sample(model, config),
        display=display,
        pace=pace,
        start_counts=start_counts,
        shortened=lambda steps: change_plan(folder, config, steps=steps),
    )
    objective = task.objective(model, config)
    width = config.model.width
    trainer = Trainer(
        model, objective, config.training, folder, hooks, device=device, width=width, world=world
    )
    trainer.settings = flatten(config.model_dump(mode="json"))
    if checkpoint is not None:
        refuse_changed(checkpoint, trainer.settings)
        trainer.resume(checkpoint)
        done = trainer.progress.step >= config.training.steps
        display.note(
            f"{folder} is complete: {trainer.progress.step} steps were done before."
            if done
            else f"Continuing {folder} after step {trainer.progress.step}."
        )
    if world.is_main:
        unseal_results(folder)
    progress = trainer.run()
    if not world.is_main:
        world.wait_for("finished")
        return Run(folder, device=str(device))
    run = Run(folder, device=str(device))
    display.phase("Measuring on the whole validation split")
    valid = task.evaluate(run.model, config, "valid")
    display.phase("Measuring the baselines")
    baselines = task.baselines("valid")
    name, value, more = valid.score
    result = {
        "valid": valid.as_dict(),
        "summary": valid.summary(),
        "score": {"name": name, "value": value, "more_is_better": more},
        "floor": {name: result.as_dict() for name, result in baselines.items()},
        "floor_scores": {name: result.score[1] for name, result in baselines.items()},
        "unknown_share": task.unknown_share("valid"),
        "best_step": progress.best_step,
        "steps": progress.step,
        "tokens": progress.tokens,
        "seconds": round(progress.seconds, 2),
        "tokens_per_second": round(progress.tokens / max(progress.seconds, 1e-9), 1),
        "parameters": parameter_count(model),
        "operations_per_token": operations_per_token(model, config.model.context),
        "frozen": sum(p.numel() for p in model.parameters() if not p.requires_grad),
        "environment": trainer.environment,
    }
    display.phase("Drawing the curves")
    write_atomically(folder / "result.json", dump_json(result, indent=1))
    seal_results(folder)
    size = f"{folder.name}, {parameter_count(model):,} parameters"
    plot_losses(folder / "metrics.jsonl", size, "label" if config.task in ("classify", "tag") else "token")
    world.publish("finished", "")
    display.ended(valid.summary(), run.verdict)
    return run


def _resume(folder: Path, continued: Callable[[], Config], display: Display, world: World, more: More) -> Run:
    """Go on with a run as it was begun, from its newest checkpoint; or, if `more` is asked, longer."""
    if Run(folder).is_imported:
        raise RunError(
            f"{folder} was imported and has nothing to resume. Train from it: --init {folder} --out …"
        )
    with locked(folder):
        remove_temporaries(folder)
        config = continued()
        if more:
            _same_data(folder, config)  # nothing is changed for a run that could not go on
            lengthen(folder, config, more, display)
            config = continued()
        complete_settings(folder, sealed_settings(config))
        check_division(config.training.model_dump(), world.size)
        world.publish("begun", "before")
        return _go_on(folder, config, display, world)


def _go_on(folder: Path, config: Config, display: Display, world: World, pace: Pace | None = None) -> Run:
    """What a run directory holds, trained on; of several processes all but the first come here at once."""
    display.phase("Opening the run")
    source = _same_data(folder, config)
    begun = Run(folder, device="cpu")
    recorded = begun.data
    tokenizer = None if config.model.patch else begun.tokenizer
    refuse_other_tokenizer(folder / TOKENIZER, tokenizer, recorded.get("tokenizer_fingerprint"))
    if begun.has_own_source:
        fingerprint = recorded.get("source_tokenizer_fingerprint")
        refuse_other_tokenizer(folder / SOURCE_TOKENIZER, begun.source_tokenizer, fingerprint)
    task = begun.bind_task(source, config.data, lambda text: display.note(f"Warning: {text}."))
    checkpoint = None
    if world.is_main:
        checkpoint = latest_checkpoint(folder / "checkpoints", lambda t: display.note(f"Warning: {t}."))
        if checkpoint is None and (folder / "metrics.jsonl").is_file():
            display.note(f"Warning: {folder} holds no checkpoint, so training begins at step 1.")
    checkpoint = broadcast_path(world, "checkpoint", checkpoint)
    base = Run(recorded["init"]) if recorded.get("init") and checkpoint is None else None
    device = choose_device(config.training.device, world.local)
    model = _make_model(config, device, base, world)
    place_spelling(model, tokenizer)
    if config.data.vectors is not None and checkpoint is None:
        vectors = find_vectors(config.data.vectors, begun.source_tokenizer)
        refuse_other_vectors(vectors, recorded.get("vectors", {}).get("fingerprint"))
        place_vectors(model, vectors, config.training.seed)
    known = _begins_where(base, config)
    return _fit(folder, config, model, task, display, device, world, checkpoint, pace, known)


def _same_data(folder: Path, config: Config) -> Corpus | Examples:
    """The data of a run, if it is what the run was begun with."""
    source = find_task(config.task).open(own_data(config.data, folder))
    Run(folder, device="cpu").refuse_other_text(source, "restore it, or start a new run")
    return source
