"""Whether runs side by side were trained alike: in steps, tokens and time.

The same tokens in the same steps is the same budget, whatever the clock says: speed is a column of the table.
So is the same time. Anything else is said, for the better score may be that of the longer training.
"""

from collections.abc import Sequence
from typing import Any, Protocol

SAME_TIME = 0.1  # by how much runs of one time may differ, as a share of it
UNITS = {"steps": "{:,.0f} to {:,.0f} steps", "tokens": "{:,.0f} to {:,.0f} tokens"}


class Trained(Protocol):
    """What is asked of a run."""

    name: str
    task: str
    data: str
    steps: int
    tokens: int
    seconds: float


def budgets(runs: Sequence[Trained]) -> list[dict[str, Any]]:
    """For each task and data, the least and most of steps, tokens and seconds; whether it is one budget."""
    sets: dict[tuple[str, str], list[Trained]] = {}
    for run in runs:
        sets.setdefault((run.task, run.data), []).append(run)
    found: list[dict[str, Any]] = []
    for (task, data), members in sets.items():
        entry: dict[str, Any] = {"task": task, "data": data}
        for name in ("steps", "tokens", "seconds"):
            values = [getattr(run, name) for run in members]
            entry[name] = [min(values), max(values)]
        found.append({**entry, "same": not _note(entry), "note": _note(entry)})
    return found


def budget_notes(runs: Sequence[Trained]) -> list[str]:
    """A sentence for each set of runs that were not trained alike."""
    found = budgets(runs)
    several = len(found) > 1
    notes = [
        (f"{entry['task']}, {entry['data']}: " if several else "") + entry["note"]
        for entry in found
        if entry["note"]
    ]
    return notes + ["Different data: scores of one are not comparable with those of another."] * several


def _note(entry: dict[str, Any]) -> str:
    differing = [unit.format(*entry[n]) for n, unit in UNITS.items() if entry[n][0] != entry[n][1]]
    if not differing:
        return ""
    what, (least, most) = " and ".join(differing), entry["seconds"]
    if most - least <= SAME_TIME * most:
        return f"Equal time, different budgets otherwise: {what}, in {_time(least, most)}."
    if entry["tokens"][0] == entry["tokens"][1]:
        return f"The same tokens in different steps: {what}."
    return (
        f"Different budgets: {what}, in {_time(least, most)}. The better score may be that of the longer "
        "training."
    )


def _time(least: float, most: float) -> str:
    if most < 120:
        return f"{least:.0f} to {most:.0f} seconds"
    return f"{least / 60:.1f} to {most / 60:.1f} minutes"
