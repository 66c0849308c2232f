"""Pieces as rows of (token, position, page table): what the fast steps of a CPU and of a GPU have in common.

A step of theirs walks through the model with some rows at a time. To it the next token of a text, a part of a
prompt and guesses that are to be checked are all rows; several rows of one text may walk together.

Letters: R scored positions, V vocabulary.
"""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from glassformer.generation.pages import PagedStep
from glassformer.generation.sampling import Sampler
from glassformer.generation.step import Piece
from glassformer.models.tap import off

ROWS = 64  # that walk together, at most


class RowStep(PagedStep):
    """Divides pieces into walks. Whoever is made from it has these arrays and the two walks."""

    tokens: np.ndarray  # (ROWS), as are the next two
    positions: np.ndarray
    picks: np.ndarray  # which rows are scored
    tables: np.ndarray  # (ROWS, pages of a whole context)

    def __init__(self, vocab: int, context: int, pages: int, size: int):
        super().__init__(vocab, context, pages, size)
        self._context = context
        self._known: list[list[int]] = [[] for _ in range(ROWS)]  # what the tables have in each row
        self._in_order = np.arange(ROWS + context)

    @abstractmethod
    def walk(self, rows: int, scored: int, scores: Tensor) -> None:
        """Read so many rows; scores of so many picks go to the first rows of `scores`."""

    @abstractmethod
    def walk_and_draw(self, rows: int, samplers: Sequence[Sampler], positions: Sequence[int]) -> list[int]:
        """Read so many rows and draw the next token of each."""

    def scores(self, pieces: Sequence[Piece]) -> Tensor:
        """Scores (R, V) of what follows the pieces' last positions: a tensor of its own each time."""
        for piece in pieces:
            self._check(piece)
        scores = torch.empty(sum(piece.scored for piece in pieces), self.vocab, device=self.device)
        told = 0  # scores that are there
        rows = scored = 0  # of the next walk
        for piece in pieces:
            count, done = len(piece.ids), 0
            while done < count:
                some = min(count - done, ROWS - rows)
                self._write_rows(rows, piece, done, some)
                first = max(0, count - piece.scored - done)  # of these rows that is scored
                if first < some:
                    self.picks[scored : scored + some - first] = self._in_order[rows + first : rows + some]
                    scored += some - first
                rows, done = rows + some, done + some
                if rows == ROWS:
                    self.walk(rows, scored, scores[told:])
                    told, rows, scored = told + scored, 0, 0
            piece.slot.length += count
        if rows:
            self.walk(rows, scored, scores[told:])
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
            self._write_rows(row, piece, 0, 1)
            piece.slot.length += 1
        self.picks[: len(pieces)] = self._in_order[: len(pieces)]
        return self.walk_and_draw(len(pieces), samplers, positions)

    def _check(self, piece: Piece) -> None:
        """What a compiled program takes for granted."""
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
        self.tokens[rows] = piece.ids[done : done + count]
        self.positions[rows] = self._in_order[start : start + count]
        for i in range(row, row + count):
            self._write_table(i, piece.slot.pages)

    def _write_table(self, row: int, pages: list[int]) -> bool:
        """Whether there was anything to write."""
        if pages == self._known[row]:
            return False
        pages = pages[: self.tables.shape[1]]  # there may be more than the context needs
        self.tables[row, : len(pages)] = pages
        self._known[row] = pages.copy()
        return True
