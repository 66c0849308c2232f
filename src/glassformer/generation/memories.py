"""What translations look into while they are written: their sources, as the encoder has read them.

A source is read once, with the others that come at the same time, and stays with its slot; so a beam that is
followed twice has the same. For a step of the decoder the memories of its texts lie side by side, padded,
and with them what each layer makes of them. That stays as long as the same texts are written, beams or not.

Letters: B texts, S positions of the longest source, C model width.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from glassformer.data.batches import pad
from glassformer.generation.step import Slot
from glassformer.models.model import EncoderDecoderModel, WritingModel
from glassformer.models.state import Memory


@dataclass(frozen=True)
class Beside:
    """The memories of some texts side by side, and what each layer has made of them: keys and values."""

    memory: Memory
    layers: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)


class Memories:
    """Of the texts of one step."""

    def __init__(self, model: EncoderDecoderModel):
        self.model = model
        self.vocab = model.config.source_vocab or model.vocab
        self.limit = model.encoder.limit
        self._last: tuple[list[Tensor], Beside] | None = None

    @classmethod
    def for_model(cls, model: WritingModel) -> "Memories | None":
        """None for a model that has no sources."""
        return cls(model) if isinstance(model, EncoderDecoderModel) else None

    def of(self, slots: Sequence[Slot]) -> Beside:
        """The memories of these texts; sources that were not read yet are read now."""
        self._read([slot for slot in slots if slot.memory is None])
        parts = [slot.memory for slot in slots if slot.memory is not None]
        if self._last is not None and _same(self._last[0], parts):
            return self._last[1]
        beside = Beside(_side_by_side(parts))
        self._last = parts, beside
        return beside

    def _read(self, slots: Sequence[Slot]) -> None:
        if not slots:
            return
        device = self.model.unembedding.weight.device
        sources = [np.asarray(slot.source, np.int64) for slot in slots]
        ids, padding_mask = (torch.from_numpy(x).to(device) for x in pad(sources))
        states = self.model.encode(ids, padding_mask).states
        for row, (slot, source) in enumerate(zip(slots, sources, strict=True)):
            slot.memory = states[row, : len(source)].clone()  # not the whole batch's, for as long as it lives


def source_sizes(memories: Memories | None) -> tuple[int | None, int | None]:
    """Of how many entries sources are, and of how many positions at most."""
    return (None, None) if memories is None else (memories.vocab, memories.limit)


def _same(some: list[Tensor], others: list[Tensor]) -> bool:
    return len(some) == len(others) and all(a is b for a, b in zip(some, others, strict=True))


def _side_by_side(parts: list[Tensor]) -> Memory:
    lengths = torch.tensor([len(part) for part in parts], device=parts[0].device)
    states = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)  # (B, S, C)
    return Memory(states, torch.arange(states.shape[1], device=states.device) < lengths[:, None])
