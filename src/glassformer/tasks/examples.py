"""What the tasks on examples share: they are read into memory and turned into ids, split by split."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from copy import copy
from random import Random
from typing import Any

import numpy as np

from glassformer.config.data import DataConfig
from glassformer.config.schema import Config
from glassformer.config.section import Settings
from glassformer.core.errors import DataError, UsageError
from glassformer.data.characters import characters_of
from glassformer.data.columns import TableWish
from glassformer.data.datasets import open_examples
from glassformer.data.examples import Example, Examples, label_names
from glassformer.data.patches import Geometry
from glassformer.data.shard_writer import Progress
from glassformer.data.shards import Say, tokenizer_fingerprint
from glassformer.objectives.objective import Recut
from glassformer.tasks.task import ExampleAmount, Sizing, Task
from glassformer.tokenizers.bpe_tokenizer import BPE
from glassformer.tokenizers.tokenizer import Tokenizer

LEAST_EXAMPLES = 8


class ExamplesTask(Task):
    source: Examples
    _cut: Callable[[str, Tokenizer], list[int]] | None = None  # another way than the tokenizer's own

    def __init__(
        self,
        source: Examples | None,
        tokenizer: Tokenizer | None,
        data: DataConfig,
        progress: Progress = lambda _: None,
        say: Say = lambda _: None,
        source_tokenizer: Tokenizer | None = None,
    ):
        self.source, self._tokenizer = source or Examples("nothing", {}, ""), tokenizer
        self.labels = data.labels or self._labels()
        self._encoded: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}

    @property
    def tokenizer(self) -> Tokenizer | None:
        return self._tokenizer

    @classmethod
    def open(cls, data: DataConfig) -> Examples:
        wish = Geometry(data.image_size, data.patch_size, data.channels)
        table = TableWish(data.text_column, data.label_column, tuple(data.labels), data.newlines)
        return open_examples(data.source, cls.name, data.target, data.valid, data.test, wish, table)

    def _labels(self) -> list[str]:
        """Those of all splits: a rare one may be missing in training, and is then never said."""
        self.source.require("train", LEAST_EXAMPLES)
        return label_names(e for examples in self.source.splits.values() for e in examples)

    @abstractmethod
    def encode(self, example: Example) -> tuple[np.ndarray, np.ndarray]:
        """An example in numbers: input and output."""

    def encoded(self, split: str, context: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """All examples of a split, cut to what the model can see."""
        if split not in self._encoded:
            self._encoded[split] = [self.encode(e) for e in self.source.require(split)]
        return [(x[:context], y[:context] if y.ndim else y) for x, y in self._encoded[split]]

    def warnings(self, config: Config, split: str) -> list[str]:
        lengths = [max(len(x), y.size) for x, y in self.encoded(split, 1 << 30)]
        cut = sum(n > config.model.context for n in lengths)
        if not cut:
            return []
        return [
            f"{cut} of {len(lengths)} examples in {split} are longer than model.context "
            f"{config.model.context} and are cut there"
        ]

    def check(self, config: Config) -> None:
        for split in ("train", "valid"):
            self.encoded(split, config.model.context)

    def ids(self, text: str, tokenizer: Tokenizer | None = None) -> list[int]:
        """The ids of a text, by the tokenizer of the task unless another is given."""
        tokenizer = self.text_tokenizer if tokenizer is None else tokenizer
        return self._cut(text, tokenizer) if self._cut else tokenizer.encode(text)

    def recut(self, dropout: float, context: int) -> Recut | None:
        """How a training example is cut anew each time it is seen: BPE-dropout."""
        if not dropout:
            return None
        if not isinstance(self.tokenizer, BPE):  # two of them are of one kind
            raise UsageError(
                "training.merge_dropout leaves out merges of byte-pair encoding: tokenizer.kind bpe"
            )
        examples = self.source.require("train")

        def cut(row: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
            task, random = copy(self), Random(seed)

            def sample(text: str, tokenizer: Tokenizer) -> list[int]:
                assert isinstance(tokenizer, BPE)
                return tokenizer.sample(text, dropout, random)

            task._cut = sample
            x, y = task.encode(examples[row])
            return x[:context], y[:context] if y.ndim else y

        return cut

    @property
    def eot_id(self) -> int:
        return mark_of(self.text_tokenizer)

    def settings(self) -> Settings:
        """The longest training example decides how much a model must be able to see."""
        self.source.require("train", LEAST_EXAMPLES)
        if not self.source.splits.get("valid"):
            raise DataError(
                f"{self.source.name}: no examples to validate on. Give more, or set data.valid higher."
            )
        vocab = {} if self.tokenizer is None else {"vocab": len(self.tokenizer)}
        labels = {"labels": len(self.labels)} if self.labels else {}
        return {"model": {**vocab, **labels}, "data": {"labels": self.labels}}

    def amount(self) -> ExampleAmount:
        lengths = [max(len(x), y.size) + 1 for x, y in self.encoded("train", 1 << 30)]
        return ExampleAmount(np.array(lengths), self.learned_with(), len(self.source.require("valid")))

    @abstractmethod
    def learned_with(self) -> Sizing:
        """What so many examples of this kind are learned best with."""

    @staticmethod
    def of_single_words(source: Examples) -> bool:
        """Whether examples are made of letters rather than words."""
        return False

    def describe(self) -> str:
        counts = ", ".join(f"{len(e):,} {split}" for split, e in self.source.splits.items())
        kinds = f", {len(self.labels)} labels" if self.labels else ""
        return f"{self.source.name}, {counts}{kinds} ({self.source.rule})"

    def facts(self) -> dict[str, Any]:
        seal = {"tokenizer_fingerprint": tokenizer_fingerprint(self.tokenizer)} if self.tokenizer else {}
        facts: dict[str, Any] = {
            **seal,
            "examples": {split: len(e) for split, e in self.source.splits.items()},
        }
        if self.tokenizer is not None:
            facts["characters"] = characters_of(self._inputs(self.source.require("train")))
        return facts

    @staticmethod
    def _inputs(examples: list[Example]) -> Iterator[str]:
        """The texts that examples give a model to read."""
        return (x for x, _ in examples if isinstance(x, str))


def mark_of(tokenizer: Tokenizer | None) -> int:
    if tokenizer is None or tokenizer.eot_id is None:
        raise DataError("this tokenizer has no end-of-text mark, which begins every sequence here")
    return tokenizer.eot_id
