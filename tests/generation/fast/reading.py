"""What the tests of the compiled step share: texts through it, and the open pass beside it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from glassformer.generation.fast.step import FastStep
from glassformer.generation.step import Piece, Slot
from glassformer.models.build import Decoder

PAGE = 4  # small, so that short texts have several


def new_step(model: Decoder, pages: int = 64, threads: int = 1, **more: object) -> FastStep:
    return FastStep(model, pages, PAGE, threads=threads, **more)  # type: ignore[arg-type]


def new_slot(step: FastStep, positions: int) -> Slot:
    slot = step.open([], shares=False)
    assert step.reserve(slot, positions)
    return slot


def read(step: FastStep, ids: Sequence[int], sizes: Sequence[int] = ()) -> Tensor:
    """Scores after each token of a text (T, V) that is read in pieces of these sizes, or as one."""
    slot, start, scores = new_slot(step, len(ids)), 0, []
    for size in sizes or (len(ids),):
        scores.append(step.scores([Piece(slot, ids[start : start + size], size)]))
        start += size
    assert start == len(ids) == slot.length
    step.close(slot)
    return torch.cat(scores)


def expected(model: Decoder, ids: Sequence[int]) -> Tensor:
    with torch.no_grad():
        return model(torch.tensor([list(ids)]))[0]


def off_by(scores: Tensor, right: Tensor) -> float:
    """The largest difference, relative to the largest score."""
    return float((scores - right).abs().max() / right.abs().max().clamp(min=1e-3))
