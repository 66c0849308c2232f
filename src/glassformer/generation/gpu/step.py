"""`GraphStep`: a model on a GPU, as a few kernels over paged keys and values, recorded in CUDA graphs.

Pieces become rows (../rows.py). Rows walk in buckets of 1, 2, 4 … 64, each recorded when it is first needed;
rows that are left over read token 0 at the first position of a page that belongs to nobody.

The next step is begun before anybody asks for it, even before the host has seen the tokens that it reads:
while texts are told their tokens, the GPU is at work. If it is then asked for as expected, or for some of its
texts, the answer is there; else it counts for nothing. What it wrote in vain lies behind the end of a text,
in a page of that text alone, and whoever gets the page writes later.

Letters: R scored positions, V vocabulary.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, TypeVar

import torch
from torch import Tensor

from glassformer.generation.gpu.ahead import Ahead
from glassformer.generation.gpu.asked import Asked
from glassformer.generation.gpu.choose import PLACES, SETTINGS, Drawing
from glassformer.generation.gpu.fitting import fits
from glassformer.generation.gpu.graphs import Graphs, wide_reach
from glassformer.generation.gpu.walk import MOST_INPUTS, Products, Standing, Walk
from glassformer.generation.gpu.weights import lay_out
from glassformer.generation.pages import SIZE
from glassformer.generation.rows import ROWS, RowStep
from glassformer.generation.sampling import Sampler
from glassformer.generation.step import Piece, Slot
from glassformer.models.model import LanguageModel

T = TypeVar("T")
Precision = Literal["float32", "bfloat16"]
IDLE = Sampler(temperature=0)  # of rows that belong to nobody
VECTOR_TEXTS = 2  # up to which products row by row are the faster ones


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

        In float32 the model's own parameters are read, also when they change (but for a step that was begun
        before); bfloat16 is a copy, made now.
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
            few = texts <= VECTOR_TEXTS and weights.most_inputs <= MOST_INPUTS
            products = "vectors" if few else "tiles"
        self.products: Products = products
        self._walk = Walk(weights, ROWS, pages + 1, size, products, texts)
        table = -(-model.limit // size)
        self._asked = Asked(
            self.device,
            {"picks": (torch.int32, (ROWS,)), "tables": (torch.int32, (ROWS, table)), **SETTINGS},
        )
        in_rows = dict.fromkeys(("tokens", "positions", "live"), (torch.int32, (ROWS,)))
        self._places = Asked(self.device, {**in_rows, **PLACES})  # what a step may move on by itself
        places = self._places.host
        self.tokens, self.positions, self._live = places["tokens"], places["positions"], places["live"]
        self.picks, self.tables = self._asked.host["picks"], self._asked.host["tables"]
        self._drawing = Drawing(self._asked, self._places, self.vocab, self.device)
        self._graphs = Graphs(self.device)
        self._ahead: Ahead | None = None

    def choose(
        self, pieces: Sequence[Piece], samplers: Sequence[Sampler], positions: Sequence[int]
    ) -> list[int]:
        ahead, self._ahead = self._ahead, None
        rows = None if ahead is None else ahead.rows_of(pieces, samplers, positions)
        tokens, draw = None, None
        if ahead is not None and rows is not None:
            same = ahead.undisturbed and rows == list(range(len(ahead.slots)))
            draw = self._spared(partial(self._move_on, ahead.slots)) if same else None
            # If the step after it was begun, or half begun, the scores that stand are not its own.
            scores = self._walk.scores if ahead.undisturbed and not same else None
            tokens = self._drawing.read(ahead.draw, scores, ahead.samplers, ahead.positions, rows)
        if tokens is None:  # nothing was begun, or it takes scores to settle that are no longer there
            tokens, draw = super().choose(pieces, samplers, positions), None
        else:
            for piece in pieces:
                piece.slot.length += 1
        slots = [piece.slot for piece in pieces]
        self._ahead = self._spared(partial(self._begin, slots, tokens, samplers, positions, draw))
        return tokens

    def scores(self, pieces: Sequence[Piece]) -> Tensor:
        self._forget_ahead(*(piece.slot for piece in pieces))
        return super().scores(pieces)

    def forget(self, slot: Slot, length: int) -> None:
        self._forget_ahead(slot)
        super().forget(slot, length)

    def _forget_ahead(self, *slots: Slot) -> None:
        """One of these texts goes another way than the step that was begun for it."""
        if self._ahead is not None and any(slot is other for slot in slots for other in self._ahead.slots):
            self._ahead = None

    @staticmethod
    def _spared(begin: Callable[[], T | None]) -> T | None:
        """A step that nobody has asked for costs no text its tokens, whatever goes wrong with it: want of
        memory, of a compiler. If that stays, the next step that is asked for says so."""
        try:
            return begin()
        except Exception:
            return None

    @torch.no_grad()
    def _move_on(self, slots: Sequence[Slot]) -> int | None:
        """Begin the step after one that is under way, for the same texts; what to ask for its choices by."""
        if not self._make_room(slots, 2):
            return None
        grown = [self._write_table(row, slot.pages) for row, slot in enumerate(slots)]
        if any(grown):
            self._asked.bring()
        return self._launch_write(self._bucket(len(slots)), max(slot.length for slot in slots) + 2)

    @torch.no_grad()
    def _begin(
        self,
        slots: Sequence[Slot],
        tokens: list[int],
        samplers: Sequence[Sampler],
        positions: Sequence[int],
        draw: int | None,
    ) -> Ahead | None:
        """The step that comes next if these texts go on; with a draw it was begun already."""
        after = [position + 1 for position in positions]
        if min(tokens) < 0 or len(slots) > ROWS:
            return None
        if draw is None:
            if not self._make_room(slots, 1):
                return None
            for row, (slot, token) in enumerate(zip(slots, tokens, strict=True)):
                self._write_rows(row, Piece(slot, [token]), 0, 1)
            self.picks[: len(slots)] = self._in_order[: len(slots)]
            draw = self._launch(len(slots), samplers, after)
        return Ahead(slots, [slot.length for slot in slots], tokens, samplers, after, draw)

    def _make_room(self, slots: Sequence[Slot], positions: int) -> bool:
        """For so many positions more of each text, if that leaves pages for others."""
        ends = [slot.length + positions for slot in slots]
        if max(ends) > self._context:
            return False
        lacking = [slot for slot, end in zip(slots, ends, strict=True) if end > len(slot.pages) * self.size]
        if lacking and self.pages.available < len(lacking) + len(slots):
            return False
        return all(self.reserve(slot, positions) for slot in lacking)

    def copy_page(self, source: int, target: int) -> None:
        for pool in (self._walk.keys, self._walk.values):
            pool[:, target] = pool[:, source]

    @torch.no_grad()
    def walk(self, rows: int, scored: int, scores: Tensor) -> None:
        if self._ahead is not None:
            self._ahead.undisturbed = False
        bucket = self._fill(rows)
        some = self._bucket(scored)
        self.picks[scored:some] = 0
        self._asked.bring()
        self._places.bring()
        reach = wide_reach(int(self.positions[:rows].max()) + 1, self._context)
        self._graphs.run(("read", bucket, reach), partial(self._read, bucket, reach))
        if scored:
            self._graphs.run(("score", some), partial(self._score, some))
            scores[:scored] = self._walk.scores[:scored]

    @torch.no_grad()
    def walk_and_draw(self, rows: int, samplers: Sequence[Sampler], positions: Sequence[int]) -> list[int]:
        draw = self._launch(rows, samplers, positions)
        tokens = self._drawing.read(draw, self._walk.scores, samplers, positions, range(rows))
        assert tokens is not None
        return tokens

    def _launch(self, rows: int, samplers: Sequence[Sampler], positions: Sequence[int]) -> int:
        """Read so many rows and draw; the rows are written already. What to ask for the choices by."""
        bucket = self._fill(rows)
        self.picks[rows:bucket] = 0
        for row in range(rows):
            self._drawing.write(row, samplers[row], positions[row])
        for row in range(rows, bucket):
            self._drawing.write(row, IDLE, 0)
        self._live[:rows], self._live[rows:] = 1, 0
        self._asked.bring()
        self._places.bring()
        return self._launch_write(bucket, int(self.positions[:rows].max()) + 1)

    def _launch_write(self, bucket: int, reach: int) -> int:
        """For texts of so many positions at most, with the token that is read."""
        reach = wide_reach(reach, self._context)
        self._graphs.run(("write", bucket, reach), partial(self._write, bucket, reach))
        return self._drawing.tell()

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

    def _read(self, R: int, reach: int, alone: bool = False) -> None:
        places, tables = self._places.device, self._asked.device["tables"]
        self._walk.read(R, places["tokens"], Standing(places["positions"], tables, reach, alone))

    def _score(self, R: int) -> None:
        self._walk.score(R, self._asked.device["picks"])

    def _write(self, R: int, reach: int) -> None:
        self._read(R, reach, alone=True)
        self._score(R)
        self._drawing.launch(R, self._walk.scores, moves=True)
