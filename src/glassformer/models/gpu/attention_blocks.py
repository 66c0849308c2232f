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


LONG, TALL = 512, 128  # from so many positions on, blocks of so many queries are worth it


def forward(T: int, D: int) -> Blocks:
    if _is_long(T, D):
        return Blocks(TALL, 64, 4, 3)
    return Blocks(64, 64, 4, 3)


def queries(T: int, D: int) -> Blocks:
    """For the gradient of queries. Of wide heads less is loaded ahead, or they outgrow a smaller GPU."""
    if _is_long(T, D):
        return Blocks(TALL, 64, 8, 3, registers=128)
    return Blocks(64, 32, 4, 3) if D <= 64 else Blocks(64, 64, 4, 2)


def keys(T: int, D: int) -> Blocks:
    return Blocks(32, 64, 4, 4) if D <= 64 else Blocks(64, 64, 4, 2)


def _is_long(T: int, D: int) -> bool:
    return T >= LONG and T % TALL == 0 and D <= 64
