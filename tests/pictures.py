"""Small pictures to learn from: stripes that lie and stripes that stand, no two alike."""

from pathlib import Path

import numpy as np
from PIL import Image

LABELS = ("lying", "standing")


def stripes(label: str, seed: int, size: int = 16) -> np.ndarray:
    """Grey pixels (size, size): waves along one direction, anywhere and of any width, in noise."""
    rng = np.random.default_rng([LABELS.index(label), seed])
    wave = np.sin(np.arange(size) * rng.uniform(0.9, 1.8) + rng.uniform(0, 6.28))
    rows = np.broadcast_to(wave[:, None], (size, size))
    pixels = 0.5 + 0.35 * (rows if label == "lying" else rows.T) + rng.normal(0, 0.05, (size, size))
    return (255 * pixels.clip(0, 1)).astype(np.uint8)


def write_pictures(folder: Path, count: int = 40, size: int = 16) -> Path:
    """A folder for each label, with so many PNG files in each."""
    for label in LABELS:
        (folder / label).mkdir(parents=True)
        for i in range(count):
            Image.fromarray(stripes(label, i, size)).save(folder / label / f"{i}.png")
    return folder
