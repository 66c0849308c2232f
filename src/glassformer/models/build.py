"""From settings to a model. Every variant is a component, chosen here; none is a question in `forward`.

    Decoder          a stack under a causal mask, and a score for every next token
    Encoder          a body that sees everything, and a head
    EncoderDecoder   a body that reads, and one that writes while it looks into what was read
    Recurrent        the recurrent language models
    Window           the fixed-window language model

Encoder and EncoderDecoder take every family; `make_language_model` chooses the class by it.
"""

from collections.abc import Callable

from torch import nn

from glassformer.config.model import EMBEDDING_REACH, LAYER_REACH, RECURRENT, ModelConfig
from glassformer.core.errors import UsageError
from glassformer.models.attention import Attention, CrossAttention, Mixer, UnscaledAttention
from glassformer.models.block import PLACEMENTS, Block, add, replace
from glassformer.models.ladder import Convolution, Distance, Projected, QueryKey, Similarity
from glassformer.models.layers import ACTIVATIONS, MLP, NORMS, GatedMLP, WordDropout
from glassformer.models.mask import Mask
from glassformer.models.model import Body, EncoderDecoderModel, EncoderModel, LanguageModel
from glassformer.models.position import Alibi, Learned, Position, Rotary, Sinusoidal
from glassformer.models.readout import EachPosition, First, Head, Last, LearnedQuery, Mean, Pooling, Whole
from glassformer.models.recurrent import RecurrentStack
from glassformer.models.shift import Shift
from glassformer.models.spelling import Spelled
from glassformer.models.transformer import Stack
from glassformer.models.window import WindowNet

# Whole models


class Decoder(LanguageModel):
    """The decoder-only language model: a stack under a causal mask, and a score for every next token."""

    def __init__(self, config: ModelConfig):
        _check_family(config, "transformer")
        mask = Mask(causal=True, window=config.window)
        super().__init__(make_stack(config, make_embedding(config), mask), config)


class Recurrent(LanguageModel):
    """A recurrent language model: plain, GRU or LSTM, as `config.family` says."""

    def __init__(self, config: ModelConfig):
        _check_family(config, *RECURRENT)
        super().__init__(make_recurrence(config, make_embedding(config)), config)


class Window(LanguageModel):
    """The fixed-window feed-forward language model."""

    def __init__(self, config: ModelConfig):
        _check_family(config, "window")
        super().__init__(WindowNet(config, make_embedding(config)), config)


class Encoder(EncoderModel):
    """A body that sees the whole sequence, and a head: a `label` of the whole, `labels` of each position, or
    the `tokens` behind a mask."""

    def __init__(self, config: ModelConfig, head: str = "label"):
        embedding = nn.Linear(config.patch, config.width) if config.patch else make_embedding(config)
        top = make_head(config, head)  # drawn first: a seed gives the weights it always gave
        super().__init__(make_reader(config, embedding), top, config)


class EncoderDecoder(EncoderDecoderModel):
    """With a joint vocabulary `tied` makes one matrix of both embeddings and the unembedding; where what is
    read has a vocabulary of its own (`source_vocab`), of the two of the target."""

    def __init__(self, config: ModelConfig):
        source = make_embedding(config, config.source_vocab)
        target = source if config.tied and not config.source_vocab else make_embedding(config, read=False)
        encoder = make_reader(config, source, config.encoder_layers)
        super().__init__(encoder, make_writer(config, target), config)


LANGUAGE_MODELS: dict[str, Callable[[ModelConfig], LanguageModel]] = {
    "transformer": Decoder,
    "rnn": Recurrent,
    "gru": Recurrent,
    "lstm": Recurrent,
    "window": Window,
}


def make_language_model(config: ModelConfig) -> LanguageModel:
    return LANGUAGE_MODELS[config.family](config)


def _check_family(config: ModelConfig, *families: str) -> None:
    if config.family not in families:
        raise UsageError(f"model.family is {config.family}: expected {' or '.join(families)} for this model")


def make_like(model: nn.Module, config: ModelConfig) -> nn.Module:
    """A new model of the same kind with other settings."""
    if isinstance(model, EncoderDecoderModel):
        return EncoderDecoder(config)
    if isinstance(model, EncoderModel):
        return Encoder(config, model.head.kind)
    return make_language_model(config)


# Bodies


def make_reader(config: ModelConfig, embedding: nn.Module, layers: int | None = None) -> Body:
    """A body for sequences that are there as a whole."""
    if config.family == "transformer":
        return make_stack(config, embedding, Mask(window=config.window), layers)
    _check_family(config, *RECURRENT)
    return make_recurrence(config, embedding, layers, directions=config.directions)


def make_writer(config: ModelConfig, embedding: nn.Module) -> Body:
    """A body that looks into a memory."""
    if config.family == "transformer":
        return make_stack(config, embedding, Mask(causal=True, window=config.window), cross=True)
    _check_family(config, *RECURRENT)
    return make_recurrence(config, embedding, cross=True)


def make_stack(
    config: ModelConfig, embedding: nn.Module, mask: Mask, layers: int | None = None, cross: bool = False
) -> Stack:
    position = make_position(config)
    blocks = [make_block(config, position, cross) for _ in range(layers or config.layers)]
    # Post-norm ends in a norm of its own, and without norms there is none to end in.
    norm = make_norm(config) if config.placement in ("pre", "renorm") else nn.Identity()
    return Stack(
        embedding,
        position,
        blocks,
        norm,
        mask=mask,
        context=config.context,
        dropout=config.dropout_of("embedding"),
        shift=Shift("embedding", config.width, EMBEDDING_REACH) if config.shift == "embedding" else None,
    )


def make_recurrence(
    config: ModelConfig,
    embedding: nn.Module,
    layers: int | None = None,
    directions: int = 1,
    cross: bool = False,
) -> RecurrentStack:
    attention = make_cross(config) if cross else None
    return RecurrentStack(config, embedding, layers, directions, attention)


def make_embedding(config: ModelConfig, entries: int = 0, read: bool = True) -> nn.Embedding:
    """A vector for each of so many entries (0: the vocabulary); `read`: not of what the model writes."""
    entries = entries or config.vocab
    if not config.vocab:
        raise UsageError("model.vocab is 0: a model needs to know how many entries its vocabulary has")
    if config.spelling:
        embedding: nn.Embedding = Spelled(entries, config.width, config.spelling)
    elif config.word_dropout:
        embedding = WordDropout(entries, config.width, config.word_dropout)
    else:
        embedding = nn.Embedding(entries, config.width)
    return embedding.requires_grad_(not (read and config.embedding == "fixed"))


# Parts of a block


def make_block(config: ModelConfig, position: Position, cross: bool = False) -> Block:
    mlp = make_mlp(config)
    norms = (make_norm(config), make_norm(config))
    join = add if config.residual else replace
    looking = (make_norm(config), make_cross(config)) if cross else None
    attention = make_attention(config, position)
    placement, dropout, shifts = PLACEMENTS[config.placement], config.dropout_of("residual"), None
    if config.shift == "layers":
        shifts = (
            Shift("attention", config.width, LAYER_REACH),
            Shift("mlp", config.width, LAYER_REACH),
        )
    return Block(attention, mlp, norms, placement, join, dropout, looking, shifts)


def make_attention(config: ModelConfig, position: Position) -> Mixer:
    c = config
    match c.attention:
        case "similarity":
            return Similarity(c.width, c.heads, position=position, dropout=c.dropout_of("attention"))
        case "projected":
            return Projected(
                c.width, c.heads, c.head_width, position=position, dropout=c.dropout_of("attention")
            )
        case "query-key":
            return QueryKey(
                c.width, c.heads, c.head_width, position=position, dropout=c.dropout_of("attention")
            )
        case "distance":
            return Distance(
                c.width, c.heads, c.context, position=position, bias=c.bias, dropout=c.dropout_of("attention")
            )
        case "convolution":
            return Convolution(
                c.width, c.heads, c.context, position=position, bias=c.bias, dropout=c.dropout_of("attention")
            )
        case "full":
            return (Attention if c.scaled else UnscaledAttention)(
                c.width,
                c.heads,
                position=position,
                kv_heads=c.kv_heads,
                head_width=c.head_width,
                value_width=c.value_width,
                bias=c.bias,
                dropout=c.dropout_of("attention"),
                qk_norm=_qk_norm(c),
            )


def make_cross(config: ModelConfig) -> CrossAttention:
    return CrossAttention(
        config.width,
        config.heads,
        head_width=config.head_width,
        bias=config.bias,
        dropout=config.dropout_of("attention"),
        qk_norm=_qk_norm(config),
    )


def make_mlp(config: ModelConfig) -> MLP | GatedMLP:
    if config.activation == "swiglu":
        return GatedMLP(config.width, config.hidden, config.bias, config.hidden_dropout)
    activation = ACTIVATIONS[config.activation]
    return MLP(config.width, config.hidden, activation, config.bias, config.hidden_dropout)


def make_norm(config: ModelConfig) -> nn.Module:
    if config.placement == "none":
        return nn.Identity()
    return NORMS[config.norm](config.width, bias=config.bias)


def _qk_norm(config: ModelConfig) -> nn.Module | None:
    kind = "layer" if config.norm == "batch" else config.norm  # of one query there is no batch
    return NORMS[kind](config.head_width, bias=False) if config.qk_norm else None


def make_position(config: ModelConfig) -> Position:
    match config.position:
        case "learned":
            return Learned(config.context, config.width)
        case "sinusoidal":
            return Sinusoidal(config.context, config.width)
        case "rope":
            return Rotary(config.context, config.head_width)
        case "alibi":
            return Alibi(config.heads)
        case "none":
            return Position()


# Heads


def make_head(config: ModelConfig, kind: str) -> Head:
    dropout, over = config.output_dropout, config.dropout_over
    match kind:
        case "label":
            pooled = config.dropout if dropout is None else dropout
            return Whole(config.width, _labels(config), make_pooling(config), pooled)
        case "labels":
            return EachPosition(config.width, _labels(config), kind, dropout or 0.0, over)
        case "tokens":
            return EachPosition(config.width, config.vocab, kind, dropout or 0.0, over)
    raise UsageError(f"no head '{kind}': expected label, labels or tokens")


def _labels(config: ModelConfig) -> int:
    if not config.labels:
        raise UsageError("model.labels is 0: a model needs to know how many labels there are")
    return config.labels


def make_pooling(config: ModelConfig) -> Pooling:
    match config.pooling:
        case "mean":
            return Mean()
        case "first":
            return First()
        case "last":
            return Last()
        case "attention":
            return LearnedQuery(config.width)
