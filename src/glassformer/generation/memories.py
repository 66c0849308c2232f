"""What translations look into while they are written: their sources, as the encoder has read them.

A source is read once, with the others that come at the same time, and each layer of the decoder makes its
keys and values of it once; both stay with the slot, and with those that are forked from it. For a step they
are put side by side, padded, which is kept as long as the same texts are written.

Letters: B texts, S positions of the longest source, C model width, H heads, D head width.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from glassformer.data.batches import pad
from glassformer.generation.step import Encoded, Slot
from glassformer.models.model import EncoderDecoderModel, WritingModel
from glassformer.models.state import Memory, Project


class Sources(Protocol):
    """What a layer asks of the memories of the texts that are written."""

    memory: Memory

    def of_layer(self, layer: int, project: Project) -> tuple[Tensor, Tensor]:
        """Its keys and values (B, H, S, D) of them."""
        ...


class Beside:
    """The memories of some texts side by side."""

    def __init__(self, parts: list[Encoded]):
        self.parts, self.memory = parts, _side_by_side(parts)
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    def of_layer(self, layer: int, project: Project) -> tuple[Tensor, Tensor]:
        """A layer's keys and values (B, H, S, D) of them; those of new sources are made now."""
        if layer not in self._layers:
            new = [part for part in dict.fromkeys(self.parts) if layer not in part.layers]
            if new:
                made = [x.transpose(1, 2) for x in project(_side_by_side(new))]  # (B, S, H, D)
                for row, part in enumerate(new):
                    k, v = (x[row, : len(part.states)].clone() for x in made)
                    part.layers[layer] = k, v
            k, v = (
                pad_sequence([part.layers[layer][i] for part in self.parts], batch_first=True) for i in (0, 1)
            )
            self._layers[layer] = k.transpose(1, 2), v.transpose(1, 2)
        return self._layers[layer]


class Memories:
    """Of the texts of one step."""

    def __init__(self, model: EncoderDecoderModel):
        self.model = model
        self.vocab = model.config.source_vocab or model.vocab
        self.limit = model.encoder.limit
        self._last: Beside | None = None

    @classmethod
    def for_model(cls, model: WritingModel) -> "Memories | None":
        """None for a model that has no sources."""
        return cls(model) if isinstance(model, EncoderDecoderModel) else None

    def of(self, slots: Sequence[Slot]) -> Beside:
        """The memories of these texts; sources that were not read yet are read now."""
        self._read([slot for slot in slots if slot.encoded is None])
        parts = [slot.encoded for slot in slots if slot.encoded is not None]
        if self._last is None or not _same(self._last.parts, parts):
            self._last = Beside(parts)
        return self._last

    def _read(self, slots: Sequence[Slot]) -> None:
        if not slots:
            return
        device = self.model.unembedding.weight.device
        sources = [np.asarray(slot.source, np.int64) for slot in slots]
        ids, padding_mask = (torch.from_numpy(x).to(device) for x in pad(sources))
        states = self.model.encode(ids, padding_mask).states
        for row, (slot, source) in enumerate(zip(slots, sources, strict=True)):
            slot.encoded = Encoded(
                states[row, : len(source)].clone()
            )  # not the whole batch's as long as it lives


def _same(some: list[Encoded], others: list[Encoded]) -> bool:
    return len(some) == len(others) and all(a is b for a, b in zip(some, others, strict=True))


def _side_by_side(parts: Sequence[Encoded]) -> Memory:
    states = pad_sequence([part.states for part in parts], batch_first=True)  # (B, S, C)
    lengths = torch.tensor([len(part.states) for part in parts], device=states.device)
    return Memory(states, torch.arange(states.shape[1], device=states.device) < lengths[:, None])
