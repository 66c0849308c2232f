"""What computes each lesson. To add one: its file in this folder, its lines here, in names.py, in the map."""

from collections.abc import Callable

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
from glassformer.lessons.names import check_lesson
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


def teach(name: str, run: Run | None = None) -> Lesson:
    """Compute a lesson, on a run where it is about models."""
    check_lesson(name, run is not None)
    return LESSONS[name](run)
