"""A look, what `run.look` returns: all that a text's trace gives (text_trace.py), and the whole at once."""

from typing import Any

from glassformer.inspection.report import report
from glassformer.inspection.text_trace import TextTrace


class Look(TextTrace):
    """`look["3.z"]` is a recorded value, the methods of TextTrace derive the rest."""

    def report(self, maps: bool = False, position: int | None = None) -> dict[str, Any]:
        """All of it as plain numbers (report.py); `maps`: those of a long text too."""
        return report(self, maps, position)
