"""Beam search: not the best token at each step, but the best few beginnings. Handles ids, never text.

    1  every beginning is continued by every token; scores are sums of log-probabilities
    2  the best continuations go on, as many as there are beams; one that ends is set aside and keeps its beam
    3  a sequence is done when all its beams have ended, or there is no room for more tokens; it leaves
    4  what was found is ranked by score / ((5 + length) / 6)^penalty, since sums fall with every token

One beam is greedy search.

The product searches over the slots of a step (`SlotState`); a model's own state finds the same, in tests.

Letters: B sequences to write, K beams, R = B·K rows, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glassformer.core.errors import GlassformerError
from glassformer.generation.step import Piece, Slot
from glassformer.generation.step import Step as EngineStep
from glassformer.models.attention import growing_keys
from glassformer.models.state import State

Step = Callable[[Tensor, Any], Tensor]  # new ids (R, T) and the state to scores of the next token (R, V)


@dataclass(frozen=True)
class Hypothesis:
    ids: list[int]  # without the mark that ended it
    score: float  # log-probability, divided by the length penalty
    ended: bool  # by the mark; else it ran out of room

    @classmethod
    def with_penalty(cls, ids: list[int], total: float, ended: bool, length_penalty: float) -> "Hypothesis":
        length = len(ids) + ended
        return cls(ids, total / ((5 + length) / 6) ** length_penalty, ended)


@torch.no_grad()
def beam_search(
    step: Step,
    state: State,
    first: Tensor,
    *,
    beams: int,
    tokens: int | list[int],
    end: int | None,
    length_penalty: float = 0.0,
) -> list[list[Hypothesis]]:
    """The best sequences for each of B beginnings, best first, at most `tokens` long (for each, or for all).

    `first` (B, T) is what `step` reads before anything is written; `state` belongs to these B rows.
    """
    limits = [tokens] * len(first) if isinstance(tokens, int) else tokens
    B, device = len(first), first.device
    scores = _scores(step, first, state)  # (B, V)
    V = scores.shape[-1]
    state.select(torch.arange(B, device=device).repeat_interleave(beams))
    scores = scores.repeat_interleave(beams, dim=0)
    total = torch.full((B, beams), float("-inf"), device=device)
    total[:, 0] = 0.0  # at first all beams are the same, so only one may go on
    sequences = torch.zeros(B, beams, 0, dtype=torch.long, device=device)
    hypotheses: list[list[Hypothesis]] = [[] for _ in range(B)]
    searched = list(range(B))  # those that are not done, in the order of the rows
    for length in range(1, max(limits) + 1):
        n = len(searched)
        candidates = (total[:, :, None] + scores.view(n, beams, V)).view(n, beams * V)
        best, index = candidates.topk(min(2 * beams, beams * V), dim=-1)
        beam, token = index // V, index % V
        ends = torch.zeros_like(token, dtype=torch.bool) if end is None else token == end
        for row, rank in ends.nonzero().tolist():  # in the order of their ranks
            found = hypotheses[searched[row]]
            if rank < beams - len(found) and best[row, rank] > float("-inf"):
                ids = sequences[row, beam[row, rank]].tolist()
                found.append(Hypothesis.with_penalty(ids, float(best[row, rank]), True, length_penalty))
        room = torch.tensor([beams - len(hypotheses[b]) for b in searched], device=device).clamp(min=0)
        total, order = best.masked_fill(ends, float("-inf")).topk(beams, dim=-1)
        total = total.masked_fill(torch.arange(beams, device=device) >= room[:, None], float("-inf"))
        source, chosen = beam.gather(1, order), token.gather(1, order)
        before = sequences.gather(1, source[..., None].expand(-1, -1, length - 1))
        sequences = torch.cat([before, chosen[..., None]], dim=-1)
        for row, b in enumerate(searched):
            if limits[b] == length:  # no room for more
                hypotheses[b] += [
                    Hypothesis.with_penalty(i, s, False, length_penalty)
                    for i, s in zip(sequences[row].tolist(), total[row].tolist(), strict=True)
                    if s > float("-inf")
                ]
                total[row] = float("-inf")
        going = (total.amax(dim=1) > float("-inf")).nonzero()[:, 0]
        if len(going) == 0:
            break
        state.select((going[:, None] * beams + source[going]).flatten())
        if len(going) < n:
            total, chosen, sequences = total[going], chosen[going], sequences[going]
            searched = [searched[row] for row in going.tolist()]
        scores = _scores(step, chosen.view(-1, 1), state)
    return [sorted(row, key=lambda h: -h.score) for row in hypotheses]


def _scores(step: Step, ids: Tensor, state: State) -> Tensor:
    """Log-probabilities of what follows the last of ids, (R, V)."""
    with growing_keys():
        return step(ids, state).float().log_softmax(-1)


class SlotState:
    """Slots of an engine's step as the state of a search: a beam that is followed twice is forked."""

    def __init__(self, step: EngineStep, rows: int, sources: Sequence[Sequence[int]] = ()):
        """Empty slots, each beside one of `sources` where there are any."""
        self.step, self.slots = step, [step.open([], shares=False) for _ in range(rows)]
        for slot, source in zip(self.slots, sources, strict=bool(sources)):
            slot.source = source

    @property
    def length(self) -> int:
        return max(slot.length for slot in self.slots)

    def select(self, rows: Tensor) -> None:
        wanted = rows.tolist()
        for row in set(range(len(self.slots))).difference(wanted):  # first, so that there is room
            self.step.close(self.slots[row])
        kept: set[int] = set()
        chosen: list[Slot] = []
        for row in wanted:
            chosen.append(self.step.fork(self.slots[row]) if row in kept else self.slots[row])
            kept.add(row)
        self.slots = chosen

    def close(self) -> None:
        for slot in self.slots:
            self.step.close(slot)
        self.slots = []


def read_slots(ids: Tensor, state: SlotState) -> Tensor:
    """What `beam_search` calls a step: scores (R, V) after new ids (R, T)."""
    pieces = [Piece(slot, row) for slot, row in zip(state.slots, ids.tolist(), strict=True)]
    if not all(state.step.reserve(piece.slot, len(piece.ids)) for piece in pieces):
        raise GlassformerError("there is no room for the keys and values of so many beams: ask for fewer")
    return state.step.scores(pieces)
