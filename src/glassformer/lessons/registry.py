"""The lessons there are, by name. To add one: its file in this folder, its lines here and in the map."""

from collections.abc import Callable

from glassformer.core.errors import UsageError, closest
from glassformer.lessons import (
    cache,
    cost,
    explosion,
    gradient,
    kernel,
    length,
    masks,
    norms,
    positions,
    repetition,
    residuals,
    scale,
    toeplitz,
)
from glassformer.lessons.lesson import Lesson
from glassformer.runs.run import Run

LESSONS: dict[str, Callable[[Run | None], Lesson]] = {
    "scale": scale.lesson,
    "masks": masks.lesson,
    "residuals": residuals.lesson,
    "collapse": residuals.collapse,
    "norms": norms.lesson,
    "positions": positions.lesson,
    "toeplitz": toeplitz.lesson,
    "kernel": kernel.lesson,
    "gradient": gradient.lesson,
    "explosion": explosion.lesson,
    "length": length.lesson,
    "cost": cost.lesson,
    "cache": cache.lesson,
    "repetition": repetition.lesson,
}
SUBJECTS = {
    "scale": "why scores are divided by √D",
    "masks": "why −∞ before the softmax, and not zero behind it",
    "residuals": "what reaches the embedding of a gradient, with and without residual connections",
    "collapse": "whether tokens stay different without them",
    "norms": "where a norm may stand, and why it is none over the batch",
    "positions": "why a transformer needs positions",
    "toeplitz": "when attention is a convolution",
    "kernel": "attention as a soft dictionary and as a kernel",
    "gradient": "∂L/∂θ of every matrix, and what its layer received from above",
    "explosion": "where NaN comes from in a recurrent model, and what clipping cures",
    "length": "how far back a loss reaches: recurrence, window, convolution, attention",
    "cost": "where the feed-forward net costs more than attention, and the formula more than the kernel",
    "cache": "what the key-value cache saves",
    "repetition": "the loop of greedy decoding, and what cures it (needs a run)",
}
OF_NO_MODEL = (
    "scale",
    "masks",
    "norms",
    "kernel",
    "explosion",
    "cost",
)  # computed on numbers made for it; a run has no part in it


def teach(name: str, run: Run | None = None) -> Lesson:
    """Compute a lesson, on a run where it is about models."""
    if name not in LESSONS:
        raise UsageError(f"no lesson '{name}': there are {', '.join(LESSONS)}{closest(name, list(LESSONS))}")
    if run is not None and name in OF_NO_MODEL:
        raise UsageError(f"the lesson {name} is computed on numbers made for it: leave the run out")
    return LESSONS[name](run)
