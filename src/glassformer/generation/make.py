"""Which step a model gets: the fast one where there is one and it pays, else the open one.

The fast step of a CPU (fast/) is compiled once per machine, which takes about twenty seconds, and
then loads in half a second. So it is taken for what would take longer than that by the open pass. Scores of
the two agree to about 1e-6 of the largest, so they write the same text unless two tokens are that close.

The fast step of a GPU (gpu/) compiles in some seconds, and is kept. It is taken for what would take longer
than that, where Triton is there and the model fits, in float32; in bfloat16 when that is asked for.
"""

from functools import partial
from pathlib import Path
from typing import Literal

import torch

from glassformer.core import lanes
from glassformer.core.compiled import CompiledFolder
from glassformer.core.errors import UsageError
from glassformer.generation import gpu
from glassformer.generation.engine import ROWS, Engine
from glassformer.generation.fast import fits
from glassformer.generation.open_step import PlainStep, open_step, pages_for
from glassformer.generation.speculative import SpeculativeEngine
from glassformer.generation.step import Step
from glassformer.models.model import LanguageModel, WritingModel, parameter_count

Weights = Literal["auto", "open", "f32", "bf16", "int8"]
PRECISIONS: dict[Weights, Literal["float32", "bfloat16", "int8"]] = {
    "f32": "float32",
    "bf16": "bfloat16",
    "int8": "int8",
}
# Seconds that the fast step saves must be more than it takes to load, or to compile.
LOADING, COMPILING = 0.6, 25.0
SECONDS_PER_TOKEN, SECONDS_PER_WEIGHT = 1.2e-3, 3e-10  # of the open pass on two cores
MANY_TOKENS = 1000  # from which on a GPU's kernels are worth compiling

compiled_loops = CompiledFolder(Path(__file__).with_name("fast") / "kernels", Path(lanes.__file__).parent)


def choose_weights(model: WritingModel, weights: Weights = "auto", tokens: int | None = None) -> Weights:
    """What `auto` means for a model and so many tokens (None: very many); what cannot be is refused."""
    if weights == "open":
        return weights
    if device_of(model).type == "cuda" and weights != "int8":
        if weights != "auto":
            return _with_kernels(model, weights)
        pays = tokens is None or tokens >= MANY_TOKENS
        return "f32" if pays and gpu.fits(model) is None else "open"
    reason = fits(model)
    if weights == "auto":
        return "open" if reason is not None or not _pays(model, tokens) else "f32"
    if reason is not None:
        raise UsageError(
            f"{weights} weights are for the compiled step of a CPU, which is not for this: {reason}"
        )
    return weights


def device_of(model: WritingModel) -> torch.device:
    return next(model.parameters()).device


def _with_kernels(model: WritingModel, weights: Weights) -> Weights:
    """On a GPU, if that can be."""
    if (reason := gpu.fits(model)) is not None:
        raise UsageError(
            f"{weights} weights on a GPU are for a step of own kernels, which is not for this: {reason}. "
            "The open pass (open, auto) takes any model"
        )
    return weights


def make_step(
    model: WritingModel, rows: int = 1, *, weights: Weights = "auto", tokens: int | None = None
) -> Step:
    """A step with room for so many texts of the model's whole context.

    `weights` names the precision of a fast step, or the open pass; `auto` takes float32 where the model fits,
    on a CPU, and so many `tokens` pay for it.
    """
    chosen = choose_weights(model, weights, tokens)
    if chosen == "open":
        return open_step(model, rows)
    assert isinstance(model, LanguageModel) and model.limit is not None  # what a fast step is for
    pages, precision = rows * pages_for(model.limit), PRECISIONS[chosen]
    if device_of(model).type == "cuda" and precision != "int8":
        from glassformer.generation.gpu.step import GraphStep

        return GraphStep(model, pages, precision=precision, texts=rows)
    from glassformer.generation.fast.step import FastStep

    compiled_loops.was_compiled()
    return FastStep(model, pages, precision=precision)


def _pays(model: WritingModel, tokens: int | None) -> bool:
    if tokens is None:
        return True
    seconds = tokens * (SECONDS_PER_TOKEN + SECONDS_PER_WEIGHT * parameter_count(model))
    return seconds > (LOADING if compiled_loops.is_compiled else COMPILING)


def weights_state(model: WritingModel) -> object:
    """Another one after a model's weights were changed, moved or replaced (but not through `.data`)."""
    return id(model), [(p.data_ptr(), p._version) for p in model.parameters()]


def make_engine(
    model: WritingModel,
    rows: int = 1,
    *,
    cached: bool = True,
    draft: LanguageModel | None = None,
    weights: Weights = "auto",
    tokens: int | None = None,
) -> Engine:
    """An engine for at most so many texts at once.

    Without a cache every token reads the whole text anew. A `draft` guesses ahead (speculative.py).
    """
    rows = min(rows, ROWS)
    if not cached:
        return Engine(PlainStep(model), rows=rows)
    make = partial(make_step, rows=rows, weights=weights, tokens=tokens)
    if draft is not None:
        return SpeculativeEngine(make(model), make(draft), rows=rows)
    return Engine(make(model), rows=rows)
