"""Generating: one token at a time, each fed back in. Handles ids, never text.

With the model's state (a key-value cache, a recurrent state) a step costs one position; without it, the whole
prefix again. Both give the same tokens. A model with a limit of context sees so many tokens at most: when
they are full, the older half is dropped and the rest is read anew, so that a text of any length can be
written and the cost of this stays small.

Letters: B sequences, T tokens, V vocabulary.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from glassformer.models.attention import growing_keys
from glassformer.models.model import LanguageModel, evaluating
from glassformer.models.tap import Tap, off

Choose = Callable[[Tensor], Tensor]
NewTap = Callable[[int], Tap]  # for each time that a text is read anew, from this position of it


@torch.no_grad()
def generate(
    model: LanguageModel,
    prompt: Tensor,
    tokens: int,
    choose: Choose,
    *,
    cached: bool = True,
    new_tap: NewTap = lambda _: off,
) -> Iterator[Tensor]:
    """Yield the next token of each sequence, (B), `tokens` times. `prompt` is (B, T) with T ≥ 1."""
    with evaluating(model):
        steps = (_with_cache if cached else _without_cache)(model, prompt, choose, new_tap)
        for _, chosen in zip(range(tokens), steps, strict=False):
            yield chosen


def _with_cache(model: LanguageModel, ids: Tensor, choose: Choose, new_tap: NewTap) -> Iterator[Tensor]:
    length, ids = ids.shape[1], _fit(ids, model.limit)
    while True:
        state, tap = model.new_state(len(ids)), new_tap(length - ids.shape[1])
        new = ids
        while model.limit is None or ids.shape[1] <= model.limit:
            with growing_keys():
                logits = model.next_scores(new, state, tap)
            chosen = choose(logits)
            yield chosen
            new, length = chosen[:, None], length + 1
            if model.limit is not None:  # else nothing is ever read again
                ids = torch.cat([ids, new], dim=1)
        ids = _fit(ids, model.limit)


def _without_cache(model: LanguageModel, ids: Tensor, choose: Choose, new_tap: NewTap) -> Iterator[Tensor]:
    """The plain way, and the oracle of the other."""
    length, ids = ids.shape[1], _fit(ids, model.limit)
    while True:
        chosen = choose(model(ids, tap=new_tap(length - ids.shape[1]))[:, -1])
        yield chosen
        length += 1
        ids = _fit(torch.cat([ids, chosen[:, None]], dim=1), model.limit)


def _fit(ids: Tensor, limit: int | None) -> Tensor:
    """All of it while it fits, else its newest half."""
    return ids if limit is None or ids.shape[1] <= limit else ids[:, -max(1, limit // 2) :]
