"""`FastStep`: a model on a CPU, as one compiled program over paged keys and values.

Pieces become rows (../rows.py). Some rows at a time walk through the model (kernels/), by one thread or by a
team. For given rows the scores are the same to the last bit, however they come.

Letters: R scored positions, V vocabulary, C model width.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from glassformer.core.cores import cores
from glassformer.generation.fast.choose import Drawing
from glassformer.generation.fast.fitting import fits
from glassformer.generation.fast.kernels.plan import Plan
from glassformer.generation.fast.sieve import Sieve
from glassformer.generation.fast.team import Team
from glassformer.generation.fast.weights import Precision, lay_out
from glassformer.generation.pages import SIZE
from glassformer.generation.rows import ROWS, RowStep
from glassformer.generation.sampling import Sampler
from glassformer.generation.step import Piece
from glassformer.models.model import LanguageModel

SPARE = 16  # numbers behind the scores of keys, which are made eight at a time
SMALL = 1 << 19  # bytes of weights below which threads would meet more often than it pays


class FastStep(RowStep):
    """Reads pieces, and scores what may follow or chooses it; for models that `fits` lets pass."""

    def __init__(
        self,
        model: LanguageModel,
        pages: int,
        size: int = SIZE,
        *,
        precision: Precision = "float32",
        threads: int | None = None,
    ):
        """`threads`: how many walk; as many as there are cores unless given, and one for a tiny model.

        In float32 the model's own parameters are read, also when they change; other precisions are copies,
        made now.
        """
        if (reason := fits(model)) is not None:
            raise ValueError(f"the fast step cannot compute this model: {reason}")
        assert model.limit is not None
        super().__init__(model.vocab, model.limit, pages, size)
        self._weights = lay_out(model, precision)
        self.threads = threads or (1 if self._weights.size < SMALL else cores())
        self._plan = self._weights.plan
        self._pools: list[np.ndarray] = []  # (layers, pages, …)
        self._buffers: list[np.ndarray] = []
        self._make_pools()
        self._make_buffers()
        self._make_rows()
        self._sieve = Sieve(self._plan, model.unembedding.weight)
        memory = [*self._weights.kept, *self._pools, *self._buffers, *self._drawing.memory, self._sieve]
        self._team = Team(self._plan, self._weights.layers, self._weights.reals, self.threads, memory)

    def _make_pools(self) -> None:
        """Memory for what is remembered; the system gives it when it is written to."""
        plan, pages, size = self._plan, self.pages.count, self.size
        plan[Plan.PAGE], plan[Plan.PAGES] = size, pages
        L, K, C = (int(plan[name]) for name in (Plan.LAYERS, Plan.KV_HEADS, Plan.WIDTH))
        self._pool(Plan.KEYS, L, pages, K, size, int(plan[Plan.HEAD_WIDTH]))
        self._pool(Plan.VALUES, L, pages, K, size, int(plan[Plan.VALUE_WIDTH]))
        if plan[Plan.EMBEDDING_SHIFT]:
            self._pool(Plan.PAST_EMBEDDINGS, 1, pages, size, C)
        if plan[Plan.LAYER_REACH]:
            self._pool(Plan.PAST_ATTENTION, L, pages, size, C)
            self._pool(Plan.PAST_MLP, L, pages, size, C)

    def _pool(self, name: Plan, *shape: int) -> None:
        self._pools.append(np.empty(shape, np.float32))
        self._plan[name] = self._pools[-1].ctypes.data

    def _make_buffers(self) -> None:
        """Where a walk works."""
        plan = self._plan
        C, H, K, M = (int(plan[name]) for name in (Plan.WIDTH, Plan.HEADS, Plan.KV_HEADS, Plan.HIDDEN))
        D, E = int(plan[Plan.HEAD_WIDTH]), int(plan[Plan.VALUE_WIDTH])
        private = 2 * ROWS * C + self._context + SPARE
        plan[Plan.PRIVATE_SIZE] = private + -private % SPARE
        for name, count in (
            (Plan.STREAM, ROWS * C),
            (Plan.MIDDLE, ROWS * C),
            (Plan.QKV, ROWS * ((H + K) * D + K * E)),
            (Plan.Z, ROWS * H * E),
            (Plan.UNITS, ROWS * M),
            (Plan.LINEAR, ROWS * M),
            (Plan.PRIVATE, self.threads * int(plan[Plan.PRIVATE_SIZE])),
        ):
            self._buffers.append(np.empty(count, np.float32))
            plan[name] = self._buffers[-1].ctypes.data
        self._own_scores = torch.empty(ROWS, self.vocab)  # of choices

    def _make_rows(self) -> None:
        """What a walk is asked. A helper that is late may look at any of it, so it always makes sense."""
        plan, size = self._plan, -(-self._context // self.size)
        plan[Plan.PAGE_TABLE_SIZE] = size
        names = Plan.TOKENS, Plan.POSITIONS, Plan.BEHIND, Plan.SCORED_ROWS
        self.tokens, self.positions, self._behind, self.picks = (self._integers(name, ROWS) for name in names)
        self.tables = self._integers(Plan.PAGE_TABLES, ROWS, size)
        self._drawing = Drawing(plan, self.vocab, self.threads)

    def _integers(self, name: Plan, *shape: int) -> np.ndarray:
        array = np.zeros(shape, np.int64)
        self._buffers.append(array)
        self._plan[name] = array.ctypes.data
        return array

    def copy_page(self, source: int, target: int) -> None:
        for pool in self._pools:
            pool[:, target] = pool[:, source]

    def walk(self, rows: int, scored: int, scores: Tensor) -> None:
        plan = self._plan
        plan[Plan.READS] = 1
        plan[Plan.ROWS], plan[Plan.SCORED], plan[Plan.SCORES] = rows, scored, scores.data_ptr()
        self._team.walk()

    def walk_and_draw(self, rows: int, samplers: Sequence[Sampler], positions: Sequence[int]) -> list[int]:
        for row in range(rows):
            self._drawing.write(row, samplers[row], positions[row])
        if self._sieve.helps(samplers):
            self._draw(rows, sifts=True)
            if self._sieve.was_right(rows) and self._drawing.is_sure(rows):
                return self._drawing.read(self._own_scores, samplers, positions)
        self._draw(rows, sifts=False)  # where the rows were read already, they are read to the same end
        return self._drawing.read(self._own_scores, samplers, positions)

    def _draw(self, rows: int, *, sifts: bool) -> None:
        plan = self._plan
        plan[Plan.DRAWS], plan[Plan.SIFTS] = 1, sifts
        self.walk(rows, rows, self._own_scores)
        plan[Plan.DRAWS] = plan[Plan.SIFTS] = 0

    def _write_rows(self, row: int, piece: Piece, done: int, count: int) -> None:
        super()._write_rows(row, piece, done, count)
        self._behind[row : row + count] = self._in_order[:count]
