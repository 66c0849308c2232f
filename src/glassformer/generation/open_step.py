"""A step by the one forward pass: any model, any device, with taps; and the oracle of the fast one.

Two kinds of memory are kept here. A transformer's is a list of positions, so it lies in pages (pages.py). A
recurrent or window model's is one state as a whole, so a slot holds that. A translator's decoder is either,
and looks into its source besides (memories.py).

Letters: B rows, T new positions, S positions so far, K key-value heads, D width of a key, E of a value,
C model width, V vocabulary.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from copy import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.generation import sampling
from glassformer.generation.memories import Beside, Memories
from glassformer.generation.pages import SIZE, PagedStep
from glassformer.generation.sampling import Sampler
from glassformer.generation.step import Piece, Slot, Step
from glassformer.models.attention import growing_keys
from glassformer.models.mask import Mask
from glassformer.models.model import WritingModel, evaluating, scores
from glassformer.models.state import Attend, Bias, Carried, Memory, Project, State
from glassformer.models.tap import off
from glassformer.models.transformer import Stack

Read = Callable[..., Tensor]  # new ids (B, T) and the state, to scores


def open_step(model: WritingModel, rows: int = 1, positions: int | None = None) -> Step:
    """A step with room for so many texts of so many positions, or of the model's whole context."""
    if isinstance(model.writer, Stack):
        return OpenStep(model, rows * pages_for(positions or model.writer.context))
    return StateStep(model)


def pages_for(positions: int) -> int:
    return -(-positions // SIZE) + 1


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
    """The state that a stack sees in one call: some slots, each at its own length."""

    def __init__(
        self,
        pool: Pool,
        slots: Sequence[Slot],
        T: int,
        layers: int,
        device: torch.device,
        beside: Beside | None = None,
    ):
        self.pool, self.lengths, self.beside = pool, self, beside
        self.length = max(slot.length for slot in slots)
        self._ragged = any(slot.length != self.length for slot in slots)
        starts = torch.tensor([slot.length for slot in slots], device=device)
        self._positions = starts[:, None] + torch.arange(T, device=device)  # (B, T)
        most = max(len(slot.pages) for slot in slots)
        rows = [slot.pages + [0] * (most - len(slot.pages)) for slot in slots]
        self._table = torch.tensor(rows, device=device)  # (B, pages)
        self.written = self.place(self._positions)  # (B, T)
        S = self.length + T
        pages = slots[0].pages
        side_by_side = len(slots) == 1 and pages[-1] - pages[0] == len(pages) - 1 and pages == sorted(pages)
        if side_by_side:  # then nothing need be gathered
            self.read: slice | Tensor = slice(pages[0] * SIZE, pages[0] * SIZE + S)
        else:
            everywhere = torch.arange(S, device=device)[None]
            self.read = self.place(everywhere.expand(len(slots), -1))
            self._behind = everywhere >= starts[:, None] + T if self._ragged else None  # (B, S)
        self._before: dict[int, tuple[Tensor, Tensor]] = {}
        self.layers = [PagedLayer(self, i) for i in range(layers)]

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


class BesideSources:
    """What a step says of the sources that its texts are written beside, if there are any."""

    memories: Memories | None

    @property
    def source_vocab(self) -> int | None:
        return None if self.memories is None else self.memories.vocab

    @property
    def source_limit(self) -> int | None:
        return None if self.memories is None else self.memories.limit


class OpenStep(BesideSources, PagedStep):
    """A transformer's."""

    def __init__(self, model: WritingModel, pages: int):
        stack = model.writer
        assert isinstance(stack, Stack)
        super().__init__(model.vocab, stack.context, pages)
        self.model, self._layers = model, len(stack.blocks)
        self._pool = Pool(pages * SIZE)
        self._copies: dict[int, int] = {}  # pages that are to be as others were when this was asked for
        self.memories = Memories.for_model(model)
        self.device = model.unembedding.weight.device

    def copy_page(self, source: int, target: int) -> None:
        """Not now: before anything is written next, with what else is to be copied then."""
        self._copies[target] = self._copies.get(source, source)

    def _copy(self) -> None:
        targets, sources = (torch.tensor(list(pages)) for pages in (self._copies, self._copies.values()))
        for tensor in self._pool.tensors.values():
            pages = tensor.view(-1, SIZE, *tensor.shape[1:])
            pages[targets.to(tensor.device)] = pages[sources.to(tensor.device)]
        self._copies.clear()

    def scores(self, pieces: Sequence[Piece]) -> Tensor:
        if self._copies:
            self._copy()
        return _scores(self.model, pieces, self._read, lambda _: True)

    def choose(
        self, pieces: Sequence[Piece], samplers: Sequence[Sampler], positions: Sequence[int]
    ) -> list[int]:
        return sampling.choose(self.scores(pieces), samplers, positions).tolist()

    def _read(self, slots: Sequence[Slot], ids: Tensor, read: Read) -> Tensor:
        beside = None if self.memories is None else self.memories.of(slots)
        state = PagedState(self._pool, slots, ids.shape[1], self._layers, ids.device, beside)
        out = read(ids, state)
        for slot in slots:
            slot.length += ids.shape[1]
        return out


class StateStep(BesideSources):
    """That of a model whose memory is one state as a whole: recurrent, or a window."""

    limit: int | None = None
    reads_anew = False
    size = 1

    def __init__(self, model: WritingModel):
        self.model, self.vocab = model, model.vocab
        self.memories = Memories.for_model(model)
        self.device = model.unembedding.weight.device
        self._last: tuple[list[Any], dict[str, Tensor]] = [], {}  # states of slots, and all in one

    def open(self, ids: Sequence[int], shares: bool = True) -> Slot:
        return Slot(shares=False)

    def reserve(self, slot: Slot, positions: int) -> bool:
        return True

    def fork(self, slot: Slot) -> Slot:
        return copy(slot)  # of tensors that nobody writes into

    def forget(self, slot: Slot, length: int) -> None:
        raise ValueError("this model's state cannot go back to an earlier position")

    def close(self, slot: Slot) -> None:
        slot.state, slot.length = None, 0

    def publish(self, slot: Slot, ids: Sequence[int], start: int = 0) -> None:
        """A state is as large as a page and good for one beginning only: nothing is kept."""

    def scores(self, pieces: Sequence[Piece]) -> Tensor:
        return _scores(self.model, pieces, self._read, lambda slot: slot.state is not None)

    def choose(
        self, pieces: Sequence[Piece], samplers: Sequence[Sampler], positions: Sequence[int]
    ) -> list[int]:
        return sampling.choose(self.scores(pieces), samplers, positions).tolist()

    def _read(self, slots: Sequence[Slot], ids: Tensor, read: Read) -> Tensor:
        state = self._begin(slots)
        assert isinstance(state, Carried)
        if slots[0].state is not None:
            state.load_state_dict(self._together([slot.state for slot in slots]))
        out = read(ids, state)
        after = state.state_dict()
        for row, slot in enumerate(slots):
            slot.state = {name: x[row : row + 1] for name, x in after.items()}
            slot.length += ids.shape[1]
        self._last = [slot.state for slot in slots], after
        return out

    def _together(self, states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        """The states of some slots in one; they still are if no slot came or went since the last time."""
        before, after = self._last
        if len(before) == len(states) and all(a is b for a, b in zip(before, states, strict=True)):
            return after
        return {name: torch.cat([state[name] for state in states]) for name in states[0]}

    def _begin(self, slots: Sequence[Slot]) -> State:
        memory = None if self.memories is None else self.memories.of(slots).memory
        return self.model.writer.new_state(len(slots), memory=memory)


class PlainStep(StateStep):
    """Without a cache: a slot holds the tokens, and each new one reads all of them again."""

    reads_anew = True

    def __init__(self, model: WritingModel):
        super().__init__(model)
        self.limit = model.limit

    def forget(self, slot: Slot, length: int) -> None:
        slot.state, slot.length = slot.state[:length], length

    def scores(self, pieces: Sequence[Piece]) -> Tensor:
        return _scores(self.model, pieces, self._read, lambda _: None)

    def _read(self, slots: Sequence[Slot], ids: Tensor, read: Read) -> Tensor:
        (slot,) = slots
        slot.state = [*(slot.state or ()), *ids[0].tolist()]
        slot.length = len(slot.state)
        state = None if self.memories is None else self._begin(slots)
        return read(torch.tensor([slot.state], device=ids.device), state)


@torch.no_grad()
def _scores(
    model: WritingModel,
    pieces: Sequence[Piece],
    read: Callable[[Sequence[Slot], Tensor, Read], Tensor],
    company: Callable[[Slot], Hashable | None],
) -> Tensor:
    """Scores of pieces: those that read one token each together, by their company; every other by itself."""
    device = model.unembedding.weight.device
    parts: list[Tensor | None] = [None] * len(pieces)
    together: dict[Hashable, list[int]] = {}
    for i, piece in enumerate(pieces):
        if len(piece.ids) == piece.scored == 1 and piece.tap is off and company(piece.slot) is not None:
            together.setdefault(company(piece.slot), []).append(i)
    with evaluating(model), growing_keys():
        for rows in together.values():
            ids = torch.tensor([pieces[i].ids for i in rows], device=device)  # (B, 1)
            logits = read([pieces[i].slot for i in rows], ids, model.next_scores)  # (B, V)
            if len(rows) == len(pieces):
                return logits
            for row, i in enumerate(rows):
                parts[i] = logits[row : row + 1]
        for i, piece in enumerate(pieces):
            if parts[i] is None:
                ids = torch.tensor([piece.ids], device=device)
                parts[i] = read([piece.slot], ids, _reader(model, piece))
    return torch.cat([part for part in parts if part is not None])


def _reader(model: WritingModel, piece: Piece) -> Read:
    """What is computed of one piece: scores (R, V) of its last R positions."""

    def score(ids: Tensor, state: State) -> Tensor:
        x = model.read_on(ids, state, piece.tap)  # (1, T, C)
        if piece.scored == 0:
            return torch.empty(0, model.vocab, device=ids.device)
        return scores(x, model.unembedding, piece.tap)[0, -piece.scored :]

    if piece.scored == 1:
        return lambda ids, state: model.next_scores(ids, state, piece.tap)
    return score
