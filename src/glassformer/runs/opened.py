"""A run directory: what everything after training opens.

    config.yaml         every setting, resolved
    tokenizer.json      in the Hugging Face format; source_tokenizer.json beside it where a translator has two
    model.safetensors   the best weights by validation
    metrics.jsonl       the record of training, one JSON object per line
    seal.json           what all of these must be
    data.json           which text it was trained on: fingerprints, splits, sizes
    result.json         how it ended
    checkpoints/        what resuming needs
    stdin/              the text, where it came through standard input
    loss.svg, loss.png  the loss curve; loss.caption.txt says in a sentence what it shows

All of it is data; nothing in it is ever executed. Opening one changes nothing, not even the process.
"""

import json
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

from torch import nn

from glassformer.config.data import DataConfig
from glassformer.config.saved import SEALED_VERSION, load_config, refuse_edited
from glassformer.config.schema import Config
from glassformer.core.device import choose_device
from glassformer.core.errors import RunError, UsageError
from glassformer.core.notebook import html_table
from glassformer.data.examples import Examples
from glassformer.data.sources import Corpus
from glassformer.data.text_files import find_input
from glassformer.evaluation.verdict import verdict
from glassformer.models.model import LanguageModel
from glassformer.runs.begin import SOURCE_TOKENIZER, TOKENIZER
from glassformer.runs.folder import refuse_no_run, refuse_other_task
from glassformer.tasks.registry import TASKS, find_task
from glassformer.tasks.task import Task
from glassformer.tokenizers.load import parse_tokenizer
from glassformer.tokenizers.tokenizer import Tokenizer
from glassformer.training.checkpoint.run_seal import (
    RESULTS,
    WEIGHTS,
    find_seal,
    load_sealed,
    read_sealed,
    require_seal,
)
from glassformer.training.checkpoint.weights import load_weights
from glassformer.training.log import parse_metrics

RESULT = RESULTS[0]
Warn = Callable[[str], None]
T = TypeVar("T", bound=Task)
R = TypeVar("R")


class OpenedRun:
    """What a run directory holds, read when it is first asked for and held to its seal."""

    def __init__(self, path: str | Path, device: str = "auto"):
        self.path = Path(path)
        refuse_no_run(self.path)
        self.config: Config = load_config(self.path / "config.yaml")
        seal = (
            find_seal(self.path) if self.config.format_version < SEALED_VERSION else require_seal(self.path)
        )
        self.is_sealed = seal is not None
        if seal is not None:
            refuse_edited(self.path / "config.yaml", self.config, seal.settings)
        self.device = choose_device(device)
        self._tasks: dict[str | None, Task] = {}

    def __repr__(self) -> str:
        model = self.config.model
        sizes = f"{model.family}, {model.layers} layers of width {model.width}"
        return f"{type(self).__name__}({str(self.path)!r}, {self.config.task}, {sizes})"

    def _repr_html_(self) -> str:
        model = self.config.model
        rows = [("task", self.config.task), ("data", str(self.data.get("source", self.config.data.source)))]
        rows.append(("model", f"{model.family}, {model.layers} layers of width {model.width}"))
        try:
            result = self.result
            rows.append(("parameters", f"{result['parameters']:,}"))
            rows.append(("validation", str(result.get("summary", ""))))
            rows.append(("training", f"{result['steps']:,} steps, {result['seconds']:,.0f} s"))
            rows.append(("baselines", self.verdict))
        except RunError as error:  # not finished, or made elsewhere
            rows.append(("training", str(error)))
        return html_table(rows, str(self.path))

    # What it holds

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """What it reads and writes with; of a translator with two, that of the target."""
        return self._read_tokenizer(TOKENIZER)

    @property
    def has_own_source(self) -> bool:
        """Whether a translator has a vocabulary for each side."""
        return self.config.tokenizer.sides == "separate"

    @cached_property
    def source_tokenizer(self) -> Tokenizer:
        """What a translator reads with; where both sides have one vocabulary, `tokenizer`."""
        return self._read_tokenizer(SOURCE_TOKENIZER) if self.has_own_source else self.tokenizer

    def _read_tokenizer(self, name: str) -> Tokenizer:
        return parse_tokenizer(self.path / name, lambda: read_sealed(self.path, name, self.is_sealed))

    @cached_property
    def model(self) -> nn.Module:
        """The best model of the run, ready to use."""
        weights = self.path / "model.safetensors"
        if not weights.is_file():
            raise RunError(
                f"{self.path} has no model.safetensors yet: training was stopped before its first "
                "evaluation. Go on with --resume."
            )
        self._refuse_foreign_tokenizers()
        model = self.load_weights(self._load_model)
        return model.to(self.device).eval()

    def _refuse_foreign_tokenizers(self) -> None:
        model = self.config.model
        pairs = [] if model.patch else [(model.vocab, self.tokenizer)]
        if self.has_own_source:
            pairs.append((model.source_vocab, self.source_tokenizer))
        for vocab, tokenizer in pairs:
            if vocab != len(tokenizer):
                raise RunError(
                    f"{self.path}: the model's vocabulary is {vocab}, the tokenizer's {len(tokenizer)}; they "
                    "are not of one run."
                )

    def load_weights(self, load: Callable[[Path], R]) -> R:
        """What `load` makes of model.safetensors, which is held to the seal meanwhile."""
        return load_sealed(self.path, WEIGHTS, load, self.is_sealed)

    def _load_model(self, path: Path) -> nn.Module:
        model = find_task(self.config.task).build(self.config.model)
        load_weights(model, path)
        return model

    @cached_property
    def language_model(self) -> LanguageModel:
        """The model, where it is a language model; else refused."""
        if not isinstance(self.model, LanguageModel):
            refuse_other_task(self.path, self.config.task, ("language",), "language")
            raise UsageError(f"{self.path} is no language model, and this needs one.")
        return self.model

    @cached_property
    def data(self) -> dict[str, Any]:
        """What is known of the text it was trained on."""
        try:
            return self._read_json("data.json")
        except FileNotFoundError:
            if self.is_sealed:
                raise require_seal(self.path).refuse("data.json", None) from None
            return {}

    @cached_property
    def result(self) -> dict[str, Any]:
        """How training ended."""
        try:
            return self._read_json("result.json")
        except FileNotFoundError:
            if self.is_imported:
                raise RunError(f"{self.path} was trained elsewhere: how is not known here") from None
            raise RunError(
                f"{self.path} is not finished: it has no result.json. Go on with it: {self.go_on_command}"
            ) from None

    @property
    def verdict(self) -> str:
        """How its score stands to the best baseline, in a sentence."""
        score = self.result["score"]
        return verdict(
            (score["name"], score["value"], score["more_is_better"]),
            self.result["floor_scores"],
            self.result["valid"].get("interval"),
            self.advice,
        )

    @property
    def advice(self) -> str:
        """What to do when a baseline is better."""
        if not self.is_finished and not self.is_imported:
            return f"finish it: {self.go_on_command}"
        return find_task(self.config.task).advice(self.config, quote(str(self.path)))

    @property
    def go_on_command(self) -> str:
        """What trains it to its end."""
        return f"glassformer train --out {quote(str(self.path))} --resume"

    @property
    def is_imported(self) -> bool:
        """Whether it was trained elsewhere, so that nothing is known of its data and training."""
        return bool(self.data.get("imported"))

    @property
    def is_finished(self) -> bool:
        """Whether its training has come to an end here, and is not going on."""
        seal = find_seal(self.path)
        return (self.path / RESULT).is_file() and (seal is None or RESULT in seal.files)

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The record of training."""
        try:
            return parse_metrics(read_sealed(self.path, "metrics.jsonl", self.is_sealed))
        except FileNotFoundError:
            raise RunError(f"{self.path / 'metrics.jsonl'} is missing.") from None
        except OSError as error:
            raise RunError(f"{self.path / 'metrics.jsonl'} cannot be read: {error}.") from None

    def _read_json(self, name: str) -> dict[str, Any]:
        try:
            return dict(json.loads(read_sealed(self.path, name, self.is_sealed)))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise RunError(f"{self.path / name} cannot be read: {error.strerror or error}.") from None
        except (ValueError, TypeError, RecursionError):
            raise RunError(f"{self.path / name} is damaged: expected a JSON object.") from None

    # Its task

    @cached_property
    def bare_task(self) -> Task:
        """The run's task without its data, for texts or images that the user brings."""
        return self.bind_task(None, self.config.data)

    def bind_task(
        self, source: Corpus | Examples | None, data: DataConfig, say: Warn = lambda _: None
    ) -> Task:
        """The run's task and tokenizers, joined with data."""
        tokenizer = None if self.config.model.patch else self.tokenizer
        own = self.source_tokenizer if self.has_own_source else None
        return find_task(self.config.task)(source, tokenizer, data, say=say, source_tokenizer=own)

    def task(self, data: str | None = None, target: str | None = None, warn: Warn = lambda _: None) -> Task:
        """The run's task on its own data, or on `data`: any SOURCE; a file or folder is taken whole."""
        if data not in (None, "-"):
            return self._open_task(data, target, warn)
        if data not in self._tasks:  # standard input can be read once only
            self._tasks[data] = self._open_task(data, target, warn)
        return self._tasks[data]

    def _open_task(self, data: str | None, target: str | None, warn: Warn) -> Task:
        kind, settings = find_task(self.config.task), self.config.data
        if data is None and self.is_imported:
            raise UsageError(f"{self.path} was imported and has no data of its own: name some with --data")
        plain = {"source": data, "target": target, "mix": {}, "dedup": False, "split": "auto"}
        other = settings.model_copy(update=plain)
        source = kind.open(own_data(settings, self.path) if data is None else other)
        for warning in source.warnings:
            warn(warning)
        if data is None:
            target = f" --target {settings.target}" if settings.target else ""
            named = "one of its sources" if settings.mix else f"{settings.source}{target}"
            self.refuse_other_text(
                source, f"restore it, or measure what is there now as a whole: --data {named}"
            )
        if data is not None and source.path is not None:
            source = source.whole()
        task = self.bind_task(source, settings if data is None else other, warn)
        task.own_data = data is None
        return task

    def refuse_other_text(self, source: Corpus | Examples, instead: str) -> None:
        """A split of other text is another split: what was learned from may be what is measured."""
        begun_with = self.data.get("text_fingerprint")
        if begun_with in (None, source.fingerprint):
            return
        data = self.config.data
        name = source.name if data.mix else " or ".join(filter(None, (data.source, data.target)))
        images = f"the images of {name} are not those"
        other = images if self.config.model.patch else f"the text of {name} is not the one"
        raise RunError(
            f"{other} {self.path} was begun with: its fingerprint is "
            f"{source.fingerprint[:12]}…, then it was {begun_with[:12]}…; {instead}."
        )

    def _used_as(self, kind: type[T], wanted: str) -> T:
        fitting = [name for name, task in TASKS.items() if issubclass(task, kind)]
        refuse_other_task(self.path, self.config.task, fitting, wanted)
        bare = self.bare_task
        assert isinstance(bare, kind)
        return bare

    # Measured


def own_data(data: DataConfig, folder: Path) -> DataConfig:
    """The settings of a run's data, with the place where its text is now."""
    return data.model_copy(update={"source": find_input(data.source, folder)})
