"""Where a model goes wrong: its worst predictions, what it takes for what, its loss by place or frequency."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassformer.evaluation.accuracy import Answers
from glassformer.evaluation.likelihood import TokenLosses

WORST = 10


@dataclass
class Table:
    title: str
    columns: list[str]
    rows: list[list[Any]]

    def show(self) -> str:
        cells = [[_cell_text(c) for c in row] for row in [self.columns, *self.rows]]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        numeric = [all(isinstance(r[i], int | float) for r in self.rows) for i in range(len(self.columns))]
        lines = [
            "  ".join(
                c.rjust(w) if right else c.ljust(w) for c, w, right in zip(row, widths, numeric, strict=True)
            ).rstrip()
            for row in cells
        ]
        return "\n".join([self.title, *(f"  {line}" for line in lines)])


@dataclass
class Mistakes:
    tables: list[Table]

    def show(self) -> str:
        return "\n\n".join(table.show() for table in self.tables)

    def as_dict(self) -> dict[str, list[dict[str, Any]]]:
        return {t.title: [dict(zip(t.columns, row, strict=True)) for row in t.rows] for t in self.tables}


def text_mistakes(
    losses: Iterable[TokenLosses],
    ids: np.ndarray,
    training_counts: np.ndarray | None,
    show: Callable[[np.ndarray], str],
) -> Mistakes:
    """Of a language model; `training_counts`: how often each id is in the training text, if that is known."""
    parts = list(losses)
    index, depth, nats = (
        np.concatenate([getattr(p, name) for p in parts]) for name in ("index", "depth", "nats")
    )
    counts = np.zeros(int(ids.max()) + 1, int) if training_counts is None else training_counts
    frequency = counts[ids[index]]
    worst = np.argsort(-nats, kind="stable")[:WORST]
    rows: list[list[Any]] = []
    for i in worst.tolist():
        at = int(index[i])
        before = show(ids[max(0, at - 16) : at])
        rows.append([float(nats[i]), show(ids[at : at + 1]), int(frequency[i]), before])
    title = "loss by how often a token is in the training text"
    by_frequency = _means_by(title, "times there", frequency, nats)
    return Mistakes(
        [
            _means_by("loss by the tokens seen before", "tokens before", depth, nats),
            *([] if training_counts is None else [by_frequency]),
            Table("the worst predictions", ["nats", "token", "times in training", "after"], rows),
        ]
    )


def label_mistakes(
    answers: Iterable[Answers], labels: Sequence[str], show: Callable[[int, int], str]
) -> Mistakes:
    """Of a classifier or tagger; `show` gives the text of an example, and of a position in it."""
    parts = list(answers)
    rows, positions, targets, predictions, probabilities = (
        np.concatenate([getattr(p, n) for p in parts])
        for n in ("rows", "positions", "targets", "predictions", "probabilities")
    )
    counts = np.zeros((len(labels), len(labels)), int)
    np.add.at(counts, (targets, predictions), 1)
    confusion = [
        [labels[i], *counts[i].tolist(), float(_share(counts[i, i], counts[i].sum()))]
        for i in range(len(labels))
    ]
    wrong = np.flatnonzero(predictions != targets)
    wrong = wrong[np.argsort(-probabilities[wrong], kind="stable")][:WORST]
    worst = [
        [
            float(probabilities[i]),
            labels[int(predictions[i])],
            labels[int(targets[i])],
            show(int(rows[i]), int(positions[i])),
        ]
        for i in wrong.tolist()
    ]
    return Mistakes(
        [
            Table("what is taken for what (rows: the truth)", ["", *labels, "right"], confusion),
            Table("the surest mistakes", ["probability", "said", "is", "text"], worst),
        ]
    )


def translation_mistakes(
    sources: Sequence[str], references: Sequence[str], hypotheses: Sequence[str], scores: Sequence[float]
) -> Mistakes:
    """Of a translator; `scores` are chrF of each sentence."""
    words = np.array([len(s.split()) for s in sources])
    values = np.array(scores)
    worst = np.argsort(values, kind="stable")[:WORST]
    rows = [[float(values[i]), sources[i], hypotheses[i], references[i]] for i in worst]
    lengths = Counter(
        "shorter" if len(h) < len(r) else "longer" if len(h) > len(r) else "as long"
        for h, r in zip(hypotheses, references, strict=True)
    )
    return Mistakes(
        [
            _means_by("chrF by the words of the source", "words", words, values, "chrF"),
            Table(
                "translations against their references",
                ["they are", "times"],
                [[k, v] for k, v in lengths.items()],
            ),
            Table("the worst translations", ["chrF", "source", "translation", "reference"], rows),
        ]
    )


def _means_by(title: str, name: str, by: np.ndarray, values: np.ndarray, what: str = "nats") -> Table:
    """Means of values in bins that double in width: 0, 1, 2–3, 4–7, …"""
    bins = np.where(by > 0, np.floor(np.log2(np.maximum(by, 1))).astype(int) + 1, 0)
    rows = []
    for b in np.unique(bins):
        inside = bins == b
        low, high = (0, 0) if b == 0 else (1 << (b - 1), (1 << b) - 1)
        rows.append(
            [f"{low}" if low == high else f"{low}–{high}", int(inside.sum()), float(values[inside].mean())]
        )
    return Table(title, [name, "n", what], rows)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _cell_text(cell: Any) -> str:
    if isinstance(cell, float):
        return f"{cell:.3f}"
    text = str(cell).replace("\n", "⏎")
    return text if len(text) <= 90 else text[:87] + "…"
