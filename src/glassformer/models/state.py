"""What a model remembers between the steps of a generation, or of a stream that is read in pieces.

For attention it is the keys and values of every layer: with them a new token costs one position, without them
the whole prefix again. For a recurrent model it is the hidden state. It is part of the models because what is
worth remembering is theirs to say; everyone else knows a `State` by this interface.

Letters: B batch, K key-value heads, S positions so far, C model width, D head width, E value width.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor


class State(Protocol):
    @property
    def length(self) -> int:
        """Positions it has seen."""
        ...

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order; a row may be named more than once."""
        ...


@runtime_checkable
class Carried(State, Protocol):
    """A state that goes on from one batch of a stream to the next, and with a checkpoint."""

    def detach(self) -> None:
        """Forget how it came about, so that gradients end here."""
        ...

    def state_dict(self) -> dict[str, Tensor]: ...

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None: ...


@dataclass
class Memory:
    """A sequence that another one looks into: what an encoder made of the source."""

    states: Tensor  # (B, S, C)
    padding_mask: Tensor | None = None  # (B, S), False for padding

    def select(self, rows: Tensor) -> "Memory":
        return Memory(self.states[rows], None if self.padding_mask is None else self.padding_mask[rows])


class LayerCache:
    """One layer's keys (B, K, capacity, D) and values (B, K, capacity, E), filled from the left."""

    def __init__(self, capacity: int):
        self.capacity, self.length = capacity, 0
        self.keys: Tensor | None = None  # allocated when their shape is known
        self.values: Tensor | None = None
        self.memory: tuple[Tensor, Tensor] | None = None  # keys and values of a cross-attention

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append the new positions and return all there are."""
        if self.keys is None or self.values is None:
            self.keys, self.values = (x.new_zeros(*x.shape[:2], self.capacity, x.shape[-1]) for x in (k, v))
        end = self.length + k.shape[-2]
        self.keys[:, :, self.length : end] = k
        self.values[:, :, self.length : end] = v
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def select(self, rows: Tensor) -> None:
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys[rows], self.values[rows]
        if self.memory is not None:
            self.memory = self.memory[0][rows], self.memory[1][rows]


class Cache:
    """The layers' caches, and how many positions they hold."""

    def __init__(self, layers: int, capacity: int, memory: Memory | None = None):
        self.layers = [LayerCache(capacity) for _ in range(layers)]
        self.memory = memory

    @property
    def length(self) -> int:
        return self.layers[0].length

    def select(self, rows: Tensor) -> None:
        for layer in self.layers:
            layer.select(rows)
        if self.memory is not None:
            self.memory = self.memory.select(rows)
