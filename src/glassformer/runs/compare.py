"""Runs side by side: from their folders to a table and curves."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.config.schema import flatten
from glassformer.core.errors import RunError, UsageError
from glassformer.core.files import write_atomically
from glassformer.core.strict_json import dump_json
from glassformer.evaluation.budgets import budget_notes, budgets
from glassformer.evaluation.comparison import SETTINGS, Row, as_dicts, table
from glassformer.evaluation.comparison_page import draw, page, table_html
from glassformer.runs.folder import runs_under
from glassformer.runs.run import Run, load


@dataclass(repr=False)
class Comparison:
    """Runs side by side: `print` shows the table, `rows` has a `Row` of numbers for each run."""

    rows: list[Row]

    def __repr__(self) -> str:
        return f"Comparison({', '.join(row.name for row in self.rows)})"

    def __str__(self) -> str:
        return show_table(self)

    def _repr_html_(self) -> str:
        return table_html(self.rows)

    def as_json(self) -> dict[str, Any]:
        """The lines of the table in numbers, and whether their budgets are the same."""
        return {"runs": as_dicts(self.rows), "budgets": budgets(self.rows)}

    def plot(self, file: str | Path | None = None) -> Any:
        """The curves as a matplotlib figure; with a `file`, they are written there too."""
        if file is not None:
            self.save(file)
        return draw(self.rows).figure

    def save(self, file: str | Path) -> None:
        """Table and curves as .html; the curves alone as .svg or .png, with their caption as .caption.txt."""
        path = Path(file)
        if path.suffix not in (".html", ".svg", ".png"):
            raise UsageError(f"{file}: expected a name that ends in .html, .svg or .png")
        if not path.parent.is_dir():
            raise UsageError(f"{file}: there is no folder '{path.parent}'")
        if path.suffix == ".html":
            write_atomically(path, page(self.rows, "Runs side by side"))
        else:
            draw(self.rows).save(path.with_suffix(""), [path.suffix.removeprefix(".")])


def compare(*runs: Run | str | Path | Sequence[Run | str | Path]) -> Comparison:
    """Runs side by side; of a path, the run there, or all runs of the sweep there. A list is its members."""
    opened: list[Run] = []
    for run in (r for given in runs for r in ([given] if isinstance(given, Run | str | Path) else given)):
        opened += [run] if isinstance(run, Run) else [load(path) for path in runs_under(str(run))]
    return compare_runs(opened)


def compare_runs(runs: Sequence[Run]) -> Comparison:
    if not runs:
        raise UsageError("nothing to compare: name at least one run")
    short = _short_names([str(run.path) for run in runs])
    return Comparison([_row(run, name) for run, name in zip(runs, short, strict=True)])


def show_table(comparison: Comparison) -> str:
    names, cells = table(comparison.rows)
    widths = [max(len(line[i]) for line in [names, *cells]) for i in range(len(names))]
    shown = []
    for line in [names, *cells]:
        padded = [
            c.ljust(w) if i < 2 or names[i] == SETTINGS else c.rjust(w)
            for i, (c, w) in enumerate(zip(line, widths, strict=True))
        ]
        shown.append("  ".join(padded).rstrip())
    return "\n".join([*shown, *(f"Note: {note}" for note in budget_notes(comparison.rows))])


def _row(run: Run, name: str) -> Row:
    result = run.result
    if "score" not in result:
        raise RunError(f"{run.path} was made by an older version: go on with --resume once, then compare.")
    score = result["score"]
    if score["value"] is None:
        raise RunError(f"{run.path} has no score: what was measured was no number.")
    key = {"bits per byte": "bits_per_byte", "accuracy": "accuracy"}.get(score["name"], "loss")
    curve = [
        {"step": r["step"], "tokens": r["train_tokens"], "seconds": r["seconds"], "score": r[key]}
        for r in run.metrics
        if r.get("split") == "valid" and r.get(key) is not None and "train_tokens" in r
    ]
    window = result["valid"].get("window")
    asked = run.data.get("given") or flatten(run.config.model_dump(mode="json"))
    group = {k: v for k, v in asked.items() if k != "training.seed"}  # what was chosen by itself may vary
    group |= {name: run.data.get(name) for name in ("init", "text_fingerprint")}
    group["training.extended"] = run.config.training.extended
    return Row(
        name=name,
        task=run.config.task,
        family=_family(run),
        group=dump_json(group, sort_keys=True),
        parameters=result["parameters"],
        tokens=result["tokens"],
        seconds=result["seconds"],
        tokens_per_second=result["tokens_per_second"],
        operations_per_token=3 * result["operations_per_token"],
        numbers=result["valid"],
        score=(score["name"], score["value"], score["more_is_better"]),
        baselines=result["floor_scores"],
        curve=curve,
        curve_name=score["name"] if key != "loss" else "loss",
        data=run.data.get("source", run.config.data.source),
        window=f"{window:,} / {result['valid']['stride']:,}" if window else "",
        # BLEU is of texts: an unknown word in one is a wrong word, and costs what it should.
        lossless=not result.get("unknown_share") or score["name"] == "BLEU",
        steps=result["steps"],
        settings=flatten({**run.config.model_dump(mode="json"), "model": run.config.model.chosen()}),
    )


def _family(run: Run) -> str:
    """The model in a word or two."""
    model = run.config.model
    return model.family if model.attention == "full" else f"{model.family} ({model.attention})"


def _short_names(paths: list[str]) -> list[str]:
    """The paths without the folders that all of them share."""
    parts = [Path(p).parts for p in paths]
    common = 0
    while len(parts) > 1 and all(len(p) > common + 1 and p[common] == parts[0][common] for p in parts):
        common += 1
    return [str(Path(*p[common:])) if len(paths) > 1 else p[-1] for p in parts]
