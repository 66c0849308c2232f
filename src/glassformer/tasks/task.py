"""A job: a task bound to its data and its tokenizer. All that training and measuring ask, in one interface.

The parts stand in the folders of the flow (text, models, tasks, evaluation, generation); a job joins those
that belong to one task, so that nothing else needs to ask which task it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from torch import nn

from glassformer.config.model import ModelConfig
from glassformer.config.schema import Config, DataConfig, Settings
from glassformer.data.examples import Examples
from glassformer.data.shard_writer import Progress
from glassformer.data.sources import Corpus
from glassformer.evaluation.error_analysis import Mistakes
from glassformer.evaluation.result import Result
from glassformer.objectives.objective import Objective
from glassformer.tokenizers.tokenizer import END_OF_TEXT, Tokenizer


class Task(ABC):
    name: ClassVar[str]
    specials: ClassVar[tuple[str, ...]] = (END_OF_TEXT,)  # what its tokenizer must know
    options: ClassVar[tuple[str, ...]] = ()  # what its evaluation can be told
    own_data = True  # False: data that the run was not trained on
    source: Any  # a Corpus or Examples

    @classmethod
    @abstractmethod
    def open(cls, data: DataConfig) -> Corpus | Examples:
        """The data that the settings name."""

    @staticmethod
    @abstractmethod
    def texts(source: Any, limit: int | None = None) -> Iterator[str]:
        """What a tokenizer learns from: the text of the training split."""

    @abstractmethod
    def __init__(
        self, source: Any, tokenizer: Tokenizer | None, data: DataConfig, progress: Progress = lambda _: None
    ):
        """Turn the data into ids."""

    @staticmethod
    @abstractmethod
    def build(config: ModelConfig) -> nn.Module:
        """A new model for this task."""

    @abstractmethod
    def settings(self) -> Settings:
        """What the data says about model and data: vocabulary, labels."""

    @abstractmethod
    def describe(self) -> str:
        """The data in a few words, for a person."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """The data in numbers, for data.json."""

    @abstractmethod
    def objective(self, model: nn.Module, config: Config) -> Objective:
        """What is to be learned, on the training split."""

    @abstractmethod
    def evaluate(
        self, model: nn.Module, config: Config, split: str, *, full: bool = True, **options: Any
    ) -> Result:
        """Measure a model on a whole split; not `full`: only what is cheap enough to do in training."""

    @abstractmethod
    def check(self, config: Config) -> None:
        """Refuse what the data cannot serve, before anything is written."""

    def warnings(self, config: Config, split: str) -> list[str]:
        """What a person should know about a measurement on this split."""
        return []

    def unknown_share(self, split: str) -> float:
        """The share of tokens that stand for words the tokenizer does not know."""
        return 0.0

    def sample(self, model: nn.Module, config: Config) -> str | None:
        """Something the model makes as it is now, for a person to look at."""
        return None

    @abstractmethod
    def mistakes(self, model: nn.Module, config: Config, split: str, **options: Any) -> Mistakes:
        """Where the model goes wrong on a split."""

    @abstractmethod
    def baselines(self, split: str) -> dict[str, Result]:
        """What models that know next to nothing reach on the same split."""
