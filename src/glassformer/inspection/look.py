"""A look, what `run.look` returns: all that a text's trace gives (text_trace.py), and the whole at once."""

from pathlib import Path
from typing import Any

from glassformer.inspection.report import report
from glassformer.inspection.text_trace import TextTrace


class Look(TextTrace):
    """`look["3.z"]` is a recorded value, the methods of TextTrace derive the rest."""

    def report(
        self, maps: bool = False, position: int | None = None, relations: str | Path | None = None
    ) -> dict[str, Any]:
        """All of it as plain numbers (report.py); `maps`: those of a long text too.

        `relations` names marked sentences (marked.py), a file or a data set; then every head is switched off.
        """
        return report(self, maps, position, relations)
