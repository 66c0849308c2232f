"""Texts written in tests: by the plain loop, and by an engine."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from glassformer.generation.engine import Engine
from glassformer.generation.open_step import PlainStep, open_step
from glassformer.generation.plain import generate_plainly
from glassformer.generation.request import Handle, Request
from glassformer.generation.sampling import Sampler, choose
from glassformer.models.model import LanguageModel

GREEDY = Sampler(temperature=0)


def plainly(model: LanguageModel, prompt: Sequence[int], tokens: int, sampler: Sampler = GREEDY) -> list[int]:
    """The oracle: everything read again for each token."""
    at = len(prompt)

    def draw(scores: Tensor) -> Tensor:
        nonlocal at
        at += 1
        return choose(scores, [sampler], [at - 1])

    return [int(t) for t in generate_plainly(model, torch.tensor([list(prompt)]), tokens, draw)]


class Told:
    """One text by an engine: its ids, its tokens, and its handle."""

    def __init__(
        self, engine: Engine, prompt: Sequence[int], tokens: int, sampler: Sampler = GREEDY, **wishes: Any
    ):
        self.tokens = []
        self.handle: Handle = engine.submit(
            Request(prompt, tokens, sampler, on_token=wishes.pop("on_token", self._take), **wishes)
        )

    def _take(self, token: Any) -> None:
        self.tokens.append(token)

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]


def run(engine: Engine) -> None:
    while engine.turn():
        pass


def write(
    model: LanguageModel,
    prompt: Sequence[int],
    tokens: int,
    sampler: Sampler = GREEDY,
    *,
    cached: bool = True,
    **wishes: Any,
) -> list[int]:
    engine = Engine(open_step(model) if cached else PlainStep(model))
    told = Told(engine, prompt, tokens, sampler, **wishes)
    run(engine)
    if told.handle.error is not None:
        raise told.handle.error
    return told.ids
