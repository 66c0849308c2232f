"""From source sentences to target sentences. Handles ids.

With samplers, or one beam, each source is a request of the engine: a token is drawn each time, or the best
one is taken; a text that has ended leaves, and the next source takes its place. With more beams, sources of
like length are searched together over a step of the same kind.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from glassformer.core.errors import UsageError
from glassformer.generation.beam import Hypothesis, SlotState, beam_search, read_slots
from glassformer.generation.engine import Engine
from glassformer.generation.limits import BEAMS, LENGTH_PENALTY
from glassformer.generation.open_step import open_step
from glassformer.generation.request import Handle, Request, Written, check_source, no_numbers
from glassformer.generation.sampling import Sampler
from glassformer.models.model import EncoderDecoderModel

BATCH_TOKENS = 4096  # source tokens times beams that are written for at once
BATCH_POSITIONS = 1 << 15  # that there is room for at once, of all beams: memory, on a GPU taken beforehand


def translate_ids(
    model: EncoderDecoderModel,
    sources: Sequence[np.ndarray],
    eot_id: int,
    *,
    source_eot_id: int | None = None,
    beams: int = BEAMS,
    length_penalty: float = LENGTH_PENALTY,
    samplers: Sequence[Sampler] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> list[list[Hypothesis]]:
    """For each source (ids without marks) its translations, best first; with `samplers`, one for each source,
    one that is drawn. It may be as long as the model's context, which its longest examples decided: how much
    longer than its source a target can be is no more known of pairs in general than of their languages.

    `source_eot_id` is the mark that ends a source, where it has a vocabulary of its own.
    """
    if beams < 1:
        raise UsageError(f"{beams} beams: expected at least 1")
    mark = eot_id if source_eot_id is None else source_eot_id
    marked = [[*source.tolist(), mark] for source in sources]
    for source in marked:
        check_source(source, model.config.source_vocab or model.vocab, model.encoder.limit)
    if not marked:
        return []
    order = sorted(range(len(marked)), key=lambda i: len(marked[i]))
    if samplers is None and beams == 1:
        samplers = [Sampler(temperature=0)] * len(marked)
    if samplers is not None:
        return _by_engine(model, marked, order, eot_id, length_penalty, samplers, progress)
    translations: list[list[Hypothesis]] = [[] for _ in marked]
    room = model.config.context
    batches = list(_batches(marked, order, beams, max(1, BATCH_POSITIONS // (beams * room))))
    step = open_step(model, beams * max(map(len, batches)), room)
    for rows in batches:
        state = SlotState(step, len(rows), [marked[r] for r in rows])
        best = beam_search(
            read_slots,
            state,
            torch.full((len(rows), 1), eot_id, device=step.device),
            beams=beams,
            tokens=room,
            end=eot_id,
            length_penalty=length_penalty,
        )
        state.close()
        for r, hypotheses in zip(rows, best, strict=True):
            if not hypotheses:
                raise no_numbers()
            translations[r] = hypotheses
        progress(len(rows))
    return translations


def _batches(sources: list[list[int]], order: list[int], beams: int, most: int) -> Iterator[list[int]]:
    """Which sources are searched together, at most so many."""
    rows: list[int] = []
    for i in order:
        if rows and (len(rows) == most or (len(rows) + 1) * len(sources[i]) * beams > BATCH_TOKENS):
            yield rows
            rows = []
        rows.append(i)
    if rows:
        yield rows


def _by_engine(
    model: EncoderDecoderModel,
    sources: list[list[int]],
    order: list[int],
    eot_id: int,
    length_penalty: float,
    samplers: Sequence[Sampler],
    progress: Callable[[int], None],
) -> list[list[Hypothesis]]:
    usual = len(sources[order[len(order) * 9 // 10]])  # a few long ones may take more room
    most = min(BATCH_TOKENS // usual, BATCH_POSITIONS // model.config.context)
    rows = max(1, min(len(sources), most))
    engine = Engine(open_step(model, rows), rows=rows)
    written: list[list[Written]] = [[] for _ in sources]
    handles = dict[int, Handle]()
    for i in order:  # of like length side by side, so that little of a step is padding
        handles[i] = engine.submit(
            Request(
                [eot_id],
                model.config.context,
                samplers[i].with_seed(),
                end=eot_id,
                source=sources[i],
                likeliest=0,
                on_token=written[i].append,
                on_end=lambda _: progress(1),
            )
        )
    while engine.turn():
        pass
    for handle in handles.values():
        if handle.error is not None:
            raise handle.error
    return [[_hypothesis(tokens, eot_id, length_penalty)] for tokens in written]


def _hypothesis(tokens: list[Written], eot_id: int, length_penalty: float) -> Hypothesis:
    total = sum(token.log_prob for token in tokens if token.log_prob is not None)
    ended = bool(tokens) and tokens[-1].id == eot_id
    ids = [token.id for token in tokens]
    return Hypothesis.with_penalty(ids[:-1] if ended else ids, total, ended, length_penalty)
