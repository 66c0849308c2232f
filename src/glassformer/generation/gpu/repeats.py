"""Steps of the open pass that come again and again on a GPU: recorded as CUDA graphs, whatever the model.

Call by call such a step waits for the host, which launches some hundred small kernels for each token. Where
what differs from step to step (tokens, positions, page tables) lies at fixed places, and the number of rows
and of positions that are looked at is one of a few, PyTorch's kernels can be recorded like our own, and no
compiler is needed. A recording takes as long as some steps, so a kind of step is recorded once it has come
often enough; until then, and for what is no next token of each text, the pass is called as it is.

Rows that are left over in a graph read some token at the first position of a page that belongs to nobody.

Letters: B rows, S positions of a source, H heads, D head width, V vocabulary.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from weakref import ReferenceType, ref

import numpy as np
import torch
from torch import Tensor

from glassformer.core.triton_kernels import next_power_of_2
from glassformer.generation.gpu.asked import Asked
from glassformer.generation.gpu.graphs import Graphs, wide_reach
from glassformer.generation.memories import Beside
from glassformer.generation.paged_state import PagedState, Pool
from glassformer.generation.pages import SIZE
from glassformer.generation.step import Slot
from glassformer.models.block import Block
from glassformer.models.model import WritingModel
from glassformer.models.state import Memory, Project
from glassformer.models.transformer import Stack

OFTEN = 12  # times, from which on a kind of step is recorded
MOST_ROWS = 64
LEAST_SOURCE = 16


class Repeats:
    def __init__(self, model: WritingModel, pool: Pool, nobodys: int, device: torch.device):
        """`nobodys`: a page of the pool that no text has."""
        assert isinstance(model.writer, Stack)
        self.stack, self.pool, self.vocab = model.writer, pool, model.vocab
        self.next_scores: Callable[..., Tensor] = model.next_scores
        self.nobodys, self.device = nobodys, device
        self._graphs = Graphs(device, shares=True)
        self._come: Counter[Hashable] = Counter()
        self._rows: dict[int, Rows] = {}  # by how many there are
        self._sources: dict[tuple[int, int], FixedSources] = {}  # by rows and positions

    def read(self, slots: Sequence[Slot], ids: Tensor, beside: Beside | None) -> Tensor | None:
        """Scores (B, V) of what follows the ids (B, 1); None if this kind of step has not come often."""
        bucket = next_power_of_2(len(slots))
        if bucket > MOST_ROWS:
            return None
        reach = wide_reach(max(slot.length for slot in slots) + 1, self.stack.context)
        S = 0
        if beside is not None:
            S = max(LEAST_SOURCE, next_power_of_2(beside.memory.states.shape[1]))
        kind = bucket, reach, S
        self._come[kind] += 1
        if self._come[kind] <= OFTEN:
            return None
        if bucket not in self._rows:
            self._rows[bucket] = Rows(self.stack, self.vocab, self.pool, self.nobodys, bucket, self.device)
        rows = self._rows[bucket]
        rows.write(slots)
        rows.ids[: len(slots)] = ids
        sources = None
        if beside is not None:
            if (bucket, S) not in self._sources:
                self._sources[bucket, S] = FixedSources(bucket, S, self.device)
            sources = self._sources[bucket, S]
            sources.write(beside, self.stack)
        self._graphs.run(kind, partial(rows.score, self.next_scores, reach, sources))
        return rows.scores[: len(slots)].clone()


class Rows:
    """So many rows at fixed places, and where their scores come out."""

    def __init__(self, stack: Stack, vocab: int, pool: Pool, nobodys: int, count: int, device: torch.device):
        self.layers, self.pool, self.nobodys, self.count = len(stack.blocks), pool, nobodys, count
        table = -(-stack.context // SIZE)
        self._asked = Asked(
            device, {"positions": (torch.int64, (count,)), "tables": (torch.int64, (count, table))}
        )
        self.ids = torch.zeros(count, 1, dtype=torch.int64, device=device)
        self.scores = torch.empty(count, vocab, device=device)
        self._known: list[list[int]] = [[] for _ in range(count)]  # what the tables have in each row

    def write(self, slots: Sequence[Slot]) -> None:
        """Where the next token of each stands, and where its pages are."""
        positions, tables = self._asked.host["positions"], self._asked.host["tables"]
        positions[:] = 0
        positions[: len(slots)] = [slot.length for slot in slots]
        for row in range(self.count):
            pages = slots[row].pages if row < len(slots) else [self.nobodys]
            if pages != self._known[row]:
                self._known[row] = pages.copy()
                some = np.array(pages[: tables.shape[1]])
                tables[row], tables[row, : len(some)] = self.nobodys, some
        self._asked.bring()

    def score(self, next_scores: Callable[..., Tensor], reach: int, sources: "FixedSources | None") -> None:
        positions, tables = (self._asked.device[name] for name in ("positions", "tables"))
        state = PagedState(self.pool, positions[:, None], tables, reach, self.layers, beside=sources)
        self.scores.copy_(next_scores(self.ids, state))


class FixedSources:
    """Sources of so many rows and positions at fixed places (memories.Sources)."""

    def __init__(self, rows: int, S: int, device: torch.device):
        self.there = torch.zeros(rows, S, dtype=torch.bool, device=device)
        self.layers: dict[int, tuple[Tensor, Tensor]] = {}
        self.memory = Memory(torch.empty(0, device=device), self.there)
        self._held: ReferenceType[Beside] | None = None

    def write(self, beside: Beside, stack: Stack) -> None:
        """Those of the texts that are written now; nothing to do while these are the same."""
        if self._held is not None and beside is self._held():
            return
        mask = beside.memory.padding_mask
        assert mask is not None
        n, S = mask.shape
        self.there.zero_()
        self.there[:, 0] = True  # rows that are nobody's look somewhere too
        self.there[:n, :S] = mask
        for i, block in enumerate(stack.blocks):
            assert isinstance(block, Block) and block.cross is not None
            made = beside.of_layer(i, block.cross.project)  # (n, H, S, D)
            if i not in self.layers:
                shapes = [(len(self.there), x.shape[1], self.there.shape[1], x.shape[3]) for x in made]
                k, v = (x.new_zeros(shape) for x, shape in zip(made, shapes, strict=True))
                self.layers[i] = k, v
            for place, x in zip(self.layers[i], made, strict=True):
                place[:n, :, :S] = x
        self._held = ref(beside)

    def of_layer(self, layer: int, project: Project) -> tuple[Tensor, Tensor]:
        return self.layers[layer]
