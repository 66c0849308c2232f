"""The whole configuration: its sections, what does not go together, and settings checked against it.

The descriptions of the settings are the documentation: docs/settings.md is made from them.
"""

import reprlib
from typing import Annotated, Any, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from glassformer.config.data import DataConfig, TokenizerConfig
from glassformer.config.model import RECURRENT, ModelConfig
from glassformer.config.section import RULES, Section, Settings
from glassformer.config.training import TrainingConfig
from glassformer.core.errors import UsageError, closest

FORMAT_VERSION = 2  # 1: before runs were sealed

LONGEST_SHOWN = 300  # characters of a value in a message
TEXT_TASKS = ("language", "masked")  # they learn from text, the others from examples
COMMANDS = {  # that use what a task learned
    "language": "generate",
    "masked": "fill",
    "classify": "classify",
    "tag": "classify",
    "translate": "translate",
}
FAMILIES = {  # which models can do a task
    "language": ("transformer", "rnn", "gru", "lstm", "window"),
    "masked": ("transformer", "rnn", "gru", "lstm"),
    "classify": ("transformer", "rnn", "gru", "lstm"),
    "tag": ("transformer", "rnn", "gru", "lstm"),
    "translate": ("transformer", "rnn", "gru", "lstm"),
}


class Config(Section):
    """All settings of a run, in their sections: `config.model.layers`, `config.training.steps`."""

    format_version: int = Field(default=FORMAT_VERSION, description="of the run directory")
    task: Literal["language", "masked", "classify", "tag", "translate"] = Field(
        default="language",
        description="what is learned: next tokens, hidden tokens, labels of texts or of words, translations",
    )
    data: DataConfig = DataConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()

    def __repr__(self) -> str:
        """The run in a line; `print(config.model)` shows a section, `config.model_dump()` everything."""
        model, training = self.model, self.training
        return (
            f"Config({self.task}, {model.family}, {model.layers} layers of width {model.width}, "
            f"{training.steps} steps on {self.data.source})"
        )

    __str__ = __repr__

    @model_validator(mode="after")
    def _possible(self) -> Self:
        """Models and tasks that do not go together."""
        model, training = self.model, self.training
        if model.family not in FAMILIES[self.task]:
            raise ValueError(
                f"model.family {model.family} cannot do the task {self.task}; "
                f"these can: {', '.join(FAMILIES[self.task])}"
            )
        recurrent = model.family in RECURRENT
        if recurrent and self.task != "translate" and model.attention_dropout is not None:
            raise ValueError(
                f"model.attention_dropout: model.family {model.family} has attention in a translator alone"
            )
        if self.task != "translate" and self.tokenizer.sides == "separate":
            raise ValueError(f"tokenizer.sides separate: for translate, which has two, not for {self.task}")
        if self.task != "translate" and model.source_vocab:
            raise ValueError(f"model.source_vocab: of translators; the task {self.task} has one vocabulary")
        if self.task not in TEXT_TASKS and (self.data.mix or self.data.dedup):
            raise ValueError(f"data.mix and data.dedup: for language and masked, not for {self.task}")
        if self.task != "classify" and (self.data.image_size or self.data.patch_size or self.data.channels):
            raise ValueError(
                f"data.image_size, patch_size, channels: of images, for classify, not for {self.task}"
            )
        if self.task == "language" and self.data.mix and model.family in RECURRENT:
            raise ValueError(
                f"data.mix: model.family {model.family} reads its text as streams that go on from batch to "
                "batch, and they cannot be mixed. Choose model.family transformer or window, or put the "
                "sources into one folder"
            )
        if self.task in TEXT_TASKS and (training.token_dropout or training.merge_dropout):
            raise ValueError(
                f"training.token_dropout, merge_dropout: for classify, tag and translate, not for {self.task}"
            )
        if not (self.task == "language" and recurrent) and (
            training.activation_penalty or training.change_penalty
        ):
            raise ValueError(
                "training.activation_penalty, change_penalty: for the task language with model.family rnn, "
                f"gru or lstm, not for {self.task} with {model.family}"
            )
        if training.change_penalty and model.dropout_over == "position" and model.drops_outputs:
            raise ValueError(
                "training.change_penalty: with dropout of single positions it would mostly penalise that; "
                "set model.dropout_over to sequence"
            )
        if model.spelling and (self.task not in ("classify", "tag") or self.tokenizer.kind != "word"):
            raise ValueError(
                "model.spelling: for classify and tag with tokenizer.kind word, not for "
                f"{self.task} with {self.tokenizer.kind}"
            )
        if self.task != "translate" and training.consistency:
            raise ValueError(f"training.consistency: for translate, not for {self.task}")
        if training.consistency and not (model.drops or training.token_dropout or training.merge_dropout):
            raise ValueError(
                "training.consistency: both readings of a pair are the same without dropout; set "
                "model.dropout or training.token_dropout"
            )
        if self.task == "language" and model.family != "transformer" and training.batch_growth:
            raise ValueError(
                f"training.batch_growth: model.family {model.family} carries its state along as many streams "
                "as the batch has rows, so their number cannot change"
            )
        return self


def check_task(name: str) -> None:
    if name not in FAMILIES:
        tasks = list(FAMILIES)
        raise UsageError(f"there is no task '{name}'.{closest(name, tasks)} Tasks: {', '.join(tasks)}.")


SECTIONS: dict[str, type[Section]] = {
    "data": DataConfig,
    "tokenizer": TokenizerConfig,
    "model": ModelConfig,
    "training": TrainingConfig,
}


OTHER_NAMES = {  # what other programs call them
    "learning_rate": "training.lr",
    "batch_size": "training.batch",
    "max_steps": "training.steps",
    "epochs": "training.steps",
    "iterations": "training.steps",
    "iters": "training.steps",
    "max_iters": "training.steps",
    "time": "training.minutes",
    "depth": "model.layers",
    "layer": "model.layers",
    "n_layer": "model.layers",
    "n_layers": "model.layers",
    "num_layers": "model.layers",
    "head": "model.heads",
    "n_head": "model.heads",
    "n_heads": "model.heads",
    "num_heads": "model.heads",
    "n_embd": "model.width",
    "d_model": "model.width",
    "dim": "model.width",
    "hidden": "model.width",
    "hidden_size": "model.width",
    "embedding_size": "model.width",
    "model_type": "model.family",
    "arch": "model.family",
    "block_size": "model.context",
    "context_length": "model.context",
    "seq_len": "model.context",
    "max_length": "model.context",
    "window": "model.context",
    "vocab_size": "tokenizer.vocab",
    "vocab": "tokenizer.vocab",
    "tokenizer": "tokenizer.kind",
    "early_stopping": "training.patience",
    "gradient_accumulation_steps": "training.accumulate",
    "grad_clip": "training.clip",
    "eval_interval": "training.eval_every",
    "warmup_steps": "training.warmup",
    "dtype": "training.precision",
}


def known_keys() -> list[str]:
    return ["task", *(f"{s}.{f}" for s, section in SECTIONS.items() for f in section.model_fields)]


def meant_setting(name: str) -> str | None:
    """The whole key of a setting that goes by this name, here or in other programs."""
    name = name.lower().replace("-", "_")
    own = [
        f"{s}.{name}" for s in ("model", "training", "tokenizer", "data") if name in SECTIONS[s].model_fields
    ]
    return next(iter(own), None) or OTHER_NAMES.get(name)


def build(settings: Settings, where: str = "settings") -> Config:
    """A complete configuration, or one message that names every setting at fault."""
    check_keys(settings, where)
    try:
        return Config.model_validate(settings)
    except ValidationError as error:
        raise UsageError(f"{where}: {_explain(error)}") from None


def check_keys(settings: Settings, where: str) -> None:
    """Refuse keys that do not exist, with the nearest that does."""
    known = known_keys()
    for section in SECTIONS:
        if not isinstance(settings.get(section, {}), dict):
            raise UsageError(f"{where}: {section} holds settings; expected one of them, {section}.…=…")
    for key in flatten(settings):
        if key not in (*known, "format_version", *SECTIONS):
            meant = OTHER_NAMES.get(key.partition(".")[2]) or meant_setting(key)
            hint = f" Did you mean '{meant}'?" if meant else closest(key, known)
            raise UsageError(f"{where}: there is no setting '{key}'.{hint}")


def coerce(settings: Settings, where: str) -> Settings:
    """Check each given value by itself and bring it into its type, before anything is computed from it."""
    check_keys(settings, where)
    clean: Settings = {k: v for k, v in settings.items() if k not in SECTIONS}
    for section, values in ((s, v) for s, v in settings.items() if s in SECTIONS):
        clean[section] = {}
        for name, value in values.items():
            field = SECTIONS[section].model_fields[name]
            annotated: Any = Annotated  # built at run time, which type checkers do not follow
            typed = TypeAdapter(annotated[field.annotation, field, *field.metadata], config=RULES)
            try:
                clean[section][name] = typed.validate_python(value)
            except ValidationError as error:
                message = error.errors()[0]["msg"]
                raise UsageError(
                    f"{where}: {section}.{name}: {message} (given: {shortened(value)})"
                ) from None
    return clean


def shortened(value: Any) -> str:
    """A value in a message, which is to stay one line; a path is whole."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = LONGEST_SHOWN
    return short.repr(value)


def flatten(settings: Settings) -> dict[str, Any]:
    """{"model": {"layers": 4}} to {"model.layers": 4}."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict) and "." not in name:  # else it is the value of a setting
            flat |= {f"{name}.{field}": v for field, v in value.items()}
        else:
            flat[name] = value
    return flat


def _explain(error: ValidationError) -> str:
    """pydantic's findings, one line each, in the words of the settings."""
    lines: list[str] = []
    for finding in error.errors():
        key = ".".join(str(part) for part in finding["loc"])
        message = finding["msg"].removeprefix("Value error, ")
        given = "" if isinstance(finding["input"], dict) else f" (given: {shortened(finding['input'])})"
        own = finding["type"] == "value_error"  # our own messages name the settings themselves
        lines.append(message if own else f"{key}: {message}{given}")
    return "\n".join(lines)
