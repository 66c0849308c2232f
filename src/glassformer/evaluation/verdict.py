"""What a score is worth: a model beside the baselines on the same split, in one sentence.

A model that is behind a bag of words or a table of counts has not learned what there is to learn, and whoever
trained it should hear that. Where a score has an interval, a baseline inside it is neither better nor worse.
"""

from collections.abc import Mapping
from math import isfinite

Interval = tuple[float, float] | None


def verdict(
    score: tuple[str, float, bool],
    baselines: Mapping[str, float],
    interval: Interval = None,
    advice: str = "",
) -> str:
    """How a score (its name, itself, whether more is better) stands to the best of the baselines.

    `advice` is what to do about a model that is behind. Without baselines there is nothing to say.
    """
    baselines = {b: number for b, number in baselines.items() if isfinite(number)}
    if not baselines:
        return ""
    name, value, more = score
    best = (max if more else min)(baselines, key=lambda b: baselines[b])
    other = baselines[best]
    ours, theirs = (_shown(name, number) for number in (value, other))
    unit = "" if name == "accuracy" else f" {name}"
    if not isfinite(value):
        return f"This model has no {name} to compare with the best baseline, {best}: {theirs}{unit}."
    if ours == theirs or (interval is not None and interval[0] <= other <= interval[1]):
        return f"About as good as the best baseline, {best}: {ours} against {theirs}{unit}."
    if (value > other) if more else (value < other):
        return f"Better than the best baseline, {best}: {ours} against {theirs}{unit}."
    rest = f". {advice[0].upper()}{advice[1:]}" if advice else ""
    return f"A baseline beats this model, {best}: {theirs} against {ours}{unit}{rest}."


def _shown(name: str, value: float) -> str:
    return f"{value:.1%}" if name == "accuracy" else f"{value:.4g}"
