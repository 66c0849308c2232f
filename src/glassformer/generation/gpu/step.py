"""`GraphStep`: a model on a GPU, as a few kernels over paged keys and values, recorded in CUDA graphs.

Pieces become rows (../rows.py). Rows walk in buckets of 1, 2, 4 … 64, each recorded when it is first needed;
rows that are left over read token 0 at the first position of a page that belongs to nobody.

When tokens were chosen, the step that reads them is begun at once, before anybody asks for it: while texts
are told their tokens, the GPU is at work. If it is then asked for as expected, or for some of its texts, the
answer is there; else it counts for nothing. What it wrote in vain lies behind the end of a text, in a page of
that text alone, and whoever gets the page writes later.

Letters: R scored positions, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from glassformer.generation.gpu.asked import Asked
from glassformer.generation.gpu.choose import SETTINGS, Drawing
from glassformer.generation.gpu.fitting import fits
from glassformer.generation.gpu.graphs import Graphs
from glassformer.generation.gpu.walk import MOST_INPUTS, Products, Walk
from glassformer.generation.gpu.weights import lay_out
from glassformer.generation.pages import SIZE
from glassformer.generation.rows import ROWS, RowStep
from glassformer.generation.sampling import Sampler
from glassformer.generation.step import Piece, Slot
from glassformer.models.model import LanguageModel
from glassformer.models.tap import off

Precision = Literal["float32", "bfloat16"]
IDLE = Sampler(temperature=0)  # of rows that belong to nobody
FEW_TEXTS = 2  # up to which products row by row are the faster ones


@dataclass
class Ahead:
    """A step that was begun before it was asked for."""

    slots: Sequence[Slot]
    lengths: list[int]  # of the slots, before it
    tokens: list[int]  # that it reads
    samplers: Sequence[Sampler]
    positions: list[int]
    scores_stand: bool = True  # until another walk has written its own over them

    def rows_of(
        self, pieces: Sequence[Piece], samplers: Sequence[Sampler], positions: Sequence[int]
    ) -> list[int] | None:
        """Its rows that are asked for; None if something else is."""
        row_of = {id(slot): row for row, slot in enumerate(self.slots)}
        rows = list[int]()
        for piece, sampler, position in zip(pieces, samplers, positions, strict=True):
            row = row_of.get(id(piece.slot))
            if row is None or piece.tap is not off or sampler is not self.samplers[row]:
                return None
            expected = [self.tokens[row]], self.lengths[row], self.positions[row]
            if (list(piece.ids), piece.slot.length, position) != expected:
                return None
            rows.append(row)
        return rows


class GraphStep(RowStep):
    """Reads pieces, and scores what may follow or chooses it; for models that `fits` lets pass."""

    def __init__(
        self,
        model: LanguageModel,
        pages: int,
        size: int = SIZE,
        *,
        precision: Precision | torch.dtype = "float32",
        texts: int = ROWS,
        products: Products | None = None,
    ):
        """`texts`: how many are written at once, which decides on the kind of products unless it is given.

        In float32 the model's own parameters are read, also when they change; bfloat16 is a copy, made now.
        """
        if (reason := fits(model)) is not None:
            raise ValueError(f"the step of a GPU cannot compute this model: {reason}")
        assert model.limit is not None
        super().__init__(model.vocab, model.limit, pages, size)
        dtype = precision if isinstance(precision, torch.dtype) else getattr(torch, precision)
        weights = lay_out(model, dtype)
        self.device = weights.embedding.device
        self._nobodys = pages  # a page behind those that are handed out
        if products is None:
            few = texts <= FEW_TEXTS and weights.most_inputs <= MOST_INPUTS
            products = "vectors" if few else "tiles"
        self.products: Products = products
        self._walk = Walk(weights, ROWS, pages + 1, size, products)
        table = -(-model.limit // size)
        self._asked = Asked(
            self.device,
            {
                "tokens": (torch.int32, (ROWS,)),
                "positions": (torch.int32, (ROWS,)),
                "picks": (torch.int32, (ROWS,)),
                "tables": (torch.int32, (ROWS, table)),
                **SETTINGS,
            },
        )
        host = self._asked.host
        self.tokens, self.positions, self.picks = host["tokens"], host["positions"], host["picks"]
        self.tables = host["tables"]
        self._drawing = Drawing(self._asked, self.vocab, self.device)
        self._graphs = Graphs(self.device)
        self._ahead: Ahead | None = None

    def choose(
        self, pieces: Sequence[Piece], samplers: Sequence[Sampler], positions: Sequence[int]
    ) -> list[int]:
        tokens = self._found_ahead(pieces, samplers, positions)
        if tokens is None:
            tokens = super().choose(pieces, samplers, positions)
        self._go_ahead([piece.slot for piece in pieces], tokens, samplers, positions)
        return tokens

    def _found_ahead(
        self, pieces: Sequence[Piece], samplers: Sequence[Sampler], positions: Sequence[int]
    ) -> list[int] | None:
        """What the step that was begun has chosen for these pieces, if it is what is asked for."""
        ahead, self._ahead = self._ahead, None
        rows = None if ahead is None else ahead.rows_of(pieces, samplers, positions)
        if ahead is None or rows is None:
            return None
        scores = self._walk.scores if ahead.scores_stand else None
        chosen = self._drawing.read(scores, ahead.samplers, ahead.positions, rows)
        if chosen is None:
            return None
        for piece in pieces:
            piece.slot.length += 1
        return chosen

    @torch.no_grad()
    def _go_ahead(
        self,
        slots: Sequence[Slot],
        tokens: list[int],
        samplers: Sequence[Sampler],
        positions: Sequence[int],
    ) -> None:
        """Begin the step that comes next if these texts go on; the last pages are left for others."""
        if len(slots) > ROWS or min(tokens) < 0 or any(slot.length >= self._context for slot in slots):
            return
        lacking = [slot for slot in slots if slot.length == len(slot.pages) * self.size]
        if lacking and self.pages.available < len(lacking) + len(slots):
            return
        for slot in lacking:
            self.reserve(slot, 1)
        for row, (slot, token) in enumerate(zip(slots, tokens, strict=True)):
            self._write_rows(row, Piece(slot, [token]), 0, 1)
        self.picks[: len(slots)] = self._in_order[: len(slots)]
        after = [position + 1 for position in positions]
        self._launch(len(slots), samplers, after)
        self._ahead = Ahead(slots, [slot.length for slot in slots], tokens, samplers, after)

    def copy_page(self, source: int, target: int) -> None:
        for pool in (self._walk.keys, self._walk.values):
            pool[:, target] = pool[:, source]

    @torch.no_grad()
    def walk(self, rows: int, scored: int, scores: Tensor) -> None:
        if self._ahead is not None:
            self._ahead.scores_stand = False
        bucket = self._fill(rows)
        some = self._bucket(scored)
        self.picks[scored:some] = 0
        self._asked.bring()
        self._graphs.run(("read", bucket), partial(self._read, bucket))
        if scored:
            self._graphs.run(("score", some), partial(self._score, some))
            scores[:scored] = self._walk.scores[:scored]

    @torch.no_grad()
    def walk_and_draw(self, rows: int, samplers: Sequence[Sampler], positions: Sequence[int]) -> list[int]:
        self._launch(rows, samplers, positions)
        tokens = self._drawing.read(self._walk.scores, samplers, positions, range(rows))
        assert tokens is not None
        return tokens

    def _launch(self, rows: int, samplers: Sequence[Sampler], positions: Sequence[int]) -> None:
        """Read so many rows and draw; the rows are written already."""
        bucket = self._fill(rows)
        self.picks[rows:bucket] = 0
        for row in range(rows):
            self._drawing.write(row, samplers[row], positions[row])
        for row in range(rows, bucket):
            self._drawing.write(row, IDLE, 0)
        self._asked.bring()
        self._graphs.run(("write", bucket), partial(self._write, bucket))
        self._drawing.mark()

    def _fill(self, rows: int) -> int:
        """Rows that are left over in a bucket belong to nobody; how many rows that makes."""
        bucket = self._bucket(rows)
        self.tokens[rows:bucket] = self.positions[rows:bucket] = 0
        for row in range(rows, bucket):
            self._write_table(row, [self._nobodys])
        return bucket

    @staticmethod
    def _bucket(rows: int) -> int:
        return 1 << (rows - 1).bit_length() if rows else 0

    def _read(self, R: int) -> None:
        asked = self._asked.device
        self._walk.read(R, asked["tokens"], asked["positions"], asked["tables"])

    def _score(self, R: int) -> None:
        self._walk.score(R, self._asked.device["picks"])

    def _write(self, R: int) -> None:
        self._read(R)
        self._score(R)
        self._drawing.launch(R, self._walk.scores)
        self._drawing.tell()
