"""Labels of texts and images (classify), and of words (tag)."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import nn

from glassformer.config.model import ModelConfig
from glassformer.config.schema import Config, Settings
from glassformer.core.errors import DataError, UsageError
from glassformer.data.examples import Example, Examples, label_names
from glassformer.evaluation.accuracy import Classification, answers, classification, evaluate_labels
from glassformer.evaluation.error_analysis import Mistakes, label_mistakes
from glassformer.evaluation.result import Result
from glassformer.models.bag_of_words import PENALTIES, Bag
from glassformer.models.build import Encoder
from glassformer.objectives.labelling import Labelling
from glassformer.objectives.objective import NOT_SCORED, Objective
from glassformer.tasks.examples import ExamplesTask


class LabelTask(ExamplesTask):
    """What classifying and tagging share."""

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
        hiding = {"hidden": t.token_dropout, "by": self.eot_id} if t.token_dropout else {}
        options = {
            "batch": t.batch,
            "seed": t.seed,
            "recut": self.recut(t.merge_dropout, config.model.context),
        }
        return self._objective("train", config.model.context, **options, **hiding)

    def evaluate(
        self, model: nn.Module, config: Config, split: str, *, full: bool = True, **options: Any
    ) -> Classification:
        found = self.encoded(split, 1 << 30)
        unseen = sum(int((y[config.model.context :] != NOT_SCORED).sum()) for _, y in found if y.ndim)
        return evaluate_labels(model, self._objective(split, config.model.context), split, unseen)

    def mistakes(self, model: nn.Module, config: Config, split: str, **options: Any) -> Mistakes:
        examples = self.source.require(split)
        found = answers(model, self._objective(split, config.model.context))
        return label_mistakes(found, self.labels, lambda row, place: self._shown(examples[row][0], place))

    def _shown(self, given: Any, place: int) -> str:
        """An example as a person reads it."""
        return given if isinstance(given, str) else f"an image of {len(given)} patches"

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


class ClassifyTask(LabelTask):
    name = "classify"

    @staticmethod
    def build(config: ModelConfig) -> nn.Module:
        return Encoder(config, "label")

    @staticmethod
    def texts(source: Examples, limit: int | None = None) -> Iterator[str]:
        return (text for text, _ in source.require("train") if isinstance(text, str))

    def encode(self, example: Example) -> tuple[np.ndarray, np.ndarray]:
        given, label = example
        return self.encode_input(given), np.array(self.label_id(label))

    def encode_input(self, given: str | np.ndarray) -> np.ndarray:
        return np.array([self.eot_id, *self.ids(given)]) if isinstance(given, str) else given

    def settings(self) -> Settings:
        settings = super().settings()
        given, _ = self.source.require("train")[0]
        if not isinstance(given, str):
            settings["model"]["patch"] = given.shape[1]
        return settings

    def baselines(self, split: str) -> dict[str, Result]:
        train, held_out = self.source.require("train"), self.source.require(split)
        y, truth = ([np.array(self.label_id(label)) for _, label in e] for e in (train, held_out))
        given, asked = [x for x, _ in train], [x for x, _ in held_out]
        tuning = self.source.splits.get("valid") or held_out
        wanted = np.array([self.label_id(label) for _, label in tuning])

        def fitting(bag: Bag) -> float:
            return float((bag.scores([x for x, _ in tuning]).argmax(-1).numpy() == wanted).mean())

        labels = [int(label) for label in y]
        bags = [Bag(given, labels, len(self.labels), penalty) for penalty in PENALTIES]
        scores = max(bags, key=fitting).scores(asked).numpy()
        answers = np.array([int(t) for t in truth])
        bag = classification(split, -scores[np.arange(len(answers)), answers], scores.argmax(-1) == answers)
        what = "bag of words" if isinstance(given[0], str) else "logistic regression"
        return {"majority": self._majority(split, y, truth), what: bag}


class TagTask(LabelTask):
    name = "tag"

    @staticmethod
    def build(config: ModelConfig) -> nn.Module:
        return Encoder(config, "labels")

    @staticmethod
    def texts(source: Examples, limit: int | None = None) -> Iterator[str]:
        return (f" {word}" for words, _ in source.require("train") for word in words)

    def encode(self, example: Example) -> tuple[np.ndarray, np.ndarray]:
        """The first piece of a word carries its tag; the others have nothing to get right."""
        words, tags = example
        ids, starts = self.encode_words(words)
        labels = np.full(len(ids), NOT_SCORED)
        labels[starts] = [self.label_id(tag) for tag in tags]
        return ids, labels

    def encode_words(self, words: list[str]) -> tuple[np.ndarray, list[int]]:
        ids, starts = [self.eot_id], []
        for word in words:
            starts.append(len(ids))
            ids += self.ids(f" {word}") or [self.eot_id]
        return np.array(ids), starts

    def _shown(self, given: Any, place: int) -> str:
        starts = self.encode_words(given)[1]
        at = starts.index(place)
        marked = [f"[{word}]" if i == at else word for i, word in enumerate(given)]
        return " ".join(marked[max(0, at - 6) : at + 7])

    def baselines(self, split: str) -> dict[str, Result]:
        """The most frequent tag; and the most frequent tag of each word."""
        train, held_out = self.source.require("train"), self.source.require(split)
        y, truth = ([np.array([self.label_id(t) for t in tags]) for _, tags in e] for e in (train, held_out))
        seen: dict[str, Counter[int]] = {}
        for (words, _), labels in zip(train, y, strict=True):
            for word, label in zip(words, labels.tolist(), strict=True):
                seen.setdefault(word, Counter())[label] += 1
        overall = Counter(int(label) for labels in y for label in labels)
        nats: list[float] = []
        right: list[bool] = []
        for (words, _), labels in zip(held_out, truth, strict=True):
            for word, label in zip(words, labels.tolist(), strict=True):
                counts = seen.get(word, overall)
                share = (counts[label] + 0.1) / (counts.total() + 0.1 * len(self.labels))
                nats.append(-float(np.log(share)))
                right.append(counts.most_common(1)[0][0] == label)
        own = classification(split, np.array(nats), np.array(right))
        return {"majority": self._majority(split, y, truth), "most frequent tag of the word": own}
