"""Text from any language model and tokenizer, with the ids and probabilities it was made of."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.core.errors import UsageError
from glassformer.generation.engine import generate as generate_ids
from glassformer.generation.sampling import Sampler
from glassformer.generation.stream import TextStream, prompt_ids
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
    if tokens < 1 or n < 1:
        raise UsageError("the numbers of tokens and of samples: expected at least 1")
    sampler = (sampler or Sampler()).with_seed()
    choose, scores = sampler.for_rows(n, tokenizer.encode(prompt)), list[Tensor]()

    def choose_and_score(logits: Tensor) -> Tensor:
        chosen = choose(logits)
        scores.append(logits.float().log_softmax(-1).gather(-1, chosen[:, None])[:, 0])
        return chosen

    start = prompt_ids(tokenizer, prompt)
    batch = torch.tensor([start] * n, device=next(model.parameters()).device)
    eot_id = tokenizer.eot_id
    after = len(start) > (eot_id is not None)
    streams = [TextStream(tokenizer, eot_id, stop, after) for _ in range(n)]
    texts, ids, log_probs = [""] * n, [[] for _ in range(n)], [[] for _ in range(n)]
    for chosen in generate_ids(model, batch, tokens, choose_and_score, cached=cached):
        for i, (stream, token, score) in enumerate(
            zip(streams, chosen.tolist(), scores[-1].tolist(), strict=True)
        ):
            if not stream.ended:
                ids[i].append(token)
                log_probs[i].append(score)
                texts[i] += stream.feed(token)
        if all(stream.ended for stream in streams):
            break
    ended = [stream.ended for stream in streams]
    texts = [text + stream.flush() for text, stream in zip(texts, streams, strict=True)]
    return [Generation(*fields, sampler.seed) for fields in zip(texts, ids, log_probs, ended, strict=True)]
