"""`FastStep`: a model on a CPU, as one compiled program over paged keys and values.

Pieces become rows of (token, position, page table). Some rows at a time walk through the model (kernels/),
by one thread or by a team; scores are those of models' `next_scores` up to rounding, and for given rows the
same to the last bit however they come.

Letters: R scored positions, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.generation import sampling
from glassformer.generation.fast import fits
from glassformer.generation.fast.choice import signed, write_settings
from glassformer.generation.fast.kernels.draw import SCRATCH, UNSURE
from glassformer.generation.fast.kernels.plan import Draw, Plan
from glassformer.generation.fast.team import Team, cores
from glassformer.generation.fast.weights import Precision, lay_out
from glassformer.generation.sampling import Sampler
from glassformer.generation.step import Piece
from glassformer.models.model import LanguageModel
from glassformer.models.tap import off

ROWS = 64  # that walk together at most: more would not read the weights any less often for each
SPARE = 16  # numbers behind the scores of keys, which are made eight at a time
SMALL = 1 << 19  # bytes of weights that one thread reads in the time it takes to meet another at every turn


class FastStep:
    """Reads pieces and scores what may follow, or chooses it."""

    def __init__(
        self,
        model: LanguageModel,
        page_size: int,
        pages: int,
        precision: Precision = "float32",
        threads: int | None = None,
    ):
        """`threads`: how many walk; as many as there are cores unless given, and one for a tiny model."""
        if (reason := fits(model)) is not None:
            raise ValueError(f"the fast step cannot compute this model: {reason}")
        self.vocab, self.limit = model.vocab, model.limit
        self._weights = lay_out(model, precision)
        self._plan = plan = self._weights.plan
        self.threads = threads or (1 if self._weights.bytes < SMALL else cores())
        self._pools = self._new_pools(page_size, pages)
        self._buffers = self._new_buffers()
        self._tokens, self._positions, self._behind, self._scored = (
            self._integers(name, ROWS)
            for name in (Plan.TOKENS, Plan.POSITIONS, Plan.BEHIND, Plan.SCORED_ROWS)
        )
        size = -(-int(plan[Plan.CONTEXT]) // page_size)
        plan[Plan.PAGE_TABLE_SIZE] = size
        self._tables = self._integers(Plan.PAGE_TABLES, ROWS, size)
        self._known: list[list[int]] = [[] for _ in range(ROWS)]  # the pages in each row of the tables
        self._settings = np.zeros((ROWS, len(Draw)))
        plan[Plan.SETTINGS] = self._settings.ctypes.data
        self._seeds, self._chosen = self._integers(Plan.SEEDS, ROWS, 2), self._integers(Plan.CHOSEN, ROWS)
        self._samplers: list[Sampler | None] = [None] * ROWS
        self._own_scores: Tensor | None = None  # for choices
        self._team = Team(plan, self._weights.layers, self._weights.reals, self.threads)

    def copy_page(self, source: int, target: int) -> None:
        for pool in self._pools:
            pool[:, target] = pool[:, source]

    @torch.no_grad()
    def scores(self, pieces: Sequence[Piece]) -> Tensor:
        """Read the pieces; scores (R, V) of what follows their last positions, a tensor of its own."""
        scores = torch.empty(sum(piece.scored for piece in pieces), self.vocab)
        written = row = 0
        scored = 0
        for piece in pieces:
            ids, start = piece.ids, piece.slot.length
            self._check(piece)
            done = 0
            while done < len(ids):
                if row == ROWS:
                    self._walk(row, scored, scores, written)
                    written, row, scored = written + scored, 0, 0
                count = min(len(ids) - done, ROWS - row)
                stop = row + count
                self._tokens[row:stop] = ids[done : done + count]
                self._positions[row:stop] = np.arange(start + done, start + done + count)
                self._behind[row:stop] = np.arange(count)
                for r in range(row, stop):
                    self._write_pages(r, piece.slot.pages)
                first = max(0, len(ids) - piece.scored - done)  # of those that are scored
                if first < count:
                    self._scored[scored : scored + count - first] = np.arange(row + first, stop)
                    scored += count - first
                row, done = stop, done + count
            piece.slot.length += len(ids)
        if row:
            self._walk(row, scored, scores, written)
        return scores

    def choose(
        self, pieces: Sequence[Piece], samplers: Sequence[Sampler], positions: Sequence[int]
    ) -> list[int]:
        """Read pieces of one token each, and choose what follows them at these positions of their texts.

        The same as sampling.py's choice from `scores`, for samplers that do not weigh.
        """
        chosen: list[int] = []
        for first in range(0, len(pieces), ROWS):
            part = slice(first, first + ROWS)
            chosen += self._choose(pieces[part], samplers[part], positions[part])
        return chosen

    def _choose(
        self, pieces: Sequence[Piece], samplers: Sequence[Sampler], positions: Sequence[int]
    ) -> list[int]:
        count, plan, scores = len(pieces), self._plan, self._scores_for_choices()
        for row, piece in enumerate(pieces):
            slot, sampler = piece.slot, samplers[row]
            self._check(piece)
            self._tokens[row] = piece.ids[0]
            self._positions[row] = slot.length
            self._write_pages(row, slot.pages)
            if sampler is not self._samplers[row]:
                write_settings(sampler, self._settings[row], self._seeds[row])
                self._samplers[row] = sampler
            self._seeds[row, 1] = positions[row]
            slot.length += 1
        self._behind[:count] = 0
        self._scored[:count] = self._in_order[:count]
        plan[Plan.DRAWS] = 1
        self._walk(count, count, scores, 0)
        plan[Plan.DRAWS] = 0
        chosen = self._chosen[:count].tolist()
        for row, token in enumerate(chosen):
            if token == UNSURE:
                one = sampling.choose(scores[row : row + 1], samplers[row : row + 1], positions[row : row + 1])
                chosen[row] = int(one)
        return chosen
