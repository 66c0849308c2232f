"""Several sources at once, each with a weight: what it is made of, before it becomes tokens."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from glassformer.core.errors import UsageError
from glassformer.data.batches import shares_of
from glassformer.data.datasets import Split, open_corpora
from glassformer.data.newlines import Newlines
from glassformer.data.sources import Corpus


@dataclass
class Mix(Corpus):
    """A corpus of corpora. Each has its splits, of one division; the lists in `splits` here stay empty."""

    sources: list[Corpus] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)

    def bytes(self, split: str) -> int:
        return sum(source.bytes(split) for source in self.sources if split in source.splits)

    def texts(self, split: str = "train", limit: int | None = None) -> Iterator[str]:
        """The text of all sources; with a limit, of each as much as its weight says."""
        for source, weight in zip(self.sources, self.weights, strict=True):
            share = None if limit is None else int(limit * weight / sum(self.weights))
            yield from source.texts(split, share)

    @property
    def is_remote(self) -> bool:
        return any(source.is_remote for source in self.sources)

    def settings(self) -> dict[str, float]:
        """{source: weight}, with paths that are found again from any folder."""
        names = [str(source.path) if source.path else source.name for source in self.sources]
        return dict(zip(names, self.weights, strict=True))


def open_mix(
    mix: dict[str, float],
    valid: float,
    test: float,
    field: str,
    split: Split = "auto",
    newlines: Newlines = "normalise",
) -> Mix:
    """The sources that `data.mix` names."""
    if "-" in mix:
        raise UsageError("data.mix: standard input cannot be one of several sources; save it to a file first")
    shares_of(list(mix.values()))  # refuses what cannot be mixed before anything is read
    sources = open_corpora(list(mix), valid, test, field, split, newlines)
    fingerprint = hashlib.sha256("\n".join(source.fingerprint for source in sources).encode()).hexdigest()
    total = sum(mix.values())
    name = "mix of " + ", ".join(f"{100 * weight / total:.3g} % {name}" for name, weight in mix.items())
    rules = "; ".join(dict.fromkeys(source.rule for source in sources))
    warnings = [warning for source in sources for warning in source.warnings]
    names = dict.fromkeys(name for source in sources for name in source.splits)
    return Mix(
        name,
        {name: [] for name in names},
        rules,
        fingerprint,
        warnings,
        notes=[note for source in sources for note in source.notes],
        skipped=[line for source in sources for line in source.skipped],
        split="content" if split == "auto" else split,
        sources=sources,
        weights=list(mix.values()),
    )
