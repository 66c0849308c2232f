"""The settings of a draw as the compiled program reads them; sampling.py says what they mean."""

import numpy as np

from glassformer.generation.fast.kernels.plan import Draw
from glassformer.generation.sampling import Sampler

NOTHING = 1 << 62  # a top-k that leaves nothing out


def write_settings(sampler: Sampler, settings: np.ndarray, seeds: np.ndarray) -> None:
    """A sampler into its row of settings (float64) and seeds (int64); the position in the text is not its."""
    settings[Draw.TEMPERATURE] = 0.0 if sampler.is_greedy else sampler.temperature
    settings[Draw.TOP_K] = NOTHING if sampler.top_k is None else sampler.top_k
    settings[Draw.TOP_P] = 1.0 if sampler.top_p is None else sampler.top_p
    settings[Draw.MIN_P] = sampler.min_p or 0.0
    if not sampler.is_greedy:
        assert sampler.seed is not None, "a sampler that draws has a seed by now"
        seeds[0] = signed(sampler.seed)


def signed(x: int) -> int:
    """The 64 lowest bits of a number, as an int64 holds them."""
    x &= (1 << 64) - 1
    return x - (1 << 64) if x >> 63 else x
