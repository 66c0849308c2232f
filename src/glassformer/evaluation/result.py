"""What a measurement is, whatever was measured: numbers for a file, a line for a log, a table to read."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from glassformer.core.notebook import html_table

PLENTY = 1_000  # targets from which on a mean is written in full
PRECISE = 4  # decimals of it then


def decimals(targets: int) -> int:
    """As many as mean something: the mean over n targets wavers by about one in the square root of n."""
    return 2 if targets < PLENTY else PRECISE


def percent(share: float, n: int) -> str:
    """A share of n, without decimals that so few cannot have."""
    return f"{share:.0%}" if n < 100 else f"{share:.1%}" if n < PLENTY else f"{share:.2%}"


@dataclass(frozen=True)
class Result:
    """A measurement on one split."""

    split: str
    loss: float  # nats per target
    unknown_share: float = field(default=0.0, kw_only=True)  # of a text's tokens, which say less than it does

    @property
    def criterion(self) -> float:
        """What training keeps the lowest of."""
        return self.loss

    @property
    def score(self) -> tuple[str, float, bool]:
        """The number to compare by: its name, itself, and whether more of it is better."""
        return "loss", self.loss, False

    @property
    def digits(self) -> int:
        """How many decimals of it mean something."""
        return PRECISE

    def as_dict(self) -> dict[str, Any]:
        """All numbers, as `--json` prints them."""
        return {k: v for k, v in asdict(self).items() if v or k != "unknown_share"}

    def numbers(self) -> dict[str, float]:
        """What a log keeps."""
        return {k: v for k, v in self.as_dict().items() if isinstance(v, int | float)}

    def table(self) -> list[tuple[str, str]]:
        """Names and values as a person reads them."""
        return [("split", self.split), ("loss", f"{self.loss:.4f} nats")]

    def _repr_html_(self) -> str:
        return html_table(self.table())

    def summary(self) -> str:
        """The main numbers, in a line."""
        return f"loss {self.loss:.4f}"


def wilson(correct: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """Where the true share lies with 95 % confidence when `correct` of `n` were (Wilson's interval)."""
    p = correct / n
    middle = p + z * z / (2 * n)
    spread = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    below, above = ((middle + s * spread) / (1 + z * z / n) for s in (-1, 1))
    return max(0.0, below), min(1.0, above)
