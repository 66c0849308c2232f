"""Tagging: a label for each word of a sentence."""

import re
import string
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.config.model import ModelConfig
from glassformer.config.schema import Config
from glassformer.core.errors import UsageError
from glassformer.data.examples import Example, Examples
from glassformer.evaluation.accuracy import classification
from glassformer.evaluation.result import Result
from glassformer.inspection.questions import Question
from glassformer.models.build import Encoder
from glassformer.objectives.loss import NOT_SCORED
from glassformer.tasks.labels import LabelTask
from glassformer.tasks.task import Sizing, as_ids, refuse_target


class TagTask(LabelTask):
    name = "tag"
    asked = "its tag for the word"

    @staticmethod
    def build(config: ModelConfig) -> nn.Module:
        return Encoder(config, "labels")

    @staticmethod
    def texts(source: Examples, limit: int | None = None) -> Iterator[str]:
        return (f" {word}" for words, _ in source.require("train") for word in words)

    @staticmethod
    def _inputs(examples: list[Example]) -> Iterator[str]:
        """Words, and what may stand between them, which it never reads."""
        yield string.whitespace
        yield from (word for words, _ in examples for word in words)

    def learned_with(self) -> Sizing:
        """A net that reads in both directions: what a word is depends on its neighbours most of all."""
        return Sizing(
            {"family": "lstm", "layers": 2, "width": 192, "dropout": 0.3},
            {"layers": 2, "width": 192, "dropout": 0.3},
            {"token_dropout": 0.1},
            epochs=12,
        )

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

    def _input_text(self, x: Any, position: int) -> str:
        starts = self.encode_words(x)[1]
        index = starts.index(position)
        pieces = [f"[{word}]" if i == index else word for i, word in enumerate(x)]
        return " ".join(pieces[max(0, index - 6) : index + 7])

    def baselines(self, split: str) -> dict[str, Result]:
        """The most frequent tag; and the most frequent tag of each word."""
        train, held_out = self.source.require("train"), self.source.require(split)
        y, truth = ([np.array([self.label_id(t) for t in tags]) for _, tags in e] for e in (train, held_out))
        word_counts: dict[str, Counter[int]] = {}
        for (words, _), labels in zip(train, y, strict=True):
            for word, label in zip(words, labels.tolist(), strict=True):
                word_counts.setdefault(word, Counter())[label] += 1
        overall = Counter(int(label) for labels in y for label in labels)
        nats: list[float] = []
        right: list[bool] = []
        for (words, _), labels in zip(held_out, truth, strict=True):
            for word, label in zip(words, labels.tolist(), strict=True):
                counts = word_counts.get(word, overall)
                share = (counts[label] + 0.1) / (counts.total() + 0.1 * len(self.labels))
                nats.append(-float(np.log(share)))
                right.append(counts.most_common(1)[0][0] == label)
        per_word = classification(split, np.array(nats), np.array(right))
        return {"majority": self._majority(split, y, truth), "most frequent tag of the word": per_word}

    def inputs(
        self, model: nn.Module, config: Config, text: str, target: str | None = None
    ) -> tuple[Tensor, ...]:
        refuse_target(self, target)
        return (as_ids(self.encode_words(text.split())[0]),)

    def word_places(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """As it reads them: what stands between blanks, each with a blank before it."""
        ids, places = [self.eot_id], [(0, 0)]
        for match in re.finditer(r"\S+", text):
            pieces, cut = super().word_places(f" {match[0]}")
            if not pieces:
                return [], []
            ids += pieces[1:]
            places += [(match.start() + a - 1, match.start() + b - 1) for a, b in cut[1:]]
        return ids, places

    def question(self, ids: list[int], word: list[int]) -> Question | None:
        return Question(ids, word[:1], None)

    @torch.no_grad()
    def tags(self, model: nn.Module, config: Config, words: list[str]) -> list[str]:
        """The tag of each word."""
        ids, starts = self.encode_words(words)
        if len(ids) > config.model.context:
            raise UsageError(f"{len(ids)} tokens are more than the context of {config.model.context}")
        answers = model(as_ids(ids).to(next(model.parameters()).device))[0].argmax(-1).tolist()
        return [self.labels[answers[i]] for i in starts]

    def label(self, model: nn.Module, config: Config, text: str) -> "TaggedText":
        words = text.split()
        return TaggedText(words, self.tags(model, config, words))

    def unanswered(self, text: str) -> "TaggedText":
        return TaggedText([], [])


@dataclass(frozen=True)
class TaggedText:
    words: list[str]
    tags: list[str]

    def as_json(self) -> list[dict[str, str]]:
        return [{"word": w, "tag": t} for w, t in zip(self.words, self.tags, strict=True)]

    def show(self) -> str:
        return "  ".join(f"{w}/{t}" for w, t in zip(self.words, self.tags, strict=True))
