"""A task: what `--task` names, with all that belongs to it in one interface.

The parts stand in the folders of the flow (data, models, objectives, evaluation, generation, inspection); a
task joins those that belong to one thing to learn, so that nothing else needs to ask which task it is. It is
bound to a tokenizer, and to data where there is some: a run that is only used needs none.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.config.data import DataConfig
from glassformer.config.model import ModelConfig
from glassformer.config.schema import COMMANDS, Config
from glassformer.config.section import Settings
from glassformer.core.errors import UsageError
from glassformer.data.examples import Examples
from glassformer.data.patches import Geometry
from glassformer.data.shard_writer import Progress
from glassformer.data.shards import Say
from glassformer.data.sources import Corpus
from glassformer.evaluation.error_analysis import Mistakes
from glassformer.evaluation.result import Result
from glassformer.inspection.edits import Edit
from glassformer.inspection.look import Look
from glassformer.inspection.questions import Question
from glassformer.inspection.relations import Words
from glassformer.inspection.trace import parts_of, record_trace
from glassformer.objectives.objective import Objective
from glassformer.tokenizers.tokenizer import END_OF_TEXT, UNKNOWN, Tokenizer


@dataclass(frozen=True)
class EvalOptions:
    """What an evaluation can be told; a task understands some of it, and what it does not is refused."""

    stride: int | None = None  # of the windows that a language model is scored in
    beams: int | None = None  # of the search for translations
    length_penalty: float | None = None  # and what its scores are divided by
    progress: Callable[[int], None] | None = None  # called with each number of examples done

    def given(self) -> list[str]:
        return [field.name for field in fields(self) if getattr(self, field.name) is not None]


DEFAULTS = EvalOptions()


@dataclass(frozen=True)
class TextAmount:
    """How much there is to learn from, in tokens."""

    tokens: int
    valid_tokens: int


@dataclass(frozen=True)
class Sizing:
    """What small sets of examples are learned best with, where nobody says otherwise.

    Found by trying many on many sets; benchmarks/defaults.py holds the choice against a search by hand.
    """

    model: Settings  # with its family
    recurrent: Settings  # a recurrent model of the user's
    training: Settings
    on_gpu: Settings = field(default_factory=dict)  # of the model, where more is cheap
    batch: int = 32
    minutes: float = 1.6  # a run is planned for at most
    epochs: float = 10  # passes over the examples; early stopping may end sooner
    least_steps: int = 300  # however few examples there are


@dataclass(frozen=True)
class ExampleAmount:
    """How much there is to learn from, as examples: how long the sequences of each are, the longer side."""

    lengths: np.ndarray
    sizing: Sizing
    valid: int  # examples to validate on


class Task(ABC):
    name: ClassVar[str]
    specials: ClassVar[tuple[str, ...]] = (END_OF_TEXT,)  # what its tokenizer must know
    understands: ClassVar[tuple[str, ...]] = ()  # of EvalOptions
    writes: ClassVar[bool] = False  # whether a text can be gone on with
    asked: ClassVar[str] = ""  # about a word that refers to another (`question`); nothing: not looked for
    unknown_means: ClassVar[str] = (  # what is to be said of a measurement with unknown tokens
        "which says less than the text it stands for: "
        "bits per byte is not comparable with that of a lossless tokenizer"
    )
    own_data = True  # False: data that the run was not trained on
    source: Any  # a Corpus or Examples

    # The data

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
        self,
        source: Any | None,
        tokenizer: Tokenizer | None,
        data: DataConfig,
        progress: Progress = lambda _: None,
        say: Say = lambda _: None,
        source_tokenizer: Tokenizer | None = None,
    ):
        """Turn the data into ids; without a source there is none, only texts of the user's.

        `progress` is called with each number of bytes done, `say` with what a person should know, also later.
        `source_tokenizer` cuts what a translator reads, where that has a vocabulary of its own.
        """

    @abstractmethod
    def settings(self) -> Settings:
        """What the data says about model and data: vocabulary, labels."""

    @abstractmethod
    def amount(self) -> TextAmount | ExampleAmount:
        """How much there is to learn from."""

    @abstractmethod
    def describe(self) -> str:
        """The data in a few words, for a person."""

    def report(self) -> list[str]:
        """What a person should know about the data before training on it, a line each."""
        return []

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """The data in numbers, for data.json."""

    @abstractmethod
    def check(self, config: Config) -> None:
        """Refuse what the data cannot serve, before anything is written."""

    def warnings(self, config: Config, split: str) -> list[str]:
        """What a person should know about a measurement on this split."""
        return []

    def unknown_share(self, split: str) -> float:
        """The share of tokens that stand for words the tokenizer does not know."""
        return 0.0

    def unknown_warning(self, split: str) -> list[str]:
        """What to say of a measurement when some of the tokens are unknown."""
        share = self.unknown_share(split)
        return [f"{share:.2%} of the tokens are {UNKNOWN}, {self.unknown_means}"] if share else []

    # The model, what it learns and how it is measured

    @staticmethod
    @abstractmethod
    def build(config: ModelConfig) -> nn.Module:
        """A new model for this task."""

    @abstractmethod
    def objective(self, model: nn.Module, config: Config) -> Objective:
        """What is to be learned, on the training split."""

    @abstractmethod
    def evaluate(
        self,
        model: nn.Module,
        config: Config,
        split: str,
        options: EvalOptions = DEFAULTS,
        *,
        full: bool = True,
    ) -> Result:
        """Measure a model on a whole split; not `full`: only what is cheap enough to do in training."""

    @abstractmethod
    def baselines(self, split: str) -> dict[str, Result]:
        """What models that know next to nothing reach on the same split."""

    @abstractmethod
    def mistakes(
        self,
        model: nn.Module,
        config: Config,
        split: str,
        options: EvalOptions = DEFAULTS,
    ) -> Mistakes:
        """Where the model goes wrong on a split."""

    # The model in use

    def sample(self, model: nn.Module, config: Config) -> str | None:
        """Something the model makes as it is now, for a person to look at."""
        return None

    @staticmethod
    def advice(config: Config, run: str) -> str:
        """What to do when a baseline is better."""
        return f"train it longer: glassformer train --out {run} --more-minutes 5"

    @classmethod
    def next_command(cls, run: str, config: Config) -> str:
        """What to do with a new run."""
        return f'Use it: glassformer {COMMANDS[cls.name]} {run} "your words"'

    def preference(self, model: nn.Module, config: Config, first: str, second: str) -> float:
        """How much more a model gives the first of two sentences that differ in a word."""
        raise UsageError(f"the task {self.name} gives sentences no score")

    def preference_unit(self, config: Config) -> str:
        return "nats"

    # A look inside

    @abstractmethod
    def inputs(
        self, model: nn.Module, config: Config, text: str, target: str | None = None
    ) -> tuple[Tensor, ...]:
        """What the model is given for a text: ids (1, T); of a translator source and target."""

    def image_geometry(self, config: Config) -> Geometry | None:
        """How images are prepared for this model; None: it reads text."""
        return None

    def focus(self, inputs: tuple[Tensor, ...]) -> int:
        """The position that a look is about, unless another is asked for."""
        return -1

    def output_name(self, number: int) -> str:
        """What an output of the model is called: a token or a label."""
        return self.token_name(number)

    def token_name(self, number: int) -> str:
        """The text of one token that the model writes or answers about."""
        return name_of(self.text_tokenizer, number)

    def input_tokenizers(self) -> list[Tokenizer]:
        """What each of `inputs` was cut by."""
        return [self.text_tokenizer]

    def words(self) -> Words | None:
        """How marked sentences are read, for relations between words; None: there are none to look for."""
        reads = self.asked and self.tokenizer is not None
        return Words(self.word_places, self.question, self.asked) if reads else None

    def word_places(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids of a sentence as the model reads it, and the characters of each; the mark has none.

        Of words that it cannot read nothing can be said: then there are none.
        """
        tokenizer = self.text_tokenizer
        spans = tokenizer.spans(text)
        if tokenizer.decode([s.id for s in spans], specials=False).split() != text.split():
            return [], []
        start = [] if tokenizer.eot_id is None else [tokenizer.eot_id]
        places = [*((0, 0) for _ in start), *(s.characters for s in spans)]
        return [*start, *(s.id for s in spans)], places

    def question(self, ids: list[int], word: list[int]) -> Question | None:
        """What the model is `asked` about a sentence in which the tokens of a `word` refer to another."""
        return None

    def continuation(self, model: nn.Module, ids: Tensor, tokens: int, edits: Sequence[Edit]) -> Tensor:
        """The ids (1, T) and so many more that the model writes after them, where it `writes`."""
        raise NotImplementedError

    def look(
        self,
        model: nn.Module,
        config: Config,
        text: str,
        *,
        target: str | None = None,
        tokens: int = 0,
        sites: Sequence[str] = (),
        edits: Sequence[Edit] = (),
        compiled: Callable[..., Tensor] | None = None,
        run: str = "",
    ) -> Look:
        """See a text through a model. `sites` limits what is recorded; the rest is as `Run.look` has it."""
        if tokens and not self.writes:
            raise UsageError(f"the model learned the task {self.name}: it has no tokens to write first")
        inputs = self.inputs(model, config, text, target)
        limit = config.model.context
        for ids in inputs:
            if config.model.family == "transformer" and ids.shape[1] + tokens > limit:
                more = f" and {tokens} to write" if tokens else ""
                raise UsageError(
                    f"{ids.shape[1]} tokens{more} are more than the model's context of {limit}: "
                    "look at a shorter text"
                )
        if tokens:
            inputs = (self.continuation(model, inputs[0], tokens, edits),)
            text = self.text_tokenizer.decode(inputs[0][0].tolist(), specials=False)
        device = next(model.parameters()).device
        batch = tuple(ids.to(device) for ids in inputs)
        trace = record_trace(model, *batch, sites=sites, edits=edits, compiled=compiled)
        geometry = self.image_geometry(config)
        if geometry is not None:
            names = {part: geometry.names() for part in parts_of(model)}
        else:
            each = zip(parts_of(model), inputs, self.input_tokenizers(), strict=True)
            names = {part: [name_of(tokenizer, i) for i in ids[0].tolist()] for part, ids, tokenizer in each}
        settings = ["family", "layers", "width", "context", "patch" if geometry else "vocab"]
        if config.model.family == "transformer":
            settings += ["heads", "placement", "norm", "position"]
        return Look(
            trace,
            text,
            self.name,
            names,
            self.output_name,
            run,
            {name: getattr(config.model, name) for name in settings},
            [] if self.tokenizer is None else list(self.tokenizer.specials.values()),
            self.words(),
            self.focus(inputs),
            config.data.source,
            geometry,
        )

    @property
    @abstractmethod
    def tokenizer(self) -> Tokenizer | None:
        """None for what is no text: images."""

    @property
    def text_tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise UsageError("this model reads images; there is no text to give it")
        return self.tokenizer


def name_of(tokenizer: Tokenizer, number: int) -> str:
    """The text of one token; bytes that are no character by themselves as ⟨E2 82⟩."""
    data = tokenizer.token_bytes(number)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"⟨{data.hex(' ').upper()}⟩"


def refuse_target(task: Task, target: str | None) -> None:
    if target is not None:
        raise UsageError(f"the model learned the task {task.name}: a target belongs to a translation")


def as_ids(ids: Sequence[int] | np.ndarray) -> Tensor:
    """A batch of one, (1, T)."""
    return torch.from_numpy(np.asarray(ids, np.int64))[None]
