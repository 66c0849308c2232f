"""How attention is divided into blocks on a GPU: sizes follow from the length and the heads' width alone.

Letters: T positions, D head width, M queries and N keys of a block.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Blocks:
    M: int
    N: int
    warps: int
    stages: int  # blocks that are loaded ahead, and the one at work
    registers: int | None = None  # of a thread, at most

    @property
    def options(self) -> dict[str, Any]:
        most = {} if self.registers is None else {"maxnreg": self.registers}
        return {"num_warps": self.warps, "num_stages": self.stages, **most}


def forward(T: int, D: int) -> Blocks:
    return Blocks(64, 64, 4, 3)


def queries(T: int, D: int) -> Blocks:
    """For the gradient of queries. Of wide heads less is loaded ahead, or a smaller GPU's memory is outgrown."""
    return Blocks(64, 64, 4, 3 if D <= 64 else 2)


def keys(T: int, D: int) -> Blocks:
    return Blocks(64, 64, 4, 2)
