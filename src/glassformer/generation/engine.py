"""Generating: one token at a time, each fed back in. Handles ids, never text.

With a key-value cache a step costs one position; without it, the whole prefix again. Both give the same
tokens. A model sees `context` tokens at most: when they are full, the older half is dropped and the rest is
read anew, so that a text of any length can be written and the cost of this stays small.

Letters: B sequences, T tokens, V vocabulary.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from glassformer.models.model import LanguageModel

Choose = Callable[[Tensor], Tensor]


@torch.no_grad()
def generate(
    model: LanguageModel, prompt: Tensor, tokens: int, choose: Choose, *, cached: bool = True
) -> Iterator[Tensor]:
    """Yield the next token of each sequence, (B), `tokens` times. `prompt` is (B, T) with T ≥ 1."""
    training = model.training
    model.eval()
    try:
        steps = _with_cache(model, prompt, choose) if cached else _without_cache(model, prompt, choose)
        for _, chosen in zip(range(tokens), steps, strict=False):
            yield chosen
    finally:
        model.train(training)


def _with_cache(model: LanguageModel, seen: Tensor, choose: Choose) -> Iterator[Tensor]:
    seen = _fit(seen, model.context)
    while True:
        cache = model.new_cache(len(seen))
        new = seen
        while seen.shape[1] <= model.context:
            chosen = choose(model(new, cache=cache)[:, -1])
            yield chosen
            new = chosen[:, None]
            seen = torch.cat([seen, new], dim=1)
        seen = _fit(seen, model.context)


def _without_cache(model: LanguageModel, seen: Tensor, choose: Choose) -> Iterator[Tensor]:
    """The plain way, and the oracle of the other."""
    seen = _fit(seen, model.context)
    while True:
        chosen = choose(model(seen)[:, -1])
        yield chosen
        seen = _fit(torch.cat([seen, chosen[:, None]], dim=1), model.context)


def _fit(seen: Tensor, context: int) -> Tensor:
    """All of it while it fits, else its newest half a context."""
    return seen if seen.shape[1] <= context else seen[:, -max(1, context // 2) :]
