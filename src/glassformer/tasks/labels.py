"""What classifying and tagging share: labels, what they are measured by, and the most frequent one."""

from abc import abstractmethod
from collections import Counter
from typing import Any, Protocol

import numpy as np
from torch import nn

from glassformer.config.schema import COMMANDS, Config
from glassformer.config.section import Settings
from glassformer.core.errors import DataError, UsageError
from glassformer.data.columns import is_number
from glassformer.data.examples import label_names
from glassformer.evaluation.accuracy import Classification, answers, classification, evaluate_labels
from glassformer.evaluation.error_analysis import Mistakes, label_mistakes
from glassformer.objectives.labelling import Labelling
from glassformer.objectives.loss import NOT_SCORED
from glassformer.objectives.objective import Objective
from glassformer.tasks.examples import ExamplesTask
from glassformer.tasks.task import DEFAULTS, EvalOptions

MANY_LABELS = 20  # more are looked at twice
FEW_EXAMPLES = 5  # for each label, on average, of which little can be learned
MAJORITY = 0.8  # share of one label from which on accuracy alone says little


class LabelTask(ExamplesTask):
    """A label for a whole text, or for each word of it."""

    def settings(self) -> Settings:
        if len(self.labels) < 2:
            raise DataError(f"{self.source.name}: one label, {self.labels[0]!r}, is nothing to tell apart.")
        self._refuse_single_labels()
        return super().settings()

    def _refuse_single_labels(self) -> None:
        """Labels of which none comes twice cannot be learned: what is held out has others."""
        counts = self._label_counts(*self.source.splits)
        if counts.total() == len(counts):
            raise DataError(
                f"{self.source.name}: its {len(counts):,} examples have {len(counts):,} different labels, "
                "none of them twice, so that nothing can be learned. If another column is the label, name it "
                "with --label-column; numbers on a scale are for regression, which this is not."
            )

    def _label_counts(self, *splits: str) -> Counter[str]:
        answers = (answer for split in splits for _, answer in self.source.splits.get(split, []))
        return Counter(name for a in answers for name in ([a] if isinstance(a, str) else a))

    def report(self) -> list[str]:
        """Labels that look like something else, and one that is nearly always right."""
        counts = self._label_counts("train")
        lines: list[str] = []
        fractions = sum(is_number(label) and not label.lstrip("+-").isdecimal() for label in counts)
        if len(counts) > MANY_LABELS and fractions > len(counts) / 2:
            lines.append(
                f"Warning: {len(counts):,} different numbers are the labels, such as {next(iter(counts))}: "
                "this looks like a quantity to predict (regression), and each number is learned as a name of "
                "its own. Put them into a few classes first."
            )
        elif len(counts) > max(MANY_LABELS, counts.total() / FEW_EXAMPLES):
            lines.append(
                f"Warning: {len(counts):,} labels for {counts.total():,} training examples, "
                f"{counts.total() / len(counts):.1f} for each: too few to learn most of them."
            )
        (label, count), *_ = counts.most_common(1)
        if count >= MAJORITY * counts.total():
            lines.append(
                f"Note: {count / counts.total():.1%} of the training labels are {label!r}: a model that "
                "always says so is right as often. Compare the accuracy with that of the baseline `majority`."
            )
        return lines

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

    @staticmethod
    def advice(config: Config, run: str) -> str:
        first = ", or learn from other text first (--task masked) and begin with that (--init)"
        begin = "" if config.model.patch else first
        longer = f"glassformer train --out {run} --more-minutes 5"
        return f"give it more examples{begin}; or train it longer: {longer}"

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
            return f"Use it: glassformer {COMMANDS[cls.name]} {run} an-image.png"
        return super().next_command(run, config)

    def output_name(self, number: int) -> str:
        return str(self.labels[number])

    @abstractmethod
    def label(self, model: nn.Module, config: Config, text: str) -> "Labelled":
        """What the model says about a text of the user's."""

    @abstractmethod
    def unanswered(self, text: str) -> "Labelled":
        """What stands for the answer to a text that is nothing but blanks."""


class Labelled(Protocol):
    """An answer to a text."""

    def as_json(self) -> Any: ...

    def show(self) -> str: ...
