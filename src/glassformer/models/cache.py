"""What a model remembers between the steps of a generation: the keys and values of every layer.

With it a new token costs one position; without it, the whole prefix again. It is part of the models because
what is worth remembering is theirs to say (for a recurrent model it is the hidden state).

Letters: B batch, K key-value heads, S positions so far, D head width, E value width.
"""

import torch
from torch import Tensor


class LayerCache:
    """One layer's keys (B, K, capacity, D) and values (B, K, capacity, E), filled from the left."""

    def __init__(self, keys: Tensor, values: Tensor):
        self.keys, self.values, self.length = keys, values, 0

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append the new positions and return all there are."""
        end = self.length + k.shape[-2]
        self.keys[:, :, self.length : end] = k
        self.values[:, :, self.length : end] = v
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]


class Cache:
    """The layers' caches, and how many positions they hold."""

    def __init__(self, layers: list[LayerCache]):
        self.layers = layers

    @property
    def length(self) -> int:
        return self.layers[0].length

    @classmethod
    def empty(
        cls,
        layers: int,
        batch: int,
        kv_heads: int,
        capacity: int,
        widths: tuple[int, int],
        like: Tensor,
    ) -> "Cache":
        """Room for `capacity` positions, in the type and on the device of `like`."""
        return cls(
            [
                LayerCache(*(torch.zeros(batch, kv_heads, capacity, w).to(like) for w in widths))
                for _ in range(layers)
            ]
        )
