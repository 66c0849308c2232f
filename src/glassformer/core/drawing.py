"""A picture for a report: a figure, and the sentence that says what it shows, which lies beside it as text.

Every plot of the package is one of these: saved, it is NAME.svg, NAME.png and NAME.caption.txt.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.core.files import replacing, write_atomically
from glassformer.core.terminal import printable

SALT: Any = {"svg.hashsalt": "glassformer"}  # the same picture is the same file
# Largest over smallest value up to which a logarithmic axis has plain numbers, and at even distances.
PLAIN_RANGE, EVEN_RANGE = 1000, 8


@dataclass(frozen=True)
class Drawing:
    figure: Any  # matplotlib's, which is loaded where something is drawn and not before
    caption: str  # one sentence, for a reader who has not seen how it was made

    def save(
        self, stem: Path, kinds: Sequence[str] = ("svg", "png"), dpi: int = 150, tight: bool = True
    ) -> list[Path]:
        """Write NAME.svg, NAME.png and NAME.caption.txt; `tight`: without the margins."""
        paths = [stem.with_name(f"{stem.name}.{kind}") for kind in kinds]
        for path in paths:
            with replacing(path) as temporary:
                temporary.write_bytes(self.render(path.suffix[1:], dpi, tight))
        text = stem.with_name(f"{stem.name}.caption.txt")
        write_atomically(text, f"{printable(self.caption)}\n")
        return [*paths, text]

    def render(self, kind: str, dpi: int = 150, tight: bool = True) -> bytes:
        """The picture as the content of a file."""
        from matplotlib import rc_context

        file = io.BytesIO()
        dated: dict[str, Any] = {"Date": None} if kind == "svg" else {}
        about = {"Description": printable(self.caption), **dated}
        with rc_context(SALT):
            self.figure.savefig(
                file, format=kind, dpi=dpi, bbox_inches="tight" if tight else None, metadata=about
            )
        return file.getvalue()


def use_logarithm(axes: Any, values: Sequence[float]) -> None:
    """A logarithmic y axis for these; with plain numbers where their range is small."""
    from matplotlib.ticker import FormatStrFormatter, LogLocator, MaxNLocator, NullFormatter

    axes.set_yscale("log")
    positive = [value for value in values if value > 0]
    spread = max(positive) / min(positive) if positive else 1.0
    if spread < PLAIN_RANGE:
        few = spread < EVEN_RANGE
        axes.yaxis.set_major_locator(MaxNLocator(7) if few else LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.yaxis.set_minor_formatter(NullFormatter())
