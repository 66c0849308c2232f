"""Text from any language model and tokenizer, with the ids and probabilities it was made of."""

from collections.abc import Sequence
from dataclasses import dataclass

from glassformer.generation.make import make_engine
from glassformer.generation.sampling import Sampler
from glassformer.generation.stream import Text, stream_text
from glassformer.models.model import LanguageModel
from glassformer.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True)
class Generation:
    """One continuation of a prompt."""

    text: str
    ids: list[int]  # of the tokens that were chosen, the end-of-text mark included
    log_probs: list[float]  # of each, as the model has it before temperature and filters
    ended: bool  # by the mark or a stop string; else it ran out of tokens
    seed: int | None = None  # of the sampler, drawn where none was given: it writes the same again

    @classmethod
    def of(cls, text: Text, seed: int | None) -> "Generation":
        """A text that has been written."""
        return cls(
            text.text,
            [token.id for token in text.tokens],
            [token.log_prob for token in text.tokens if token.log_prob is not None],
            text.ended,
            seed,
        )


def generate(
    model: LanguageModel,
    tokenizer: Tokenizer,
    prompt: str = "",
    tokens: int = 200,
    *,
    n: int = 1,
    sampler: Sampler | None = None,
    stop: Sequence[str] = (),
    cached: bool = True,
) -> list[Generation]:
    """`n` continuations of a prompt by a model that need not belong to a run.

    Each has random numbers of its own: what the first is does not depend on how many there are.
    """
    sampler, texts = (sampler or Sampler()).with_seed(), list[Text]()
    engine = make_engine(model, n, cached=cached, tokens=n * tokens)
    for _ in stream_text(
        engine, tokenizer, prompt, tokens, sampler, n=n, stop=stop, on_text=texts.extend, likeliest=0
    ):
        pass
    return [Generation.of(text, sampler.seed) for text in texts]
