"""What a model remembers between the steps of a generation, or of a stream that is read in pieces.

For attention it is the keys and values of every layer: with them a new token costs one position, without them
the whole prefix again. For a recurrent model it is the hidden state. It is part of the models because what is
worth remembering is theirs to say; everyone else knows a `State` by this interface.

A transformer asks its state two things, where the new tokens stand and what attention finds, and knows
nothing of how keys are kept: here in one tensor per layer, filled from the left, each row to its own length.

Letters: B batch, H heads, K key-value heads, T new positions, S positions so far, C model width, D head
width, E value width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from glassformer.models.mask import Mask

Bias = Callable[[Tensor, Tensor], Tensor | None]  # of queries and keys at these positions
Attend = Callable[..., Tensor]  # models.attention.attend, or what takes its place


class State(Protocol):
    @property
    def length(self) -> int:
        """Positions it has seen; of rows of unequal length, the longest."""
        ...

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order; a row may be named more than once."""
        ...


@runtime_checkable
class Carried(State, Protocol):
    """A state that goes on from one batch of a stream to the next, and with a checkpoint."""

    def state_dict(self) -> dict[str, Tensor]: ...

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None: ...


@dataclass
class Memory:
    """A sequence that another one looks into: what an encoder made of the source."""

    states: Tensor  # (B, S, C)
    padding_mask: Tensor | None = None  # (B, S), False for padding

    def select(self, rows: Tensor) -> "Memory":
        return Memory(self.states[rows], None if self.padding_mask is None else self.padding_mask[rows])


Project = Callable[[Memory], tuple[Tensor, Tensor]]  # to keys and values (B, H, S, D)


def refuse_ragged(state: State | None, padding_mask: Tensor | None) -> None:
    """For states that are at one position in all rows: padding would go into them like any token."""
    if state is not None and padding_mask is not None:
        raise ValueError("this model's state takes rows of one length: expected no padding_mask with it")


class LayerState(Protocol):
    """One layer's part of the state of a generation."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Bias, attend: Attend) -> Tensor:
        """Take the keys and values of the new positions in, and attend to all there are: (B, H, T, E)."""
        ...

    def of_memory(self, project: Project, memory: Memory) -> tuple[Tensor, Tensor]:
        """Keys and values of the memory, made when they are first asked for."""
        ...

    def after(self, name: str, x: Tensor, reach: int) -> Tensor:
        """x (B, T, C) behind the last `reach` inputs of the part `name`, zeros first: (B, reach + T, C)."""
        ...


class Lengths:
    """How many positions each row holds: one number while all rows agree, else one for each."""

    def __init__(self) -> None:
        self.longest = 0
        self.by_row: Tensor | None = None  # (B)

    def positions(self, T: int, device: torch.device) -> Tensor:
        """Where the next T tokens stand, (1, T), or (B, T) if the rows differ."""
        new = torch.arange(T, device=device)
        return (self.longest + new)[None] if self.by_row is None else self.by_row[:, None] + new

    def advance(self, T: int, padding_mask: Tensor | None = None) -> None:
        """T more, or as many as a row of `padding_mask` (B, T) says; what is padding comes last there."""
        if padding_mask is None and self.by_row is None:
            self.longest += T
            return
        if padding_mask is None:
            assert self.by_row is not None
            by_row = self.by_row + T
        else:
            by_row = padding_mask.sum(dim=1) + (self.longest if self.by_row is None else self.by_row)
        self.by_row, self.longest = by_row, int(by_row.max())

    @property
    def count(self) -> int | Tensor:
        return self.longest if self.by_row is None else self.by_row

    def select(self, rows: Tensor) -> None:
        if self.by_row is not None:
            self.by_row = self.by_row[rows]
            self.longest = int(self.by_row.max())


class LayerCache:
    """One layer's keys (B, K, capacity, D) and values (B, K, capacity, E), filled from the left."""

    def __init__(self, capacity: int, lengths: Lengths):
        self.capacity, self.lengths = capacity, lengths
        self.keys: Tensor | None = None  # allocated when their shape is known
        self.values: Tensor | None = None
        self.memory: tuple[Tensor, Tensor] | None = None  # keys and values of a cross-attention
        self.seen: dict[str, tuple[Tensor, int | Tensor]] = {}  # what `after` gave, and where its x began

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Bias, attend: Attend) -> Tensor:
        if self.keys is None or self.values is None:
            self.keys, self.values = (x.new_zeros(*x.shape[:2], self.capacity, x.shape[-1]) for x in (k, v))
        T, ragged = k.shape[-2], self.lengths.by_row is not None
        positions = self.lengths.positions(T, k.device)  # (1 or B, T)
        end = self.lengths.longest + T
        if ragged:
            rows = torch.arange(len(k), device=k.device)[:, None]
            self.keys[rows, :, positions] = k.transpose(1, 2)
            self.values[rows, :, positions] = v.transpose(1, 2)
        else:
            self.keys[:, :, end - T : end] = k
            self.values[:, :, end - T : end] = v
        k, v = self.keys[:, :, :end], self.values[:, :, :end]
        added = bias(positions, torch.arange(end, device=k.device))
        # Behind the end of a short row lies what a longer one left; no query of that row is as far.
        return attend(q, k, v, mask, added, queries=positions if ragged else None)

    def of_memory(self, project: Project, memory: Memory) -> tuple[Tensor, Tensor]:
        if self.memory is None:
            self.memory = project(memory)
        return self.memory

    def after(self, name: str, x: Tensor, reach: int) -> Tensor:
        if name in self.seen:  # how much of it was no padding shows by now
            seen, began = self.seen[name]
            before = _part(seen, self.lengths.count - began, reach)
        else:
            before = x.new_zeros(len(x), reach, x.shape[-1])
        seen = torch.cat([before, x], dim=1)
        self.seen[name] = seen, self.lengths.count
        return seen

    def select(self, rows: Tensor) -> None:
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys[rows], self.values[rows]
        if self.memory is not None:
            self.memory = self.memory[0][rows], self.memory[1][rows]
        for name, (seen, began) in self.seen.items():
            self.seen[name] = seen[rows], began[rows] if isinstance(began, Tensor) else began


def _part(x: Tensor, start: int | Tensor, size: int) -> Tensor:
    """So many positions of x (B, T, C) from `start` on, which may be another in each row."""
    if isinstance(start, int):
        return x[:, start : start + size]
    rows = torch.arange(len(x), device=x.device)[:, None]
    return x[rows, start[:, None] + torch.arange(size, device=x.device)]


class Cache:
    """The layers' caches, and how many positions their rows hold.

    What the engine writes lies in pages (generation/open_step.py), and this is what it is held to.
    """

    def __init__(self, layers: int, capacity: int, memory: Memory | None = None):
        self.lengths = Lengths()
        self.layers = [LayerCache(capacity, self.lengths) for _ in range(layers)]
        self.memory = memory

    @property
    def length(self) -> int:
        return self.lengths.longest

    def select(self, rows: Tensor) -> None:
        self.lengths.select(rows)
        for layer in self.layers:
            layer.select(rows)
        if self.memory is not None:
            self.memory = self.memory.select(rows)
