"""One step of a generation, as data: pieces of texts in, scores out.

A *slot* is what is remembered of one text. A *piece* is some more tokens of it, read behind what the slot
holds: the next token of a text that is written, a part of a prompt, or several guesses that are to be checked
at once are all the same to a step. Pieces of one call belong to different slots.

Letters: R scored positions, V vocabulary, S positions of a source, C model width, H heads, D head width.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from glassformer.generation.sampling import Sampler
from glassformer.models.tap import Tap, off


@dataclass(slots=True, eq=False)
class Slot:
    """What is remembered of one text."""

    length: int = 0  # tokens it has read
    pages: list[int] = field(default_factory=list)  # where its keys and values lie, for models that have them
    hashes: list[bytes] = field(default_factory=list)  # of its full pages, each with all before it
    state: Any = None  # of a model whose memory is no list of positions
    source: Sequence[int] | None = None  # what an encoder reads for it
    encoded: "Encoded | None" = None  # and what came of that
    shares: bool = True  # whether others may use its pages


@dataclass(slots=True, eq=False)
class Encoded:
    """A source that was read: the encoder's vectors, and what each layer of the decoder has made of them."""

    states: Tensor  # (S, C)
    layers: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)  # keys and values (S, H, D)


@dataclass(slots=True)
class Piece:
    slot: Slot
    ids: Sequence[int]
    scored: int = 1  # of how many positions at its end scores are wanted
    tap: Tap = off


class Step(Protocol):
    """A model as the engine sees it."""

    vocab: int
    limit: int | None  # positions a slot can hold; None: any number
    device: torch.device  # where scores come out
    size: int  # positions of a page: what texts that begin alike share is a multiple of it
    reads_anew: bool  # whether each piece reads its whole text again, so that a tap sees it from its start

    @property
    def source_vocab(self) -> int | None:
        """Entries of what an encoder reads for each text (`Slot.source`); None: there is no encoder."""
        ...

    @property
    def source_limit(self) -> int | None:
        """Positions of that at most; None: any number."""
        ...

    def open(self, ids: Sequence[int], shares: bool = True) -> Slot:
        """A slot for a text, which may already hold its beginning if another text has read it."""
        ...

    def reserve(self, slot: Slot, positions: int) -> bool:
        """Make room for so many more; False if there is none just now."""
        ...

    def fork(self, slot: Slot) -> Slot:
        """Another slot that holds the same."""
        ...

    def forget(self, slot: Slot, length: int) -> None:
        """Keep the first `length` tokens only."""
        ...

    def close(self, slot: Slot) -> None: ...

    def publish(self, slot: Slot, ids: Sequence[int], start: int = 0) -> None:
        """Let others begin with what this slot has read, which is `ids` from `start` on."""
        ...

    def scores(self, pieces: Sequence[Piece]) -> Tensor:
        """Read the pieces; scores (R, V) of what follows their last positions, in the order of the pieces."""
        ...

    def choose(
        self, pieces: Sequence[Piece], samplers: Sequence[Sampler], positions: Sequence[int]
    ) -> list[int]:
        """Read one token of each text and draw the next: `scores`, then `sampling.choose`."""
        ...
