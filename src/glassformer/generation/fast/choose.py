"""Choices from scores, compiled: the twin of `sampling.choose` for samplers that do not weigh.

kernels/draw.py draws; here are the settings that it reads, for each row of scores, and what is done where it
is not sure.

Letters: R rows, V vocabulary.
"""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from glassformer.generation import sampling
from glassformer.generation.fast.kernels.draw import SCRATCH, UNSURE
from glassformer.generation.fast.kernels.plan import Draw, Layer, Plan, Real
from glassformer.generation.fast.team import Team
from glassformer.generation.rows import ROWS
from glassformer.generation.sampling import Sampler

NOTHING = 1 << 62  # a top-k that leaves nothing out
LINE = 64  # bytes of memory that go together


class Drawing:
    """The part of a plan that is about choices."""

    def __init__(self, plan: np.ndarray, vocab: int, threads: int):
        self._settings, self._seeds = np.zeros((ROWS, len(Draw))), np.zeros((ROWS, 2), np.int64)
        self._chosen = np.zeros(ROWS, np.int64)
        size = SCRATCH * vocab + -SCRATCH * vocab % LINE
        scratch = np.empty(threads * size, np.uint8)
        self.memory = [self._settings, self._seeds, self._chosen, scratch]
        names = Plan.SETTINGS, Plan.SEEDS, Plan.CHOSEN, Plan.SCRATCH
        for name, array in zip(names, self.memory, strict=True):
            plan[name] = array.ctypes.data
        plan[Plan.SCRATCH_SIZE] = size
        self._samplers: list[Sampler | None] = [None] * ROWS  # whose settings stand there

    def write(self, row: int, sampler: Sampler, position: int) -> None:
        """How a row is drawn, and at which position of its text."""
        if sampler is not self._samplers[row]:
            settings = self._settings[row]
            settings[Draw.TEMPERATURE] = 0.0 if sampler.is_greedy else sampler.temperature
            settings[Draw.TOP_K] = NOTHING if sampler.top_k is None else sampler.top_k
            settings[Draw.TOP_P] = 1.0 if sampler.top_p is None else sampler.top_p
            settings[Draw.MIN_P] = sampler.min_p or 0.0
            assert sampler.is_greedy or sampler.seed is not None, "a sampler that draws has a seed by now"
            self._seeds[row, 0] = sampler.seed or 0
            self._samplers[row] = sampler
        self._seeds[row, 1] = position

    def is_sure(self, rows: int) -> bool:
        """Whether a token was chosen for each of so many rows."""
        return UNSURE not in self._chosen[:rows]

    def read(self, scores: Tensor, samplers: Sequence[Sampler], positions: Sequence[int]) -> list[int]:
        """The tokens that were chosen from scores (R, V)."""
        chosen: list[int] = self._chosen[: len(samplers)].tolist()
        if UNSURE in chosen:
            for row in [row for row, token in enumerate(chosen) if token == UNSURE]:
                one = slice(row, row + 1)
                chosen[row] = int(sampling.choose(scores[one], samplers[one], positions[one]))
        return chosen


class Chooser:
    """Chooses from given scores, in the thread that asks."""

    def __init__(self, vocab: int):
        self._plan = plan = np.zeros(len(Plan), np.int64)
        plan[Plan.VOCAB], plan[Plan.DRAWS] = vocab, 1
        self._drawing = Drawing(plan, vocab, 1)
        no_layers = np.zeros((0, len(Layer)), np.int64), np.zeros((1, len(Real)), np.float32)
        self._team = Team(plan, *no_layers, 1, self._drawing.memory)

    def choose(self, logits: Tensor, samplers: Sequence[Sampler], positions: Sequence[int]) -> list[int]:
        """The next token of each row of float32 scores (R, V), at these positions of their texts."""
        chosen: list[int] = []
        logits = logits.contiguous()
        for first in range(0, len(logits), ROWS):
            some = slice(first, first + ROWS)
            for row, (sampler, position) in enumerate(zip(samplers[some], positions[some], strict=True)):
                self._drawing.write(row, sampler, position)
            scores = logits[some]
            self._plan[Plan.SCORED], self._plan[Plan.SCORES] = len(scores), scores.data_ptr()
            self._team.walk()
            chosen += self._drawing.read(scores, samplers[some], positions[some])
        return chosen
