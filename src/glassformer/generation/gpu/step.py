"""`GraphStep`: a model on a GPU, as a few kernels over paged keys and values, recorded in CUDA graphs.

Pieces become rows (../rows.py). Rows walk in buckets of 1, 2, 4 … 64, each recorded when it is first needed;
rows that are left over read token 0 at the first position of a page that belongs to nobody.

Letters: R scored positions, V vocabulary.
"""

from collections.abc import Sequence
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
from glassformer.models.model import LanguageModel

Precision = Literal["float32", "bfloat16"]
IDLE = Sampler(temperature=0)  # of rows that belong to nobody
FEW_TEXTS = 8  # up to which products row by row are the faster ones


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

    def copy_page(self, source: int, target: int) -> None:
        for pool in (self._walk.keys, self._walk.values):
            pool[:, target] = pool[:, source]

    @torch.no_grad()
    def walk(self, rows: int, scored: int, scores: Tensor) -> None:
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
        bucket = self._fill(rows)
        self.picks[rows:bucket] = 0
        for row in range(rows):
            self._drawing.write(row, samplers[row], positions[row])
        for row in range(rows, bucket):
            self._drawing.write(row, IDLE, 0)
        self._asked.bring()
        self._graphs.run(("write", bucket), partial(self._write, bucket))
        return self._drawing.read(self._walk.scores[:rows], samplers, positions)

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
