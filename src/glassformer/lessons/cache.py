"""What a key-value cache saves: the time of each new token, with it and without, over the length of the text.

Generation takes one step after the other. Without a cache each step computes the whole prefix again, so a
text of T tokens costs T²/2 positions; with it, T. Both give the same scores.
"""

import time
from itertools import pairwise

import torch
from torch import Tensor

from glassformer.generation.engine import Engine
from glassformer.generation.open_step import PlainStep, open_step
from glassformer.generation.request import Request, Written
from glassformer.generation.sampling import Sampler
from glassformer.generation.step import Piece, Step
from glassformer.lessons.lesson import Curve, Lesson, Plot
from glassformer.lessons.subjects import made, transformer_of
from glassformer.models.model import LanguageModel
from glassformer.runs.run import Run

POINTS = 6


def lesson(run: Run | None = None) -> Lesson:
    if run is None:
        model, subject = made(layers=4, width=128, context=512), "four layers of width 128, random weights"
    else:
        model, subject = transformer_of(run), str(run.path)
    assert model.limit is not None
    length = model.limit - 1
    gaps, times = (
        _difference(model, min(length, 256)),
        {cached: _times(model, length, cached) for cached in (True, False)},
    )
    ends = [max(1, length * i // POINTS) for i in range(1, POINTS + 1)]
    rows = []
    for end in ends:
        part = slice(max(0, end - length // POINTS), end)
        with_cache, without = (1e3 * sorted(times[c][part])[len(times[c][part]) // 2] for c in (True, False))
        rows.append((end, with_cache, without, without / with_cache))
    return Lesson(
        "What does the key-value cache save?",
        ("tokens so far", "ms a token, cached", "ms a token, anew", "times as fast"),
        rows,
        [
            f"A token near the end of {length} costs {rows[-1][1]:.2f} ms with the cache and "
            f"{rows[-1][2]:.2f} ms without; "
            f"the whole text {sum(times[True]):.2f} s and {sum(times[False]):.2f} s.",
            f"Both give the same: their scores differ by {gaps:.0e} of the largest at most.",
        ],
        Plot(
            "The time of one more token",
            "tokens so far",
            "milliseconds a token (median)",
            [
                Curve("with the cache", ends, [row[1] for row in rows]),
                Curve("computed anew", ends, [row[2] for row in rows]),
            ],
        ),
        subject,
        {"seconds cached": sum(times[True]), "seconds anew": sum(times[False]), "scores differ by": gaps},
    )


def _times(model: LanguageModel, length: int, cached: bool) -> list[float]:
    """Seconds for each of so many tokens, the first one left out."""
    times: list[float] = []

    def note_time(token: Written) -> None:
        times.append(time.perf_counter())

    Engine(_step(model, cached)).write(Request([0], length, Sampler(temperature=0), on_token=note_time))
    return [after - before for before, after in pairwise(times)]


def _difference(model: LanguageModel, tokens: int) -> float:
    """Of the scores with and without the cache along one text, as a share of the largest."""
    text = torch.randint(model.vocab, (tokens,), generator=torch.Generator().manual_seed(0)).tolist()
    one, other = (_scores(model, text, cached) for cached in (True, False))
    return float((one - other).abs().max() / other.abs().max())


def _scores(model: LanguageModel, text: list[int], cached: bool) -> Tensor:
    """The scores of each next token along a text, (T − 1, V)."""
    step = _step(model, cached)
    slot = step.open([])
    step.reserve(slot, len(text))
    return torch.cat([step.scores([Piece(slot, [token])]).float() for token in text[:-1]])


def _step(model: LanguageModel, cached: bool) -> Step:
    return open_step(model) if cached else PlainStep(model)
