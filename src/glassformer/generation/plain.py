"""Generating the plain way: the whole text through the model for every token. The engine's oracle.

A model with a limit of context sees so many tokens at most: when they are full, the older half is dropped, so
that a text of any length can be written and the cost of reading the rest anew stays small.

Letters: B sequences, T tokens, V vocabulary.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from glassformer.models.model import LanguageModel, evaluating
from glassformer.models.tap import Tap, off

Choose = Callable[[Tensor], Tensor]


@torch.no_grad()
def generate_plainly(
    model: LanguageModel,
    prompt: Tensor,
    tokens: int,
    choose: Choose,
    new_tap: Callable[[int], Tap] = lambda _: off,
) -> Iterator[Tensor]:
    """Yield the next token of each sequence, (B), `tokens` times. `prompt` is (B, T) with T ≥ 1."""
    length, ids = prompt.shape[1], fitting(prompt, model.limit)
    for _ in range(tokens):
        with evaluating(model):
            chosen = choose(model(ids, tap=new_tap(length - ids.shape[1]))[:, -1])
        yield chosen
        length += 1
        ids = fitting(torch.cat([ids, chosen[:, None]], dim=1), model.limit)


def fitting(ids: Tensor, limit: int | None) -> Tensor:
    """All of it while it fits, else its newest half."""
    return ids[:, start_of(ids.shape[1], limit) :]


def start_of(length: int, limit: int | None) -> int:
    """Where what a model reads of so many tokens begins."""
    return 0 if limit is None or length <= limit else length - max(1, limit // 2)


def greedy(scores: Tensor) -> Tensor:
    return scores.argmax(-1)
