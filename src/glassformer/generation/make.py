"""Which engine a model gets: the fast step where there is one and it pays, else the open one."""

from glassformer.generation.engine import ROWS, Engine
from glassformer.generation.open_step import PlainStep, open_step
from glassformer.models.model import LanguageModel


def make_engine(model: LanguageModel, rows: int = 1, *, cached: bool = True) -> Engine:
    """An engine for at most so many texts at once; without a cache every token reads the whole text anew."""
    rows = min(rows, ROWS)
    return Engine(open_step(model, rows) if cached else PlainStep(model), rows=rows)
