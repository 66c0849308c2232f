"""The settings of a model."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from glassformer.config.section import Section

# The families before there were several were named after the decoder.
Family = Annotated[
    Literal["transformer", "rnn", "gru", "lstm", "window"],
    BeforeValidator(lambda v: "transformer" if v == "decoder" else v),
]

FOLLOWING = ("encoder_layers", "kv_heads", "head_width", "value_width", "hidden")  # from other sizes
RECURRENT = ("rnn", "gru", "lstm")  # families
EMBEDDING_REACH, LAYER_REACH = 2, 3  # positions that a `shift` looks back, on embeddings and in layers


class ModelConfig(Section):
    """What a model is: its family and its sizes, and which component stands where there is a choice."""

    family: Family = Field(
        default="transformer",
        description="transformer; rnn, gru, lstm; window (a feed-forward net on the last tokens)",
    )
    layers: int = Field(default=4, ge=1, le=10_000, description="blocks, or layers of a recurrent net")
    heads: int = Field(default=4, ge=1, description="attention heads per block")
    width: int = Field(default=128, ge=1, description="width of the residual stream")
    context: int = Field(default=128, ge=2, description="tokens seen at once")
    vocab: int = Field(default=0, ge=0, description="vocabulary; 0: the tokenizer's")
    source_vocab: int = Field(
        default=0, ge=0, description="of a translator, what it reads; 0: `vocab`, one for both sides"
    )
    labels: int = Field(default=0, ge=0, description="labels to tell apart; 0: those of the data")
    patch: int = Field(default=0, ge=0, description="numbers in a patch of an image; 0: the data's, or text")
    encoder_layers: int = Field(default=0, ge=0, description="blocks of a translator's encoder; 0: `layers`")
    attention: Literal["full", "query-key", "projected", "similarity", "distance", "convolution"] = Field(
        default="full",
        description="the ladder to attention, and two that go by distance alone (models/ladder.py)",
    )
    scaled: bool = Field(default=True, description="divide scores by √D; without it a softmax saturates")
    pooling: Literal["mean", "first", "last", "attention"] = Field(
        default="mean", description="what speaks for a whole sequence in classification"
    )
    directions: Literal[1, 2] = Field(
        default=2, description="of a recurrent net that reads a whole sequence; language models have one"
    )
    kv_heads: int = Field(
        default=0, ge=0, description="key-value heads, shared by groups of queries; 0: `heads`"
    )
    head_width: int = Field(default=0, ge=0, description="width of a query or key; 0: `width / heads`")
    value_width: int = Field(default=0, ge=0, description="width of a value; 0: `head_width`")
    hidden: int = Field(
        default=0, ge=0, description="hidden units of the feed-forward net; 0: 4 × `width` (8/3 for swiglu)"
    )
    norm: Literal["layer", "rms", "batch"] = Field(
        default="layer", description="LayerNorm, RMSNorm, or BatchNorm (to see why not)"
    )
    placement: Literal["pre", "post", "renorm", "none"] = Field(
        default="pre", description="where the norm stands: x+f(n(x)); n(x+f(x)); x̄+f(x̄) with x̄=n(x); nowhere"
    )
    activation: Literal["relu", "gelu", "gelu-tanh", "relu2", "swiglu"] = Field(
        default="gelu", description="of the feed-forward net"
    )
    position: Literal["learned", "sinusoidal", "rope", "alibi", "none"] = Field(
        default="rope", description="how the order of the tokens is known"
    )
    qk_norm: bool = Field(
        default=True, description="normalise queries and keys (as `norm` says) before the scores"
    )
    window: int | None = Field(
        default=None,
        ge=1,
        description="sliding window: positions a query can see back to; of a window model its tokens, then 8",
    )
    residual: bool = Field(default=True, description="residual connections; off to see what they are for")
    tied: bool = Field(
        default=False,
        description="one matrix for embedding and unembedding (with a joint vocabulary both embeddings)",
    )
    embedding: Literal["learned", "fixed"] = Field(
        default="learned",
        description="of what is read: `fixed` stays as drawn, or as `data.vectors` has it",
    )
    spelling: int = Field(
        default=0,
        ge=0,
        description="vectors for runs of three to five letters, added to those of the words that have them "
        "(classify, tag; `tokenizer.kind=word`); so many are kept apart, 0: none",
    )
    bias: bool = Field(default=False, description="biases in matrices and norms")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="share of activations dropped in training")
    attention_dropout: float | None = Field(
        default=None, ge=0, lt=1, description="of the attention weights; empty: `dropout`"
    )
    residual_dropout: float | None = Field(
        default=None, ge=0, lt=1, description="of what each layer adds or passes on; empty: `dropout`"
    )
    embedding_dropout: float | None = Field(
        default=None, ge=0, lt=1, description="of the embeddings' features; empty: `dropout`"
    )
    hidden_dropout: float = Field(
        default=0.0, ge=0, lt=1, description="of the feed-forward net's hidden units (transformer)"
    )
    recurrent_dropout: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="of the weights from hidden state to hidden state (rnn, gru, lstm), new in each batch",
    )
    output_dropout: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="before the last scores; empty: `dropout` for one label of a whole sequence, else none",
    )
    word_dropout: float = Field(
        default=0.0, ge=0, lt=1, description="share of the vocabulary that a step does without in its inputs"
    )
    dropout_over: Literal["position", "sequence"] = Field(
        default="position",
        description="`sequence`: of embeddings, between layers and before the scores the same features are "
        "dropped at all positions of a sequence (rnn, gru, lstm)",
    )
    shift: Literal["none", "embedding", "layers"] = Field(
        default="none",
        description="learned multiples of the last positions, added to embeddings or to each layer's input",
    )
    init: Literal["gpt2", "fan-in"] = Field(
        default="fan-in", description="how weights start, see models/init.py"
    )

    @model_validator(mode="after")
    def _fill(self) -> Self:
        if self.family != "transformer" and self.width % self.heads:
            self.heads = 1  # only a translator's look into its source has heads there
        if self.head_width == 0 and self.width % self.heads:
            raise ValueError(
                f"model.width {self.width} cannot be shared by model.heads {self.heads}: choose a multiple, "
                "or set model.head_width"
            )
        self.kv_heads = self.kv_heads or self.heads
        self.head_width = self.head_width or self.width // self.heads
        self.value_width = self.value_width or self.head_width
        if not self.hidden:
            wide = 8 * self.width / 3 if self.activation == "swiglu" else 4 * self.width
            self.hidden = max(8, round(wide / 8) * 8)
        if self.heads % self.kv_heads:
            raise ValueError(
                f"model.heads {self.heads} is not a multiple of model.kv_heads {self.kv_heads}: "
                "each key-value head serves the same number of queries"
            )
        self.encoder_layers = self.encoder_layers or self.layers
        self._check_kinds()
        if self.family == "window":
            self.window = self.window or 8
            if self.activation == "swiglu":
                raise ValueError(
                    "model.activation swiglu is a transformer's; a window model takes relu or gelu"
                )
        if self.family in RECURRENT and self.directions == 2 and self.width % 2:
            raise ValueError(f"two directions share the width: model.width {self.width} must be even")
        if self.attention in ("query-key", "projected", "similarity") and self.width % self.heads:
            raise ValueError(f"each head gets its share of model.width {self.width}: heads must divide it")
        if not self.scaled and self.attention != "full":
            raise ValueError(f"model.scaled=false: for model.attention full, not {self.attention}")
        if self.attention == "similarity" and self.head_width != self.width // self.heads:
            raise ValueError(
                "model.attention similarity compares the tokens themselves: leave head_width out"
            )
        if self.family == "transformer" and self.position == "rope" and self.head_width % 2:
            raise ValueError(f"rope turns pairs of features: model.head_width {self.head_width} must be even")
        return self

    def _check_kinds(self) -> None:
        """What a family has no place for is refused."""
        foreign: dict[str, Any] = {}
        if self.family != "transformer":
            foreign |= {"hidden_dropout": self.hidden_dropout, "shift": self.shift != "none"}
        if self.family == "window":
            foreign |= {
                "residual_dropout": self.residual_dropout,
                "attention_dropout": self.attention_dropout,
            }
        if self.family not in RECURRENT:
            foreign |= {
                "recurrent_dropout": self.recurrent_dropout,
                "dropout_over": self.dropout_over != "position",
            }
        for name, value in foreign.items():
            if value not in (None, 0.0, False):
                raise ValueError(f"model.{name}: model.family {self.family} has no place for it")
        if self.patch and self.word_dropout:
            raise ValueError("model.word_dropout leaves out words; images have none")
        if self.spelling == 1 or (self.spelling and (self.patch or self.word_dropout)):
            raise ValueError(
                "model.spelling: 2 or more, of words; not with model.word_dropout, and images have none"
            )
        if self.spelling and self.embedding == "fixed":
            raise ValueError(
                "model.spelling is learned with the words' vectors: model.embedding fixed holds them"
            )
        if self.patch and self.embedding == "fixed":
            raise ValueError("model.embedding fixed holds the vectors of words still; images have none")

    def chosen(self) -> dict[str, Any]:
        """The settings, without those that are as they follow from the others."""
        settings = self.model_dump(mode="json")
        try:
            plain = ModelConfig.model_validate({k: v for k, v in settings.items() if k not in FOLLOWING})
        except ValidationError:  # a head width of its own may be what makes it possible
            return settings
        return {k: v for k, v in settings.items() if k not in FOLLOWING or v != getattr(plain, k)}

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        chosen = self.chosen()
        return (item for item in super().__repr_args__() if item[0] in chosen)

    def dropout_of(self, kind: Literal["attention", "residual", "embedding"]) -> float:
        """The dropout of one kind: its own, or that of all."""
        own: float | None = getattr(self, f"{kind}_dropout")
        return self.dropout if own is None else own

    @property
    def drops_outputs(self) -> bool:
        """Whether the vectors that scores are made from are dropped themselves, in recurrent models."""
        return bool(self.output_dropout or self.dropout_of("residual"))

    @property
    def drops(self) -> bool:
        """Whether anything is dropped in training, so that two passes are not the same."""
        kinds = (self.attention_dropout, self.residual_dropout, self.embedding_dropout, self.output_dropout)
        return any((self.dropout, self.hidden_dropout, self.recurrent_dropout, self.word_dropout, *kinds))
