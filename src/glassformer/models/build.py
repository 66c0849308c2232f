"""From settings to a model: which body a family has, and how a task uses it.

task        model
language    LanguageModel: transformer (Decoder), rnn, gru, lstm (Recurrent), window (Window)
masked      Encoder with a score for every token at every position
classify    Encoder with one label for the whole
tag         Encoder with a label for every position
translate   EncoderDecoder
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import nn

from glassformer.models.attention import Mask
from glassformer.models.model import Body, Encoder, EncoderDecoder, LanguageModel
from glassformer.models.readout import EachPosition, Head, Whole, make_pooling
from glassformer.models.recurrent import Recurrent, RecurrentStack
from glassformer.models.transformer import Decoder, Stack
from glassformer.models.window import Window

if TYPE_CHECKING:
    from glassformer.config.schema import ModelConfig

LANGUAGE_MODELS: dict[str, Callable[["ModelConfig"], LanguageModel]] = {
    "transformer": Decoder,
    "rnn": Recurrent,
    "gru": Recurrent,
    "lstm": Recurrent,
    "window": Window,
}


def make_model(task: str, config: "ModelConfig") -> nn.Module:
    """A new model, its weights drawn from torch's generator."""
    if task == "language":
        return make_language_model(config)
    if task == "translate":
        return make_encoder_decoder(config)
    return make_encoder(task, config)


def make_language_model(config: "ModelConfig") -> LanguageModel:
    return LANGUAGE_MODELS[config.family](config)


def make_encoder(task: str, config: "ModelConfig") -> Encoder:
    embedding = nn.Linear(config.patch, config.width) if config.patch else _embedding(config)
    head: Head
    if task == "classify":
        head = Whole(config.width, config.labels, make_pooling(config.pooling, config.width), config.dropout)
    else:
        head = EachPosition(config.width, config.vocab if task == "masked" else config.labels)
    return Encoder(_reader(config, embedding), head, config)


def make_encoder_decoder(config: "ModelConfig") -> EncoderDecoder:
    """With a joint vocabulary, both sides can share one embedding; `tied` makes it all three matrices."""
    source = _embedding(config)
    target = source if config.tied else _embedding(config)
    encoder = _reader(config, source, config.encoder_layers)
    decoder: Body
    if config.family == "transformer":
        decoder = Stack(config, Mask(causal=True, window=config.window), target, cross=True)
    else:
        decoder = RecurrentStack(config, target, cross=True)
    return EncoderDecoder(encoder, decoder, config)


def _reader(config: "ModelConfig", embedding: nn.Module, layers: int | None = None) -> Body:
    """A body for sequences that are there as a whole."""
    if config.family == "transformer":
        return Stack(config, Mask(window=config.window), embedding, layers)
    return RecurrentStack(config, embedding, layers, directions=config.directions)


def _embedding(config: "ModelConfig") -> nn.Embedding:
    return nn.Embedding(config.vocab, config.width)
