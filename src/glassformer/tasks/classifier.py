"""Classifying: one label for a whole text, or for an image."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.config.model import ModelConfig
from glassformer.config.schema import Config
from glassformer.config.section import Settings
from glassformer.core.errors import RunError, UsageError
from glassformer.data.examples import Example, Examples, label_names
from glassformer.data.images import read_image
from glassformer.data.patches import Geometry
from glassformer.evaluation.accuracy import classification
from glassformer.evaluation.result import Result
from glassformer.inspection.questions import Question
from glassformer.models.bag_of_words import PENALTIES, Bag, Features
from glassformer.models.build import Encoder
from glassformer.tasks.labels import LabelTask
from glassformer.tasks.task import Sizing, as_ids, refuse_target
from glassformer.tokenizers.tokenizer import Tokenizer

BAG_SAMPLE = 2000  # examples that a way to cut text is judged by


class ClassifyTask(LabelTask):
    name = "classify"
    asked = "its label for the sentence"

    @staticmethod
    def build(config: ModelConfig) -> nn.Module:
        return Encoder(config, "label")

    @staticmethod
    def texts(source: Examples, limit: int | None = None) -> Iterator[str]:
        return (text for text, _ in source.require("train") if isinstance(text, str))

    def learned_with(self) -> Sizing:
        """Much is left out in training: a small model learns few texts by heart at once."""
        shape: Settings = {"layers": 2, "width": 128}
        if self.source.geometry is not None:
            model = {**shape, "family": "transformer", "position": "learned", "dropout": 0.3}
            return Sizing(model, model, {}, {"layers": 4, "width": 256}, batch=64, epochs=20)
        return Sizing(
            {**shape, "family": "transformer", "dropout": 0.5},
            {"layers": 1, "width": 128, "dropout": 0.5, "pooling": "attention"},
            {"token_dropout": 0.3},
        )

    @classmethod
    def bag_accuracy(cls, source: Examples, tokenizer: Tokenizer) -> tuple[float, float]:
        """How many training examples a bag of this tokenizer's pieces labels right; its standard error.

        A way to cut text is judged in seconds so. Each third is labelled by a bag that learned the other two.
        """
        every = source.require("train")
        examples = every[:: -(-len(every) // BAG_SAMPLE)]  # from all of it: rows may be sorted by label
        names = label_names(examples)
        thirds = [examples[i::3] for i in range(3)]
        right = 0
        for i, held_out in enumerate(thirds):
            learned = [example for third in (*thirds[:i], *thirds[i + 1 :]) for example in third]
            features = Features([x for x, _ in learned], lambda text: map(str, tokenizer.encode(text)))
            bag = Bag(features, [names.index(y) for _, y in learned], len(names), PENALTIES[-1])
            answers = bag.scores([x for x, _ in held_out]).argmax(-1).tolist()
            right += sum(names[a] == y for a, (_, y) in zip(answers, held_out, strict=True))
        share = right / len(examples)
        return share, float(np.sqrt(max(share * (1 - share), 1e-4) / len(examples)))

    def encode(self, example: Example) -> tuple[np.ndarray, np.ndarray]:
        x, label = example
        return self.encode_input(x), np.array(self.label_id(label))

    def encode_input(self, x: str | np.ndarray) -> np.ndarray:
        """Ids (T) of a text; of an image its patches (T, P), as they are."""
        if isinstance(x, str):
            return np.array([self.eot_id, *self.ids(x)])
        if self.tokenizer is not None:
            raise UsageError(f"{self.source.name} holds images; this model reads text")
        return x

    def settings(self) -> Settings:
        settings, geometry = super().settings(), self.source.geometry
        if geometry is not None:
            settings["model"]["patch"] = geometry.numbers
            settings["data"] |= {
                "image_size": geometry.size,
                "patch_size": geometry.patch,
                "channels": geometry.channels,
            }
        return settings

    def describe(self) -> str:
        images = f"; {self.source.geometry}" if self.source.geometry else ""
        return super().describe() + images

    def baselines(self, split: str) -> dict[str, Result]:
        train, held_out = self.source.require("train"), self.source.require(split)
        y, truth = ([np.array(self.label_id(label)) for _, label in e] for e in (train, held_out))
        train_inputs, inputs = [x for x, _ in train], [x for x, _ in held_out]
        tuning = self.source.splits.get("valid") or held_out
        tuning_labels = np.array([self.label_id(label) for _, label in tuning])

        def accuracy(bag: Bag) -> float:
            return float((bag.scores([x for x, _ in tuning]).argmax(-1).numpy() == tuning_labels).mean())

        labels = [int(label) for label in y]
        features = Features(train_inputs)
        bags = [Bag(features, labels, len(self.labels), penalty) for penalty in PENALTIES]
        best = max(reversed(bags), key=accuracy)  # of equals the one with the stronger penalty
        scores = best.scores(inputs).numpy()
        answers = np.array([int(t) for t in truth])
        bag = classification(split, -scores[np.arange(len(answers)), answers], scores.argmax(-1) == answers)
        name = "bag of words" if isinstance(train_inputs[0], str) else "logistic regression"
        return {"majority": self._majority(split, y, truth), name: bag}

    def inputs(
        self, model: nn.Module, config: Config, text: str, target: str | None = None
    ) -> tuple[Tensor, ...]:
        """Of an image `text` is its path."""
        refuse_target(self, target)
        geometry = self.image_geometry(config)
        if geometry is None:
            return (as_ids(self.encode_input(text)),)
        return (torch.from_numpy(read_image(text, geometry))[None],)

    def image_geometry(self, config: Config) -> Geometry | None:
        if not config.model.patch:
            return None
        geometry = Geometry(config.data.image_size, config.data.patch_size, config.data.channels)
        if not geometry.size:
            raise RunError(
                "this run was made before the size of its images was written down, so that no other can be "
                "prepared like them: train it again"
            )
        return geometry

    def question(self, ids: list[int], word: list[int]) -> Question | None:
        return Question(ids, None, None)

    @torch.no_grad()
    def probabilities(self, model: nn.Module, config: Config, text: str) -> dict[str, float]:
        """The probability of every label, the likeliest first; of an image `text` is its path."""
        x = self.inputs(model, config, text)[0][:, : config.model.context]
        shares = model(x.to(next(model.parameters()).device))[0].float().softmax(-1).tolist()
        return dict(sorted(zip(self.labels, shares, strict=True), key=lambda item: -item[1]))

    def label(self, model: nn.Module, config: Config, text: str) -> "LabelledText":
        kind = LabelledImage if config.model.patch else LabelledText
        return kind(text, self.probabilities(model, config, text))

    def unanswered(self, text: str) -> "LabelledText":
        return LabelledText(text, {})

    def preference(self, model: nn.Module, config: Config, first: str, second: str) -> float:
        """How much more probable the last label is."""
        if config.model.patch:
            raise UsageError("this model reads images: sentences mean nothing to it")
        one, other = (self.probabilities(model, config, text)[self.labels[-1]] for text in (first, second))
        return one - other

    def preference_unit(self, config: Config) -> str:
        return f"p({self.labels[-1]})"


@dataclass(frozen=True)
class LabelledText:
    """An answer; that to a blank text has no label and no probabilities, and shows as a blank line."""

    text: str
    probabilities: dict[str, float]  # the likeliest first

    def as_json(self) -> dict[str, Any]:
        label = next(iter(self.probabilities), None)
        return {"text": self.text, "label": label, "probabilities": self.probabilities}

    def show(self) -> str:
        if not self.probabilities:
            return ""
        (label, share), *others = self.probabilities.items()
        rest = ", ".join(f"{label} {share:.1%}" for label, share in others[:3])
        return f"{label}  {share:.1%}" + (f"  ({rest})" if rest else "")


class LabelledImage(LabelledText):
    """The same of an image, whose text is its path: of several one wants to know which is which."""

    def show(self) -> str:
        return f"{self.text}: {super().show()}"
