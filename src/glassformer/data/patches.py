"""Images as sequences: a square of pixels cut into smaller squares, row by row, and put together again.

    ┌──┬──┬──┐
    │0,0 0,1 0,2        a patch is called by its row and column; of each, all numbers stand in one row,
    ├──┼──┼──┤          line by line, the channels of a pixel side by side
    │1,0 1,1 1,2

Letters: S pixels a side, K channels, T patches, P numbers in a patch.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Geometry:
    """How images are brought to one form; 0 where nothing is said yet."""

    size: int = 0  # pixels a side
    patch: int = 0  # pixels a side of a patch
    channels: int = 0  # 1: grey, 3: red, green and blue

    @property
    def side(self) -> int:
        """Patches a side."""
        return self.size // self.patch

    @property
    def numbers(self) -> int:
        """In a patch."""
        return self.patch * self.patch * self.channels

    def allows(self, other: "Geometry") -> bool:
        """Whether another one is all that this one says."""
        return all(
            wish in (0, given)
            for wish, given in (
                (self.size, other.size),
                (self.patch, other.patch),
                (self.channels, other.channels),
            )
        )

    def names(self) -> list[str]:
        """What the patches are called, in their order."""
        return [f"{row},{column}" for row in range(self.side) for column in range(self.side)]

    def __str__(self) -> str:
        colour = "in grey" if self.channels == 1 else "in colour"
        return (
            f"images of {self.size} × {self.size} {colour}, "
            f"{self.side * self.side} patches of {self.patch} × {self.patch}"
        )


NO_WISH = Geometry()


def cut(pixels: np.ndarray, patch: int) -> np.ndarray:
    """Pixels (S, S, K) as patches (T, P)."""
    S, _, K = pixels.shape
    squares = pixels.reshape(S // patch, patch, S // patch, patch, K).swapaxes(1, 2)
    return squares.reshape(-1, patch * patch * K)


def join(patches: np.ndarray, geometry: Geometry) -> np.ndarray:
    """Patches (T, P) as pixels (S, S, K) again."""
    n, patch = geometry.side, geometry.patch
    squares = patches.reshape(n, n, patch, patch, geometry.channels).swapaxes(1, 2)
    return squares.reshape(geometry.size, geometry.size, geometry.channels)
