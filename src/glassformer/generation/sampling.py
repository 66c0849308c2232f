"""From scores to a choice: what is said before counts less, temperature, top-k, top-p, min-p, and the draw.

    raw        the model's scores
    weighed    + bias of a token, − penalties for what is there already, −∞ where a constraint forbids
    tempered   ÷ temperature
    cut        −∞ for all but the k best, for what is beyond a share of p, for what is below min_p × the best
    chosen     the best of what is left, each with its Gumbel number added (noise.py), or without if greedy

The choice is a function of the scores, the settings, the seed and the position, so whatever computes the
scores chooses the same token. fast/kernels/draw.py is the same for one row, compiled.

Letters: B rows, V vocabulary.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from secrets import randbits
from typing import NamedTuple, Self

import torch
from torch import Tensor

from glassformer.core.errors import UsageError
from glassformer.data.order import fold_seed
from glassformer.generation.limits import STRONGEST, check_drawing
from glassformer.generation.noise import gumbel, key_of

SEED_BITS = 32  # of a seed that is drawn: short enough to type again
GREEDY = 1e-5  # a temperature below this is the limit itself: the best token


@dataclass(frozen=True)
class Sampler:
    """How the next token of a text is chosen. Filters apply in the order of the fields.

    `temperature` divides the scores: below 1 the likely becomes likelier; 0 is greedy.
    `top_k` keeps the k best. `top_p` keeps the smallest set of best tokens whose probability reaches p.
    `min_p` keeps tokens at least p times as likely as the best.

    The rest comes before all of them. `repetition_penalty` is for tokens that prompt or text already have:
    their scores are divided by it where they are positive and multiplied where they are negative; 1 is none.
    `presence_penalty` is taken off the score of a token that the text already has, `frequency_penalty` as
    often as it has it; both leave the prompt alone. `bias` is added to the scores of single tokens.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_drawing(
            self.temperature,
            self.top_k,
            self.top_p,
            self.min_p,
            self.seed,
            self.repetition_penalty,
            self.presence_penalty,
            self.frequency_penalty,
        )
        for token, value in self.bias.items():
            if token < 0 or not -STRONGEST <= value <= STRONGEST:
                raise UsageError(
                    f"bias {value} of token {token}: expected an id and −{STRONGEST:g} to {STRONGEST:g}"
                )

    @property
    def is_greedy(self) -> bool:
        """Whether the best token is taken and nothing drawn."""
        return self.temperature < GREEDY

    @property
    def weighs(self) -> bool:
        """Whether scores are changed by what was said before, or token by token."""
        return bool(
            self.bias or self.repetition_penalty != 1 or self.presence_penalty or self.frequency_penalty
        )

    @property
    def filters(self) -> tuple[float, int | None, float | None, float | None]:
        """What a row of a step shares with others that are tempered and cut alike."""
        return self.temperature, self.top_k, self.top_p, self.min_p

    def with_seed(self) -> Self:
        """The same with a seed: its own, or one that is drawn here, so that it can be given again."""
        if self.seed is not None or self.is_greedy:
            return self
        return replace(self, seed=randbits(SEED_BITS))

    def for_row(self, i: int) -> Self:
        """For the i-th of several texts, each with random numbers of its own; the first has this seed's."""
        if i == 0 or self.seed is None:
            return self
        return replace(self, seed=fold_seed(self.seed, i) >> 1)

    def probabilities(self, logits: Tensor) -> Tensor:
        """What is drawn from, (B, V): each row sums to one."""
        if self.is_greedy:
            return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).float()
        return cut(logits.float() / self.temperature, self.top_k, self.top_p, self.min_p).softmax(-1)


@dataclass
class Said:
    """What a text has by now, for the penalties."""

    prompt: frozenset[int] = frozenset()
    written: Counter[int] = field(default_factory=Counter)


def weigh(logits: Tensor, sampler: Sampler, said: Said) -> Tensor:
    """Scores (V) of one row with bias and penalties."""
    logits = logits.float().clone()
    if sampler.bias:
        ids = torch.tensor(list(sampler.bias), device=logits.device)
        logits[ids] += torch.tensor(list(sampler.bias.values()), device=logits.device)
    if sampler.repetition_penalty != 1 and (known := said.prompt | said.written.keys()):
        ids, penalty = torch.tensor(sorted(known), device=logits.device), sampler.repetition_penalty
        logits[ids] = torch.where(logits[ids] > 0, logits[ids] / penalty, logits[ids] * penalty)
    if (sampler.presence_penalty or sampler.frequency_penalty) and said.written:
        ids = torch.tensor(list(said.written), device=logits.device)
        times = torch.tensor(list(said.written.values()), device=logits.device)
        logits[ids] -= sampler.presence_penalty + sampler.frequency_penalty * times
    return logits


def cut(logits: Tensor, top_k: int | None, top_p: float | None, min_p: float | None) -> Tensor:
    """Tempered scores (B, V) with −∞ for what is left out."""
    nothing = float("-inf")
    if top_k is not None and top_k < logits.shape[-1]:
        smallest = logits.topk(top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < smallest, nothing)
    if top_p is not None and top_p < 1:
        ordered, index = logits.sort(dim=-1, descending=True, stable=True)
        share = ordered.softmax(-1)
        beyond = share.cumsum(-1) - share >= top_p  # the better ones alone already reach p
        logits = logits.masked_fill(beyond.scatter(-1, index, beyond), nothing)
    if min_p is not None:
        best = logits.amax(-1, keepdim=True)
        logits = logits.masked_fill((logits - best).exp() < min_p, nothing)
    return logits


def choose(logits: Tensor, samplers: Sequence[Sampler], positions: Sequence[int]) -> Tensor:
    """The next token of each row, (B), for weighed scores (B, V) at these positions of their texts.

    −1 for a row in which nothing can be chosen: its scores are no numbers, or nothing is allowed.
    """
    alike: dict[tuple[float, int | None, float | None, float | None], list[int]] = {}
    for row, sampler in enumerate(samplers):
        alike.setdefault(sampler.filters, []).append(row)
    chosen = torch.empty(len(logits), dtype=torch.long, device=logits.device)
    for rows in alike.values():
        one = len(rows) == len(logits)
        some = logits if one else logits[rows]
        seeds = [(samplers[row].seed, positions[row]) for row in rows]
        *_, tokens = _choose_alike(some.float(), samplers[rows[0]], seeds)
        sound = some.gather(-1, tokens[:, None])[:, 0].isfinite()
        tokens = tokens.where(sound, -1)
        if one:
            return tokens
        chosen[rows] = tokens
    return chosen


def _choose_alike(
    weighed: Tensor, sampler: Sampler, seeds: Sequence[tuple[int | None, int]]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows (B, V) that are tempered and cut alike, with their seeds and positions: stages, and tokens (B)."""
    if sampler.is_greedy:
        return weighed, weighed, weighed, weighed.argmax(-1)
    assert all(seed is not None for seed, _ in seeds), "a sampler that draws has a seed by now"
    keys = torch.tensor([key_of(seed or 0, at) for seed, at in seeds], device=weighed.device)
    tempered = weighed / sampler.temperature
    left = cut(tempered, sampler.top_k, sampler.top_p, sampler.min_p)
    noisy = left.double() + gumbel(keys, torch.arange(weighed.shape[-1], device=weighed.device))
    return tempered, left, noisy, noisy.argmax(-1)


class Stages(NamedTuple):
    """One choice, step by step: scores (V) each, and the token."""

    raw: Tensor
    weighed: Tensor
    tempered: Tensor
    cut: Tensor
    noisy: Tensor
    chosen: int


def stages(raw: Tensor, weighed: Tensor, sampler: Sampler, position: int) -> Stages:
    """How the token after so many others is chosen from scores (V), raw and weighed: `choose`, shown."""
    tempered, left, noisy, token = _choose_alike(weighed.float()[None], sampler, [(sampler.seed, position)])
    return Stages(raw, weighed, tempered[0], left[0], noisy[0], int(token[0]))
