"""From scores to a choice: greedy, temperature, top-k, top-p and min-p; a penalty for what was said before.

Letters: B sequences, V vocabulary.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from secrets import randbits
from typing import Self

import torch
from torch import Tensor

from glassformer.data.order import fold_seed
from glassformer.generation.limits import check_drawing

SEED_BITS = 32  # of a seed that is drawn: short enough to type again
GREEDY = 1e-5  # a temperature below this is the limit itself: the best token


@dataclass
class Sampler:
    """Draws the next token of each sequence. Filters apply in the order of the fields.

    `temperature` divides the logits: below 1 the likely becomes likelier; 0 is greedy.
    `top_k` keeps the k best. `top_p` keeps the smallest set of best tokens whose probability reaches p.
    `min_p` keeps tokens at least p times as likely as the best.

    `repetition_penalty` comes before all of them, for tokens that prompt or text already have: their logits
    are divided by it where they are positive and multiplied where they are negative. 1 is none. It needs to
    know the text, so it works in the choice that `for_rows` gives.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    repetition_penalty: float = 1.0
    _generators: dict[torch.device, torch.Generator] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_drawing(
            self.temperature, self.top_k, self.top_p, self.min_p, self.seed, self.repetition_penalty
        )

    def __call__(self, logits: Tensor) -> Tensor:
        """Token ids (B) for logits (B, V)."""
        if self.temperature < GREEDY:
            return logits.argmax(-1)
        probabilities = self.probabilities(logits)
        return torch.multinomial(probabilities, 1, generator=self._generator(logits.device)).squeeze(-1)

    def with_seed(self) -> Self:
        """The same with a seed: its own, or one that is drawn here, so that it can be given again."""
        if self.seed is not None or self.temperature < GREEDY:
            return self
        return replace(self, seed=randbits(SEED_BITS), _generators={})

    def for_rows(self, n: int, prompt: Sequence[int] = ()) -> Callable[[Tensor], Tensor]:
        """The same for n sequences, each with random numbers of its own: a row does not depend on the others.

        The first row's are those of this sampler's seed, from their beginning: two generations by one sampler
        with a seed are the same. `prompt` is what a penalty counts as said before.
        """
        choose = self._choose_rows(n)
        if self.repetition_penalty == 1:
            return choose
        before = [dict.fromkeys(prompt) for _ in range(n)]

        def choose_anew(logits: Tensor) -> Tensor:
            chosen = choose(self._penalised(logits, before))
            for said, token in zip(before, chosen.tolist(), strict=True):
                said[token] = None
            return chosen

        return choose_anew

    def _penalised(self, logits: Tensor, before: Sequence[Iterable[int]]) -> Tensor:
        """Logits (B, V) in which what each row has said before counts less."""
        logits, penalty = logits.clone(), self.repetition_penalty
        for row, said in zip(logits, before, strict=True):
            ids = torch.tensor(list(said), dtype=torch.long, device=logits.device)
            row[ids] = torch.where(row[ids] > 0, row[ids] / penalty, row[ids] * penalty)
        return logits

    def _choose_rows(self, n: int) -> Callable[[Tensor], Tensor]:
        if self.temperature < GREEDY:
            return self
        seeds = [self.seed if i == 0 or self.seed is None else fold_seed(self.seed, i) >> 1 for i in range(n)]
        rows = [replace(self, seed=seed, _generators={}) for seed in seeds]

        def choose(logits: Tensor) -> Tensor:
            return torch.cat([row(logits[i : i + 1]) for i, row in enumerate(rows)])

        return choose

    def probabilities(self, logits: Tensor) -> Tensor:
        """What is drawn from, (B, V): each row sums to one."""
        logits = logits.float() / self.temperature
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            smallest = logits.topk(self.top_k, dim=-1).values[:, -1:]
            logits = logits.masked_fill(logits < smallest, float("-inf"))
        if self.top_p is not None:
            ordered, index = logits.sort(dim=-1, descending=True, stable=True)
            share = ordered.softmax(-1)
            beyond = share.cumsum(-1) - share >= self.top_p  # the better ones alone already reach p
            logits = logits.masked_fill(beyond.scatter(-1, index, beyond), float("-inf"))
        probabilities = logits.softmax(-1)
        if self.min_p is not None:
            floor = self.min_p * probabilities.amax(-1, keepdim=True)
            probabilities = probabilities.masked_fill(probabilities < floor, 0.0)
            probabilities = probabilities / probabilities.sum(-1, keepdim=True)
        return probabilities

    def _generator(self, device: torch.device) -> torch.Generator:
        """One stream of random numbers per device, apart from everybody else's."""
        if device not in self._generators:
            generator = torch.Generator(device)
            if self.seed is None:
                generator.seed()
            else:
                generator.manual_seed(self.seed)
            self._generators[device] = generator
        return self._generators[device]


@dataclass(frozen=True)
class Chosen:
    """A token that was drawn, its probability before temperature and filters, and the likeliest there."""

    id: int
    probability: float
    best: list[tuple[int, float]]


@dataclass
class Watched(Sampler):
    """A sampler that writes down what it draws for the first sequence."""

    chosen: list[Chosen] = field(default_factory=list)
    others: int = 3

    def for_rows(self, n: int, prompt: Sequence[int] = ()) -> Callable[[Tensor], Tensor]:
        choose = super().for_rows(n, prompt)

        def watch(logits: Tensor) -> Tensor:
            chosen = choose(logits)
            shares, token = logits[0].float().softmax(-1), int(chosen[0])
            best = shares.topk(min(self.others, len(shares)))
            likeliest = list(zip(best.indices.tolist(), best.values.tolist(), strict=True))
            self.chosen.append(Chosen(token, float(shares[token]), likeliest))
            return chosen

        return watch
