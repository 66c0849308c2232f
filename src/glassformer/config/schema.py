"""Every setting, typed and validated in one place.

The descriptions here are the documentation: docs/settings.md is made from them. Where settings come from
(recipes, `--set`, a run directory) is in settings.py.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from glassformer.config.data import DataConfig, TokenizerConfig
from glassformer.config.model import RULES, ModelConfig, Section
from glassformer.core.errors import UsageError, closest

FORMAT_VERSION = 1

Settings = dict[str, Any]  # nested, partial: {"model": {"layers": 4}}
TASKS = ("language", "masked", "classify", "tag", "translate")
FAMILIES = {  # which models can do a task
    "language": ("transformer", "rnn", "gru", "lstm", "window"),
    "masked": ("transformer", "rnn", "gru", "lstm"),
    "classify": ("transformer", "rnn", "gru", "lstm"),
    "tag": ("transformer", "rnn", "gru", "lstm"),
    "translate": ("transformer", "rnn", "gru", "lstm"),
}

# YAML reads on and off as booleans.
OnOff = Annotated[
    Literal["auto", "on", "off"],
    BeforeValidator(lambda v: {True: "on", False: "off"}[v] if isinstance(v, bool) else v),
]


class TrainingConfig(Section):
    steps: int = Field(
        default=1000, ge=0, description="updates of the weights; 0: as many as fit into `training.minutes`"
    )
    batch: int = Field(default=32, ge=1, description="sequences per update, over all micro-batches")
    batch_growth: dict[int, int] = Field(
        default={}, description="`{step: batch}`: larger batches from these steps on"
    )
    accumulate: int = Field(default=1, ge=1, description="micro-batches per update; equal to the full batch")
    optimizer: Literal["muon", "adamw", "adam", "sgd"] = Field(
        default="muon",
        description="see training/optim.py; `adam` brings the 2017 paper's β, ε, rate and warm-up",
    )
    lr: float = Field(
        default=3e-3, gt=0, description="peak learning rate (with muon: of embeddings and vectors)"
    )
    muon_lr: float = Field(default=0.02, gt=0, description="peak learning rate of muon's matrices")
    weight_decay: float = Field(default=0.0, ge=0, description="decoupled weight decay of the matrices")
    beta1: float = Field(default=0.9, ge=0, lt=1, description="Adam's first moment")
    beta2: float = Field(default=0.99, ge=0, lt=1, description="Adam's second moment")
    eps: float = Field(default=1e-8, gt=0, description="Adam's ε")
    momentum: float = Field(default=0.95, ge=0, lt=1, description="of muon and sgd")
    schedule: Literal["wsd", "cosine", "noam", "constant"] = Field(
        default="wsd", description="warm up, stay, decay in a line; cosine; inverse square root; none"
    )
    warmup: int = Field(default=100, ge=0, description="steps of linear warm-up")
    decay: float = Field(default=0.6, gt=0, le=1, description="share of the run in which wsd decays")
    lr_floor: float = Field(
        default=0.0, ge=0, le=1, description="where the decay ends, as a share of the peak"
    )
    clip: float = Field(default=1.0, ge=0, description="largest gradient norm; 0: none")
    token_dropout: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="share of input tokens hidden in training (classify, tag, translate)",
    )
    merge_dropout: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="BPE-dropout: examples are cut anew each time, merges left out at this rate (as above)",
    )
    label_smoothing: float = Field(
        default=0.0, ge=0, lt=1, description="share of the target spread over all entries"
    )
    patience: int = Field(
        default=0,
        ge=0,
        description="stop after so many evaluations without a gain of 0.0001; 0: never",
    )
    eval_every: int = Field(
        default=250, ge=1, description="steps between full evaluations on validation data"
    )
    sample_every: int = Field(default=0, ge=0, description="steps between samples; 0: none")
    sample_prompt: str = Field(default="", description="what the samples start from")
    checkpoint_every: int = Field(default=500, ge=1, description="steps between checkpoints")
    keep: int = Field(default=2, ge=1, description="checkpoints that are kept")
    rollbacks: int = Field(
        default=0,
        ge=0,
        description="when training breaks (NaN): times to go back to the last checkpoint, at half the rate",
    )
    processes: int = Field(
        default=1, ge=0, description="processes on this machine that train together; 0: one for each GPU"
    )
    parallel: Literal["ddp", "fsdp"] = Field(
        default="ddp", description="of several processes: each holds the whole model, or a part of it"
    )
    precision: Literal["auto", "float32", "bf16", "fp16"] = Field(
        default="auto", description="of the arithmetic"
    )
    compile: OnOff = Field(default="auto", description="torch.compile; auto: when it pays")
    device: str = Field(default="auto", description="cpu, cuda, cuda:1, mps; auto: the best there is")
    freeze: list[str] = Field(default=[], description="prefixes of parameters that stay as they are")
    tensorboard: bool = Field(default=False, description="also write TensorBoard files (needs the extra)")
    minutes: float = Field(
        default=0.0, ge=0, description="time that automatic sizing may plan for; 0: its default"
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="of initialisation, order and dropout")

    @model_validator(mode="before")
    @classmethod
    def _meant(cls, given: Settings) -> Settings:
        """`adam` means the 2017 paper's training unless told otherwise."""
        if isinstance(given, dict) and given.get("optimizer") == "adam":
            paper = {"beta2": 0.98, "eps": 1e-9, "schedule": "noam", "warmup": 4000}
            given = paper | given
        if isinstance(given, dict) and given.get("schedule") == "noam":
            given = {"lr": 1.0} | given
        return given

    @model_validator(mode="after")
    def _divides(self) -> Self:
        for size in (self.batch, *self.batch_growth.values()):
            if size < 1 or size % self.accumulate:
                raise ValueError(
                    f"a batch of {size} does not divide into training.accumulate {self.accumulate} parts"
                )
        if any(step < 1 for step in self.batch_growth):
            raise ValueError("training.batch_growth: steps start at 1; the first batch is training.batch")
        return self


class Config(Section):
    format_version: int = Field(default=FORMAT_VERSION, description="of the run directory")
    task: Literal["language", "masked", "classify", "tag", "translate"] = Field(
        default="language",
        description="what is learned: next tokens, hidden tokens, labels of texts or of words, translations",
    )
    data: DataConfig = DataConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()

    @model_validator(mode="after")
    def _possible(self) -> Self:
        """Models and tasks that do not go together."""
        model, training = self.model, self.training
        if model.family not in FAMILIES[self.task]:
            raise ValueError(
                f"model.family {model.family} cannot do the task {self.task}; "
                f"these can: {', '.join(FAMILIES[self.task])}"
            )
        if self.task not in ("language", "masked") and (self.data.mix or self.data.dedup):
            raise ValueError(f"data.mix and data.dedup: for language and masked, not for {self.task}")
        if self.task == "language" and self.data.mix and model.family in ("rnn", "gru", "lstm"):
            raise ValueError(
                f"data.mix: model.family {model.family} reads its text as streams that go on from batch to "
                "batch, and they cannot be mixed. Choose model.family transformer or window, or put the "
                "sources into one folder"
            )
        if self.task in ("language", "masked") and (training.token_dropout or training.merge_dropout):
            raise ValueError(
                f"training.token_dropout, merge_dropout: for classify, tag and translate, not for {self.task}"
            )
        if self.task == "language" and model.family != "transformer" and training.batch_growth:
            raise ValueError(
                f"training.batch_growth: model.family {model.family} carries its state along as many streams "
                "as the batch has rows, so their number cannot change"
            )
        return self


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
    "n_layer": "model.layers",
    "n_head": "model.heads",
    "n_embd": "model.width",
    "block_size": "model.context",
    "vocab_size": "tokenizer.vocab",
}


def known_keys() -> list[str]:
    return ["task", *(f"{s}.{f}" for s, section in SECTIONS.items() for f in section.model_fields)]


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
            meant = OTHER_NAMES.get(key.partition(".")[2])
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
                raise UsageError(f"{where}: {section}.{name}: {message} (given: {value!r})") from None
    return clean


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
        given = "" if isinstance(finding["input"], dict) else f" (given: {finding['input']!r})"
        own = finding["type"] == "value_error"  # our own messages name the settings themselves
        lines.append(message if own else f"{key}: {message}{given}")
    return "\n".join(lines)
