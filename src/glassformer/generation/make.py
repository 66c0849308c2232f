"""Which engine a model gets: the fast step where there is one and it pays, else the open one."""

from glassformer.generation.engine import ROWS, Engine
from glassformer.generation.open_step import PlainStep, open_step
from glassformer.generation.speculative import SpeculativeEngine
from glassformer.models.model import LanguageModel


def make_engine(
    model: LanguageModel, rows: int = 1, *, cached: bool = True, draft: LanguageModel | None = None
) -> Engine:
    """An engine for at most so many texts at once.

    Without a cache every token reads the whole text anew. A `draft` guesses ahead (speculative.py).
    """
    rows = min(rows, ROWS)
    if not cached:
        return Engine(PlainStep(model), rows=rows)
    if draft is not None:
        return SpeculativeEngine(open_step(model, rows), open_step(draft, rows), rows=rows)
    return Engine(open_step(model, rows), rows=rows)
