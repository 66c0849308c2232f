"""A step by the one forward pass: any model, any device, with taps; and the oracle of the fast one.

Two kinds of memory are kept here. A transformer's is a list of positions, so it lies in pages
(paged_state.py). A recurrent or window model's is one state as a whole, so a slot holds that. A translator's
decoder is either, and looks into its source besides (memories.py).

Letters: B rows, T new positions, C model width, V vocabulary.
"""

from collections.abc import Callable, Hashable, Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor

from glassformer.generation import sampling
from glassformer.generation.gpu.repeats import Repeats
from glassformer.generation.memories import Memories
from glassformer.generation.paged_state import PagedState, Pool
from glassformer.generation.pages import SIZE, PagedStep
from glassformer.generation.sampling import Sampler
from glassformer.generation.step import Piece, Slot, Step
from glassformer.models.attention import growing_keys
from glassformer.models.foreign import Structure, foreign_part
from glassformer.models.model import WritingModel, evaluating, scores
from glassformer.models.state import Carried, State
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
    """A transformer's; on a GPU what comes often is recorded (gpu/repeats.py)."""

    def __init__(self, model: WritingModel, pages: int, repeats: bool | None = None):
        """`repeats`: whether fixed places are used for what comes often; on a GPU, unless told."""
        stack = model.writer
        assert isinstance(stack, Stack)
        super().__init__(model.vocab, stack.context, pages)
        self.model, self._layers = model, len(stack.blocks)
        self._pool = Pool((pages + 1) * SIZE)  # the last page is nobody's
        self._copies: dict[int, int] = {}  # pages that are to be as others were when this was asked for
        self.memories = Memories.for_model(model)
        self.device = model.unembedding.weight.device
        self._wants_repeats = self.device.type == "cuda" if repeats is None else repeats
        self._repeats: Repeats | None = None
        self._structure: Structure | None = None

    def open(self, ids: Sequence[int], shares: bool = True) -> Slot:
        if self._wants_repeats:  # once for each text
            self._look_at_model()
        return super().open(ids, shares)

    def _look_at_model(self) -> None:
        """What was recorded is for the parts that the model had then; and others' parts are not recorded."""
        if foreign_part(self.model) is not None:
            self._repeats = self._structure = None
        elif self._repeats is None or self._structure is None or not self._structure.is_of(self.model):
            self._structure = Structure(self.model)
            self._repeats = Repeats(self.model, self._pool, self.pages.count, self.device)

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
        out: Tensor | None = None
        if self._repeats is not None and ids.shape[1] == 1 and read == self.model.next_scores:
            out = self._repeats.read(slots, ids, beside)
        if out is None:
            state = PagedState.of(slots, ids.shape[1], self._pool, self._layers, ids.device, beside)
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
