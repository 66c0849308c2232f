"""`FastStep`: a model on a CPU, as one compiled program over paged keys and values.

Pieces become rows of (token, position, page table). Some rows at a time walk through the model (kernels/), by
one thread or by a team. For given rows the scores are the same to the last bit, however they come.

Letters: R scored positions, V vocabulary, C model width.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from glassformer.core.cores import cores
from glassformer.generation.fast.choose import ROWS, Drawing
from glassformer.generation.fast.fitting import fits
from glassformer.generation.fast.kernels.plan import Plan
from glassformer.generation.fast.team import Team
from glassformer.generation.fast.weights import Precision, lay_out
from glassformer.generation.pages import SIZE, PagedStep
from glassformer.generation.sampling import Sampler
from glassformer.generation.step import Piece
from glassformer.models.model import LanguageModel
from glassformer.models.tap import off

SPARE = 16  # numbers behind the scores of keys, which are made eight at a time
SMALL = 1 << 19  # bytes of weights below which threads would meet more often than it pays


class FastStep(PagedStep):
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
        self._context = model.limit
        self._weights = lay_out(model, precision)
        self.threads = threads or (1 if self._weights.size < SMALL else cores())
        self._plan = self._weights.plan
        self._pools: list[np.ndarray] = []  # (layers, pages, …)
        self._buffers: list[np.ndarray] = []
        self._make_pools()
        self._make_buffers()
        self._make_rows()
        memory = [*self._weights.kept, *self._pools, *self._buffers, *self._drawing.memory]
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
        self._tokens, self._positions, self._behind, self._scored = (
            self._integers(name, ROWS) for name in names
        )
        self._tables = self._integers(Plan.PAGE_TABLES, ROWS, size)
        self._known: list[list[int]] = [[] for _ in range(ROWS)]  # what the tables have in each row
        self._drawing = Drawing(plan, self.vocab, self.threads)
        self._in_order = np.arange(ROWS + self._context)

    def _integers(self, name: Plan, *shape: int) -> np.ndarray:
        array = np.zeros(shape, np.int64)
        self._buffers.append(array)
        self._plan[name] = array.ctypes.data
        return array

    def copy_page(self, source: int, target: int) -> None:
        for pool in self._pools:
            pool[:, target] = pool[:, source]

    def scores(self, pieces: Sequence[Piece]) -> Tensor:
        """Scores (R, V) of what follows the pieces' last positions: a tensor of its own each time."""
        for piece in pieces:
            self._check(piece)
        scores = torch.empty(sum(piece.scored for piece in pieces), self.vocab)
        told = 0  # scores that are there
        rows = scored = 0  # of the next walk
        for piece in pieces:
            count, done = len(piece.ids), 0
            while done < count:
                some = min(count - done, ROWS - rows)
                self._write_rows(rows, piece, done, some)
                first = max(0, count - piece.scored - done)  # of these rows that is scored
                if first < some:
                    self._scored[scored : scored + some - first] = self._in_order[rows + first : rows + some]
                    scored += some - first
                rows, done = rows + some, done + some
                if rows == ROWS:
                    self._walk(rows, scored, scores[told:])
                    told, rows, scored = told + scored, 0, 0
            piece.slot.length += count
        if rows:
            self._walk(rows, scored, scores[told:])
        return scores

    def choose(
        self, pieces: Sequence[Piece], samplers: Sequence[Sampler], positions: Sequence[int]
    ) -> list[int]:
        """Pieces of one token each; the token that sampling.py chooses from the scores of each.

        The samplers do not weigh what was said before: whoever wants that takes `scores`.
        """
        if len(pieces) > ROWS:
            some, rest = slice(ROWS), slice(ROWS, None)
            first = self.choose(pieces[some], samplers[some], positions[some])
            return first + self.choose(pieces[rest], samplers[rest], positions[rest])
        for piece in pieces:
            self._check(piece)
        for row, piece in enumerate(pieces):
            slot = piece.slot
            self._tokens[row], self._positions[row] = piece.ids[0], slot.length
            self._write_table(row, slot.pages)
            self._drawing.write(row, samplers[row], positions[row])
            slot.length += 1
        count = len(pieces)
        self._behind[:count], self._scored[:count] = 0, self._in_order[:count]
        self._plan[Plan.DRAWS] = 1
        self._walk(count, count, self._own_scores)
        self._plan[Plan.DRAWS] = 0
        return self._drawing.read(self._own_scores, samplers, positions)

    def _check(self, piece: Piece) -> None:
        """What the compiled program takes for granted."""
        end = piece.slot.length + len(piece.ids)
        if piece.tap is not off:
            raise ValueError("the fast step has no taps: take the open one")
        if end > len(piece.slot.pages) * self.size or end > self._context:
            raise ValueError(f"{end} positions are more than were reserved for this text")
        if not 0 <= piece.scored <= len(piece.ids):
            raise ValueError(f"{piece.scored} scores of {len(piece.ids)} tokens")
        if min(piece.ids) < 0 or max(piece.ids) >= self.vocab:
            raise ValueError(f"an id is outside the vocabulary of {self.vocab} entries")

    def _write_rows(self, row: int, piece: Piece, done: int, count: int) -> None:
        """So many tokens of a piece, of which some were read already, as rows from this one on."""
        rows, start = slice(row, row + count), piece.slot.length + done
        self._tokens[rows] = piece.ids[done : done + count]
        self._positions[rows] = self._in_order[start : start + count]
        self._behind[rows] = self._in_order[:count]
        for i in range(row, row + count):
            self._write_table(i, piece.slot.pages)

    def _write_table(self, row: int, pages: list[int]) -> None:
        if pages != self._known[row]:
            pages = pages[: self._tables.shape[1]]  # there may be more than the context needs
            self._tables[row, : len(pages)] = pages
            self._known[row] = pages.copy()

    def _walk(self, rows: int, scored: int, scores: Tensor) -> None:
        plan = self._plan
        plan[Plan.READS] = 1
        plan[Plan.ROWS], plan[Plan.SCORED], plan[Plan.SCORES] = rows, scored, scores.data_ptr()
        self._team.walk()
