"""What is asked of the engine, and what it answers. In ids, never in text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from glassformer.core.errors import GlassformerError, UsageError
from glassformer.generation.sampling import Sampler
from glassformer.generation.step import Step
from glassformer.models.tap import Tap

NewTap = Callable[[int], Tap]  # for each time that a text is read anew, from this position of it


class Ending(StrEnum):
    """Why a text ended."""

    MARK = "mark"  # the model wrote the mark that ends a text
    TOLD = "told"  # whoever reads it has enough: a stop text, a constraint that is fulfilled
    LENGTH = "length"  # as many tokens as were asked for
    FULL = "full"  # the context is full and the text was not to slide
    CANCELLED = "cancelled"
    FAILED = "failed"  # `Handle.error` says how; other texts go on


@dataclass(frozen=True, slots=True)
class Written:
    """One token of a text, and how likely it was, before temperature and filters."""

    id: int
    log_prob: float | None = None  # None where it was not asked for, or nothing stands before it
    likeliest: tuple[tuple[int, float], ...] = ()  # the best tokens there, with their log-probabilities


class Constraint(Protocol):
    """What a text may be: asked before each token, told each one."""

    def allowed(self) -> np.ndarray | None:
        """True for each id that may come next, (V); None: all."""
        ...

    def accept(self, token: int) -> bool:
        """Whether the text may go on after this token."""
        ...


class Choice(NamedTuple):
    """What a token was chosen from: scores (V) of the model, and as they were after penalties and forms."""

    raw: Tensor
    weighed: Tensor
    position: int  # tokens before it
    token: int


@dataclass
class Request:
    """One text to be written.

    `on_token` is called for every token, on the engine's thread; False ends the text. `on_prompt` is called
    once with the tokens of the prompt, if their probabilities are asked for (`scores_prompt`).
    """

    ids: Sequence[int]  # what it goes on from, at least one token
    tokens: int  # to write at most; 0 only reads
    sampler: Sampler = field(default_factory=Sampler)
    end: int | None = None  # the mark that ends a text
    source: Sequence[int] | None = None  # what an encoder reads, of a model that has one
    likeliest: int | None = None  # log-probabilities of each token, and of so many of the best ones
    scores_prompt: bool = False
    constraint: Constraint | None = None
    forced: Sequence[int] = ()  # tokens to be written first, whatever the model thinks of them
    slides: bool = True  # at a full context the older half is dropped; else the text ends
    new_tap: NewTap | None = None
    on_choice: Callable[[Choice], None] | None = None  # what each token was chosen from
    on_token: Callable[[Written], bool | None] = lambda _: None
    on_prompt: Callable[[list[Written]], None] = lambda _: None
    on_end: Callable[["Handle"], None] = lambda _: None


class Handle:
    """A request on its way."""

    def __init__(self, request: Request):
        self.request = request
        self.ending: Ending | None = None  # None while it is written
        self.error: Exception | None = None
        self.written = 0  # tokens so far
        self.shared = 0  # tokens of the prompt that another text had read already
        self.cancelled = False

    def cancel(self) -> None:
        """End it at the next step; from any thread."""
        self.cancelled = True


def check_request(request: Request, step: Step) -> None:
    """Refuse what cannot be written, before it takes anybody's time."""
    if not request.ids:
        raise UsageError("there is nothing to go on from: expected a prompt of at least one token")
    unknown = [i for i in (*request.ids, *request.forced, *request.sampler.bias) if not 0 <= i < step.vocab]
    if unknown:
        raise UsageError(f"id {unknown[0]} is outside the vocabulary of {step.vocab} entries")
    check_source(request.source, step.source_vocab, step.source_limit)
    if request.source is not None and request.new_tap is not None:
        raise UsageError("a translation cannot be written under edits: give its target, and look at both")
    if request.tokens < 0 or (request.tokens == 0 and not request.scores_prompt):
        raise UsageError(f"{request.tokens} tokens to write: expected at least 1")
    if len(request.forced) > request.tokens:
        raise UsageError(
            f"{len(request.forced)} tokens are to be written first, and {request.tokens} at most"
        )
    if not request.sampler.is_greedy and request.sampler.seed is None:
        raise UsageError("a sampler that draws needs a seed: Sampler.with_seed() gives it one")
    limit = step.limit
    if limit is not None and request.scores_prompt and len(request.ids) > limit:
        raise UsageError(
            f"a prompt of {len(request.ids)} tokens cannot be scored at once: expected {limit} at most"
        )
    if limit is not None and not request.slides and len(request.ids) > limit:
        raise UsageError(
            f"a prompt of {len(request.ids)} tokens is longer than the context of {limit}: shorten it"
        )


def check_source(source: Sequence[int] | None, entries: int | None, limit: int | None) -> None:
    """Refuse a source that an encoder of so many entries and positions cannot read; None: there is none."""
    if source is None:
        if entries is not None:
            raise UsageError("this model writes beside a source: expected one to translate")
        return
    if entries is None:
        raise UsageError("this model reads no source: expected a prompt alone")
    if not source:
        raise UsageError("the source is empty: expected at least the mark that ends it")
    if unknown := [i for i in source if not 0 <= i < entries]:
        raise UsageError(f"id {unknown[0]} of the source is outside its vocabulary of {entries} entries")
    if limit is not None and len(source) > limit:
        raise UsageError(
            f"a source of {len(source)} tokens is longer than the context of {limit}: shorten it"
        )


def no_room() -> GlassformerError:
    return GlassformerError("there is no room for the keys and values of this text: ask for a shorter one")


def no_numbers() -> GlassformerError:
    return GlassformerError(
        "no token can be chosen: the model's scores are no numbers, so its weights are damaged or it diverged"
    )


def written(scores: Tensor, ids: Sequence[int], likeliest: int) -> list[Written]:
    """Tokens and how likely each was, by scores (R, V) of what comes next."""
    log_probs = scores.float().log_softmax(-1)
    own = log_probs.gather(-1, torch.tensor(ids, device=scores.device)[:, None])[:, 0].tolist()
    best = log_probs.topk(min(likeliest, scores.shape[-1]), dim=-1)
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    rows = [tuple(zip(tokens, values, strict=True)) for tokens, values in pairs]
    return [Written(i, value, row) for i, value, row in zip(ids, own, rows, strict=True)]
