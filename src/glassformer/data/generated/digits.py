"""`digits`: scikit-learn's 8 × 8 digits as patches → which digit (needs the extra)."""

from typing import Any

import numpy as np

from glassformer.core.errors import UsageError
from glassformer.data.examples import Examples, divide_examples
from glassformer.data.patches import Geometry, cut

HELD_OUT = 0.1  # share of validation, and of test


def examples(patch: int = 2) -> Examples:
    """Images cut into patch × patch squares, row by row: an array (squares, patch²) each, in 0…1."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise UsageError(
            "the data set 'digits' comes with scikit-learn: pip install 'glassformer[digits]'"
        ) from None
    dataset: Any = load_digits()
    images = dataset.images.astype(np.float32) / 16.0  # (n, 8, 8)
    labelled = [
        (cut(image[..., None], patch), str(label))
        for image, label in zip(images, dataset.target, strict=True)
    ]
    splits, _ = divide_examples(enumerate(labelled), HELD_OUT, HELD_OUT, key=lambda e: f"digit {e[0]}")
    unnumbered = {split: [e for _, e in rows] for split, rows in splits.items()}
    rule = f"by a hash of the number, {HELD_OUT:.0%} valid, {HELD_OUT:.0%} test"
    return Examples("digits", unnumbered, rule, geometry=Geometry(images.shape[1], patch, 1))
