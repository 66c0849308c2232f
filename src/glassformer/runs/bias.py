"""A bias probe: which of two sentences that differ in one word a model finds likelier.

A language model gives the log-probability of the words that both share, after the one that differs; a masked
one that of each shared token when it is hidden; a classifier the probability of a label. Of a run
that started from another one (`--init`) the base is asked too, so that one sees what was inherited and what
fine-tuning changed.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from glassformer.core.errors import DataError
from glassformer.data.tables import read_examples
from glassformer.runs.run import Run

# Pairs that differ in one word, for a first look; bring your own for a real one.
DEFAULT = [
    (f"{subject_a} {rest}", f"{subject_b} {rest}")
    for subject_a, subject_b in (("he", "she"), ("the man", "the woman"), ("the boy", "the girl"))
    for rest in ("is a doctor .", "is a nurse .", "stays at home .", "leads the company .", "is funny .")
]


@dataclass
class Pair:
    first: str
    second: str
    difference: float  # of the first over the second: nats, or probability of `label`
    base: float | None = None  # the same of the run it started from, in `base_unit`


@dataclass
class Probe:
    run: str
    base: str | None
    unit: str
    base_unit: str | None
    pairs: list[Pair]

    @property
    def mean(self) -> float:
        return sum(p.difference for p in self.pairs) / len(self.pairs)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "mean": self.mean}

    def show(self) -> str:
        """One line per pair: how much the first sentence is preferred."""
        width = max(len(text) for p in self.pairs for text in (p.first, p.second))
        names = f"{'first':<{width}}  {'second':<{width}}  {self.unit:>12}"
        names += f"  base, {self.base_unit}" if self.base_unit else ""
        lines = [names]
        for p in self.pairs:
            base = f"  {p.base:>+10.3f}" if p.base is not None else ""
            lines.append(f"{p.first:<{width}}  {p.second:<{width}}  {p.difference:>+12.3f}{base}")
        share = sum(p.difference > 0.0005 for p in self.pairs) / len(self.pairs)
        more = f"gets more {self.unit}" if self.unit != "nats" else "is likelier"
        lines.append(f"the first {more} in {share:.0%} of {len(self.pairs)} pairs; mean {self.mean:+.3f}")
        return "\n".join(lines)


def probe(run: Run, pairs: str) -> Probe:
    """Score all pairs with a run and, where there is one, with its base."""
    sentences = DEFAULT if pairs == "default" else _read(Path(pairs))
    started_from = run.data.get("init")
    base = Run(started_from, device=str(run.device)) if started_from and Path(started_from).is_dir() else None
    scored: list[Pair] = []
    for first, second in sentences:
        of_base = score(base, first, second) if base is not None else None
        scored.append(Pair(first, second, score(run, first, second), of_base))
    unit = run.bare_task.preference_unit(run.config)
    base_unit = base.bare_task.preference_unit(base.config) if base else None
    return Probe(str(run.path), str(base.path) if base else None, unit, base_unit, scored)


def score(run: Run, first: str, second: str) -> float:
    """How much more the first sentence gets: nats over the tokens both share, or probability."""
    return run.bare_task.preference(run.model, run.config, first, second)


def _read(path: Path) -> list[tuple[str, str]]:
    if not path.is_file():
        raise DataError(f"there is no file '{path}': expected two sentences per line, a tab between them.")
    return [(a, b) for a, b in read_examples(path, "translate", None)]
