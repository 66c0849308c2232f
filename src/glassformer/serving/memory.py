"""What a run takes when it is loaded, told from its files; and what there is."""

import os
from pathlib import Path

import torch

from glassformer.config.schema import Config
from glassformer.generation.pages import SIZE

NUMBER = 4  # bytes
SHARE = 0.5  # of the memory that is free when the server starts


def available() -> int:
    """Half of what is free: of the GPU's memory where there is one, else of the machine's."""
    if torch.cuda.is_available():
        return int(SHARE * torch.cuda.mem_get_info()[0])
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(SHARE * int(line.split()[1]) * 1024)
        pages = os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return 4 << 30
    return int(SHARE * pages * os.sysconf("SC_PAGE_SIZE"))


def weight_bytes(path: Path) -> int:
    """As large as the file of its weights."""
    try:
        return (path / "model.safetensors").stat().st_size
    except OSError:
        return 0


def text_bytes(config: Config) -> int:
    """Keys and values of one text that fills its context; a recurrent model's state is next to nothing."""
    m = config.model
    if config.task != "language" or m.family != "transformer":
        return 0
    positions = (-(-m.context // SIZE) + 1) * SIZE
    kept = m.kv_heads * (m.head_width + m.value_width) + (2 * m.width if m.shift != "none" else 0)
    return m.layers * positions * kept * NUMBER


def texts_that_fit(config: Config, path: Path, wanted: int, budget: int) -> int:
    """How many texts at once a run gets room for: within half of the budget, so that others fit too."""
    each, room = text_bytes(config), min(budget // 2, budget - weight_bytes(path))
    return wanted if not each else max(1, min(wanted, room // each))
