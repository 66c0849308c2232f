"""The settings of training."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from glassformer.config.section import Section, Settings

# YAML reads on and off as booleans.
OnOff = Annotated[
    Literal["auto", "on", "off"],
    BeforeValidator(lambda v: {True: "on", False: "off"}[v] if isinstance(v, bool) else v),
]


Kernels = Literal["auto", "off", "fused", "graph"]
PAPER_WARMUP = 4000  # steps, of the 2017 paper


class TrainingConfig(Section):
    """How a model is trained: steps and batches, the optimizer and its schedule, what is kept and when."""

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
    embedding_decay: float = Field(
        default=0.0, ge=0, description="under muon: decoupled weight decay of embedding and unembedding"
    )
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
    activation_penalty: float = Field(
        default=0.0,
        ge=0,
        description="on the mean square of the vectors before the scores (rnn, gru, lstm that predict text); "
        "the training loss includes it",
    )
    change_penalty: float = Field(
        default=0.0,
        ge=0,
        description="on that of their change from position to position (as above); dropout must be over "
        "sequences, or it would be its noise that is measured",
    )
    consistency: float = Field(
        default=0.0,
        ge=0,
        description="R-Drop's α: every pair is read twice, under two draws of all dropouts, and both "
        "answers are to agree (translate); the training loss includes how far they do not",
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
    precision: Literal["auto", "float32", "bf16", "fp16", "fp8"] = Field(
        default="auto",
        description="of products; auto: bf16 on a GPU, and for wide transformers on a CPU that can. "
        "fp8: bf16, but some products of the fused step in 8 bits",
    )
    compile: OnOff = Field(default="auto", description="torch.compile; auto: when it pays")
    kernels: Kernels = Field(
        default="auto",
        description="fused: on a GPU own kernels for the whole pass, a step in one graph; graph: PyTorch's "
        "kernels, a step in one graph (docs/training.md); auto: the first of these that can be, on a CPU "
        "compiled loops for loss and attention; off: PyTorch's alone, call by call",
    )
    device: str = Field(default="auto", description="cpu, cuda, cuda:1, mps; auto: the best there is")
    freeze: list[str] = Field(default=[], description="prefixes of parameters that stay as they are")
    tensorboard: bool = Field(default=False, description="also write TensorBoard files (needs the extra)")
    minutes: float = Field(
        default=0.0, ge=0, description="time that a run may take, from command to result; 0: a default"
    )
    extended: dict[int, int] = Field(
        default={},
        description="`{step: steps}`: went on at this step from a plan of so many; written by `--more-steps`",
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="of initialisation, order and dropout")

    @model_validator(mode="before")
    @classmethod
    def _paper_defaults(cls, values: Settings) -> Settings:
        """`adam` means the 2017 paper's training unless told otherwise."""
        if isinstance(values, dict) and values.get("optimizer") == "adam":
            paper = {"beta2": 0.98, "eps": 1e-9, "schedule": "noam", "warmup": PAPER_WARMUP}
            values = paper | values
        if isinstance(values, dict) and values.get("schedule") == "noam":
            values = {"lr": 1.0} | values
        return values

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.embedding_decay and self.optimizer != "muon":
            raise ValueError(
                "training.embedding_decay is for training.optimizer muon; the others have weight_decay"
            )
        for size in (self.batch, *self.batch_growth.values()):
            if size < 1 or size % self.accumulate:
                raise ValueError(
                    f"a batch of {size} does not divide into training.accumulate {self.accumulate} parts"
                )
        if any(step < 1 for step in self.batch_growth):
            raise ValueError("training.batch_growth: steps start at 1; the first batch is training.batch")
        if any(not 0 < ended <= planned for ended, planned in self.extended.items()):
            raise ValueError(
                "training.extended: expected {step: steps}, the step at least 1 and at most steps"
            )
        return self
