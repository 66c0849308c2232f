"""A step that was begun before it was asked for, and whether what is asked for is that step."""

from collections.abc import Sequence
from dataclasses import dataclass

from glassformer.generation.sampling import Sampler
from glassformer.generation.step import Piece, Slot
from glassformer.models.tap import off


@dataclass
class Ahead:
    slots: Sequence[Slot]
    lengths: list[int]  # of the slots, before it
    tokens: list[int]  # that it reads
    samplers: Sequence[Sampler]
    positions: list[int]  # that it draws for
    draw: int  # what to ask for its choices by
    undisturbed: bool = True  # until another walk has taken the places of its rows, and of its scores

    def rows_of(
        self, pieces: Sequence[Piece], samplers: Sequence[Sampler], positions: Sequence[int]
    ) -> list[int] | None:
        """Its rows that are asked for; None if something else is."""
        row_of = {id(slot): row for row, slot in enumerate(self.slots)}
        rows = list[int]()
        for piece, sampler, position in zip(pieces, samplers, positions, strict=True):
            row = row_of.get(id(piece.slot))
            if row is None or piece.tap is not off or sampler is not self.samplers[row]:
                return None
            expected = [self.tokens[row]], self.lengths[row], self.positions[row]
            if (list(piece.ids), piece.slot.length, position) != expected:
                return None
            rows.append(row)
        return rows
