"""What classifying and tagging share: labels, what they are measured by, and the most frequent one."""

from abc import abstractmethod
from typing import Any, Protocol

import numpy as np
from torch import nn

from glassformer.config.schema import Config
from glassformer.config.section import Settings
from glassformer.core.errors import DataError, UsageError
from glassformer.data.examples import label_names
from glassformer.evaluation.accuracy import Classification, answers, classification, evaluate_labels
from glassformer.evaluation.error_analysis import Mistakes, label_mistakes
from glassformer.objectives.labelling import Labelling
from glassformer.objectives.objective import NOT_SCORED, Objective
from glassformer.tasks.examples import ExamplesTask
from glassformer.tasks.task import DEFAULTS, EvalOptions


class LabelTask(ExamplesTask):
    """A label for a whole text, or for each word of it."""

    command = "classify"

    def settings(self) -> Settings:
        if len(self.labels) < 2:
            raise DataError(f"{self.source.name}: one label, {self.labels[0]!r}, is nothing to tell apart.")
        return super().settings()

    def warnings(self, config: Config, split: str) -> list[str]:
        missing = sorted(set(self.labels) - set(label_names(self.source.splits.get("train", []))))
        if split != "train" or not missing:
            return super().warnings(config, split)
        return [*super().warnings(config, split), f"no training example has the label {', '.join(missing)}"]

    def _objective(self, split: str, context: int, **options: Any) -> Labelling:
        inputs, labels = zip(*self.encoded(split, context), strict=True)
        return Labelling(self.name, inputs, labels, **options)

    def objective(self, model: nn.Module, config: Config) -> Objective:
        t = config.training
        if t.token_dropout and self.tokenizer is None:
            raise UsageError("training.token_dropout hides tokens of text; images have none")
        hiding = {"token_dropout": t.token_dropout, "mask_id": self.eot_id} if t.token_dropout else {}
        options = {
            "batch": t.batch,
            "seed": t.seed,
            "recut": self.recut(t.merge_dropout, config.model.context),
        }
        return self._objective("train", config.model.context, **options, **hiding)

    def evaluate(
        self,
        model: nn.Module,
        config: Config,
        split: str,
        options: EvalOptions = DEFAULTS,
        *,
        full: bool = True,
    ) -> Classification:
        examples = self.encoded(split, 1 << 30)
        cut_labels = sum(int((y[config.model.context :] != NOT_SCORED).sum()) for _, y in examples if y.ndim)
        return evaluate_labels(model, self._objective(split, config.model.context), split, cut_labels)

    def mistakes(
        self,
        model: nn.Module,
        config: Config,
        split: str,
        options: EvalOptions = DEFAULTS,
    ) -> Mistakes:
        examples, names = self.source.require(split), self.source.names.get(split)
        predictions = answers(model, self._objective(split, config.model.context))
        return label_mistakes(
            predictions,
            self.labels,
            lambda row, place: names[row] if names else self._input_text(examples[row][0], place),
        )

    def _input_text(self, x: Any, position: int) -> str:
        """An example as a person reads it."""
        return x if isinstance(x, str) else f"an image of {len(x)} patches"

    def label_id(self, label: str) -> int:
        try:
            return self.labels.index(label)
        except ValueError:
            known = ", ".join(self.labels[:20])
            raise DataError(
                f"{self.source.name}: the label '{label}' was not in training; there are: {known}."
            ) from None

    def _majority(self, split: str, answers: list[np.ndarray], truth: list[np.ndarray]) -> Classification:
        """Always the most frequent label of training, with probabilities as frequent as there."""
        counts = np.bincount(np.concatenate([a.ravel() for a in answers]), minlength=len(self.labels)) + 1
        labels = np.concatenate([t.ravel() for t in truth])
        return classification(split, -np.log(counts[labels] / counts.sum()), labels == counts.argmax())

    @classmethod
    def next_command(cls, run: str, config: Config) -> str:
        if config.model.patch:
            return f"Use it: glassformer {cls.command} {run} an-image.png"
        return super().next_command(run, config)

    def output_name(self, number: int) -> str:
        return str(self.labels[number])

    @abstractmethod
    def label(self, model: nn.Module, config: Config, text: str) -> "Labelled":
        """What the model says about a text of the user's."""


class Labelled(Protocol):
    """An answer to a text."""

    def as_json(self) -> Any: ...

    def show(self) -> str: ...
