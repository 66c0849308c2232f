"""Several sources at once, each with a weight: what it is made of, before it becomes tokens."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from glassformer.core.errors import UsageError
from glassformer.data.batches import shares_of
from glassformer.data.datasets import load_dataset
from glassformer.data.sources import Corpus


@dataclass
class Mix(Corpus):
    """A corpus of corpora. Each keeps its own splits; the lists in `splits` here stay empty."""

    sources: list[Corpus] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)

    def bytes(self, split: str) -> int:
        return sum(source.bytes(split) for source in self.sources if split in source.splits)

    def texts(self, split: str = "train", limit: int | None = None) -> Iterator[str]:
        """The text of all sources; with a limit, of each as much as its weight says."""
        for source, weight in zip(self.sources, self.weights, strict=True):
            share = None if limit is None else int(limit * weight / sum(self.weights))
            yield from source.texts(split, share)

    def settings(self) -> dict[str, float]:
        """{source: weight}, with paths that are found again from any folder."""
        names = [str(source.path) if source.path else source.name for source in self.sources]
        return dict(zip(names, self.weights, strict=True))


def open_mix(mix: dict[str, float], valid: float, test: float, field: str) -> Mix:
    """The sources that `data.mix` names."""
    if "-" in mix:
        raise UsageError("data.mix: standard input cannot be one of several sources; save it to a file first")
    shares_of(list(mix.values()))  # refuses what cannot be mixed before anything is read
    sources = [load_dataset(name, "language", valid=valid, test=test, field=field) for name in mix]
    fingerprint = hashlib.sha256("\n".join(source.fingerprint for source in sources).encode()).hexdigest()
    total = sum(mix.values())
    name = "mix of " + ", ".join(f"{100 * weight / total:.3g} % {name}" for name, weight in mix.items())
    rules = "; ".join(dict.fromkeys(source.rule for source in sources))
    warnings = [warning for source in sources for warning in source.warnings]
    splits = {split: [] for split in dict.fromkeys(s for source in sources for s in source.splits)}
    return Mix(name, splits, rules, fingerprint, warnings, None, sources, list(mix.values()))
