"""From source sentences to target sentences: batches of like length, each by beam search. Handles ids."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from glassformer.data.batches import pad
from glassformer.generation.beam import Hypothesis, beam_search
from glassformer.generation.limits import BEAMS, LENGTH_PENALTY
from glassformer.models.model import EncoderDecoderModel, evaluating

BATCH_TOKENS = 4096  # source tokens times beams that are written for at once


@torch.no_grad()
def translate_ids(
    model: EncoderDecoderModel,
    sources: Sequence[np.ndarray],
    eot_id: int,
    *,
    source_eot_id: int | None = None,
    beams: int = BEAMS,
    length_penalty: float = LENGTH_PENALTY,
    progress: Callable[[int], None] = lambda _: None,
) -> list[list[Hypothesis]]:
    """For each source (ids without marks) its translations, best first.

    `source_eot_id` is the mark that ends a source, where it has a vocabulary of its own.
    """
    mark = eot_id if source_eot_id is None else source_eot_id
    device = next(model.parameters()).device
    translations: list[list[Hypothesis]] = [[] for _ in sources]
    rows: list[int] = []
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    for rank, i in enumerate(order):
        rows.append(i)
        full = (len(rows) + 1) * (len(sources[i]) + 1) * beams > BATCH_TOKENS
        if not full and rank < len(order) - 1:
            continue
        ids, padding_mask = (
            torch.from_numpy(x).to(device) for x in pad([np.append(sources[r], mark) for r in rows])
        )
        room = [2 * len(sources[r]) + 20 for r in rows]  # of each by itself, whatever its company
        room = [n if model.limit is None else min(n, model.limit) for n in room]
        first = torch.full((len(rows), 1), eot_id, device=device)
        options = {"beams": beams, "tokens": room, "end": eot_id, "length_penalty": length_penalty}
        with evaluating(model):
            best = beam_search(model.next_scores, model.start(ids, padding_mask, max(room)), first, **options)
        for r, hypotheses in zip(rows, best, strict=True):
            translations[r] = hypotheses
        progress(len(rows))
        rows = []
    return translations
