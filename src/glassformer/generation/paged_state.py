"""What a transformer sees of its texts in one step: keys and values that lie in pages (pages.py).

Letters: B rows, T new positions, S positions so far, K key-value heads, D width of a key, E of a value,
C model width.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from glassformer.generation.memories import Beside, Sources
from glassformer.generation.pages import SIZE
from glassformer.generation.step import Slot
from glassformer.models.mask import Mask
from glassformer.models.state import Attend, Bias, Memory, Project


class Pool:
    """What positions leave behind, layer by layer and by name: one row for each position of all pages."""

    def __init__(self, positions: int):
        self.positions = positions
        self.tensors: dict[tuple[int, str], Tensor] = {}

    def of(self, layer: int, name: str, like: Tensor) -> Tensor:
        """Rows of the shape that `like` (B, T, ·) has; zeros at first: what is hidden must be numbers too."""
        key = layer, name
        if key not in self.tensors:
            self.tensors[key] = _zeros(like, (self.positions, *like.shape[2:]))
        return self.tensors[key]


def _zeros(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Zeros that take memory when they are first written to, where the system can do that."""
    if like.device.type != "cpu":
        return like.new_zeros(shape)
    return (
        torch.from_numpy(np.zeros(math.prod(shape) * like.element_size(), np.uint8))
        .view(like.dtype)
        .view(shape)
    )


class PagedState:
    """The state that a stack sees in one call: some texts, each at its own length."""

    def __init__(
        self,
        pool: Pool,
        positions: Tensor,
        table: Tensor,
        S: int,
        layers: int,
        *,
        ragged: bool = True,
        side_by_side: slice | None = None,
        beside: Sources | None = None,
    ):
        """New tokens stand at `positions` (B, T), and no text has more than S of them then; its pages are in
        `table` (B, pages). All are equally long unless `ragged`; what one text has may lie `side_by_side`.
        """
        self.pool, self.lengths, self.beside = pool, self, beside
        self.length = S - positions.shape[1]
        self._ragged, self._positions, self._table = ragged, positions, table
        self.written = self.place(positions)  # (B, T)
        if side_by_side is not None:  # then nothing need be gathered
            self.read: slice | Tensor = side_by_side
        else:
            everywhere = torch.arange(S, device=positions.device)[None]
            self.read = self.place(everywhere.expand(len(positions), -1))
            self._behind = everywhere > positions[:, -1:] if ragged else None  # (B, S)
        self._before: dict[int, tuple[Tensor, Tensor]] = {}
        self.layers = [PagedLayer(self, i) for i in range(layers)]

    @classmethod
    def of(
        cls,
        slots: Sequence[Slot],
        T: int,
        pool: Pool,
        layers: int,
        device: torch.device,
        beside: Beside | None,
    ) -> "PagedState":
        """Of some slots that read T tokens each."""
        longest = max(slot.length for slot in slots)
        starts = torch.tensor([slot.length for slot in slots], device=device)
        positions = starts[:, None] + torch.arange(T, device=device)  # (B, T)
        most = max(len(slot.pages) for slot in slots)
        rows = [slot.pages + [0] * (most - len(slot.pages)) for slot in slots]
        table = torch.tensor(rows, device=device)  # (B, pages)
        pages, together = slots[0].pages, None
        if len(slots) == 1 and pages[-1] - pages[0] == len(pages) - 1 and pages == sorted(pages):
            together = slice(pages[0] * SIZE, pages[0] * SIZE + longest + T)
        ragged = any(slot.length != longest for slot in slots)
        return cls(
            pool,
            positions,
            table,
            longest + T,
            layers,
            ragged=ragged,
            side_by_side=together,
            beside=beside,
        )

    def place(self, positions: Tensor) -> Tensor:
        """Where positions (B, n) of each row lie in the pool; behind a row's pages, anywhere."""
        page = (positions // SIZE).clamp(0, self._table.shape[1] - 1)
        return self._table.gather(1, page) * SIZE + positions % SIZE

    def before(self, reach: int) -> tuple[Tensor, Tensor]:
        """Where the last positions before the new ones lie, and which of them there are, (B, reach)."""
        if reach not in self._before:
            before = self._positions[:, :1] + torch.arange(-reach, 0, device=self._positions.device)
            self._before[reach] = self.place(before), before >= 0
        return self._before[reach]

    def gather(self, kept: Tensor) -> Tensor:
        """All positions of each row, (B, S, ·, ·), of what is kept (positions, ·, ·)."""
        if isinstance(self.read, slice):
            return kept[self.read][None]
        found = kept[self.read]
        if self._behind is None:
            return found
        # Behind the end of a short row lies what others left. It has no weight, but must be a number.
        return found.masked_fill(self._behind[..., None, None], 0.0)

    def positions(self, T: int, device: torch.device) -> Tensor:
        return self._positions

    def advance(self, T: int, padding_mask: Tensor | None = None) -> None:
        """The slots' lengths are the step's to change."""

    @property
    def memory(self) -> Memory | None:
        return None if self.beside is None else self.beside.memory

    @property
    def queries(self) -> Tensor | None:
        """Where the queries stand, if that is not at the end of all keys."""
        return self._positions if self._ragged else None


class PagedLayer:
    """One layer's part of it (models.state.LayerState)."""

    def __init__(self, state: PagedState, layer: int):
        self.state, self.layer = state, layer

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Bias, attend: Attend) -> Tensor:
        state = self.state
        k, v = (self._keep(name, x.transpose(1, 2)) for name, x in (("keys", k), ("values", v)))
        keys, values = (state.gather(x) for x in (k, v))  # (B, S, K, D) and (B, S, K, E)
        S = keys.shape[1]
        added = bias(state.positions(0, q.device), torch.arange(S, device=q.device))
        keys, values = keys.transpose(1, 2), values.transpose(1, 2)
        return attend(q, keys, values, mask, added, queries=state.queries)

    def of_memory(self, project: Project, memory: Memory) -> tuple[Tensor, Tensor]:
        assert self.state.beside is not None, "a language model looks into no memory"
        return self.state.beside.of_layer(self.layer, project)

    def after(self, name: str, x: Tensor, reach: int) -> Tensor:
        places, there = self.state.before(reach)
        past = self._keep(name, x)[places] * there[..., None]  # (B, reach, C)
        return torch.cat([past, x], dim=1)

    def _keep(self, name: str, x: Tensor) -> Tensor:
        """Put x (B, T, ·) where its positions lie; gives all positions there are."""
        kept = self.state.pool.of(self.layer, name, x)
        kept[self.state.written] = x
        return kept
