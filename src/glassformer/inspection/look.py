"""A look, what `run.look` returns: all that a text's trace gives (text_trace.py), and the whole at once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from glassformer.core.drawing import Drawing
from glassformer.core.errors import UsageError, closest
from glassformer.core.notebook import html_table
from glassformer.inspection.report import map_sections, report
from glassformer.inspection.report_text import visible
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

    def plot(self, what: str = "attention", file: str | Path | None = None) -> Any:
        """A picture of it as a matplotlib figure: the attention maps, or `what` else there is (`plots`).

        With a `file`, which ends in .svg, .png or .pdf, it is written there too, its caption beside it.
        """
        part = self.part.replace(".", "-")
        known = self.drawings(maps_only=what.endswith(("attention", "rollout")))
        name = what if what in known else f"{part}{what}"
        if name not in known:
            there = self.plots
            if not self.is_transformer and what == "attention":
                raise UsageError(
                    f"a {self.model.get('family')} has no attention maps; there are {', '.join(there)}"
                )
            raise UsageError(f"no plot '{what}': there are {', '.join(there)}{closest(what, there)}")
        drawing = known[name]()
        if file is not None:
            path = Path(file)
            if path.suffix not in (".svg", ".png", ".pdf"):
                raise UsageError(f"{file}: expected a name that ends in .svg, .png or .pdf")
            drawing.save(path.with_suffix(""), [path.suffix[1:]])
        return drawing.figure

    @property
    def plots(self) -> list[str]:
        """The names of what `plot` can draw of this text."""
        return list(self.drawings())

    def drawings(self, maps_only: bool = False) -> dict[str, Callable[[], Drawing]]:
        """Every plot by its name, drawn when called; `maps_only`: those of attention, which cost least."""
        from glassformer.inspection.plots import drawings  # matplotlib takes long to load

        return drawings(map_sections(self) if maps_only else self.report(maps=True))

    def _repr_html_(self) -> str:
        where = self.focus % self.trace.logits.shape[1] if not self.answers_once else -1
        rows = [
            (f"{part}tokens", " ".join(visible(t) for t in tokens)) for part, tokens in self.tokens.items()
        ]
        what = "its answer" if self.answers_once else f"likeliest at position {where}"
        rows.append((what, ", ".join(f"{visible(name)} {p:.1%}" for name, p in self.best(where))))
        rows.append(("recorded", f"{len(self.sites)} sites, such as {', '.join(self.sites[:4])}"))
        return html_table(rows, repr(self))
