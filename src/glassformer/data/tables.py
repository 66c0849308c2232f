"""The user's own examples as text: TSV, CSV, JSON lines, tagged words, and parallel texts.

    classify    two columns, text and label (columns.py finds them), or {"text": …, "label": …} per line
    tag         a word and its tag per line, an empty line between sentences, or {"words": […], "tags": […]}
    translate   two files, line by line; or two columns; or {"source": …, "target": …} per line

A folder holds files named train, valid (or val, dev) and test, which then are the splits.
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glassformer.core.errors import DataError, UsageError
from glassformer.core.files import user_path, whole_path
from glassformer.data.columns import COLUMN_NAMES, NO_WISH, TableWish, find_columns, holds_labels
from glassformer.data.examples import SPLIT_NAMES, Example, Examples, divide_examples
from glassformer.data.newlines import unified
from glassformer.data.text_files import text_digest

TABLES = {".tsv": "\t", ".csv": ","}  # and what is between two cells
PEEKED = 1 << 18  # characters of a table that are looked at to see what it is for


@dataclass
class Table:
    """The examples of one file, and what a person should know about them."""

    examples: list[Example]
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def own_examples(
    source: str, task: str, target: str | None, valid: float, test: float, wish: TableWish = NO_WISH
) -> Examples:
    """The examples in a file or folder of the user's."""
    path = user_path(source)
    if path.is_dir():
        files = split_files(path)
        tables = {split: read_table(file, task, None, wish) for split, file in files.items()}
        if "train" not in tables:
            images = ", or a folder of images for each label" if task == "classify" else ""
            raise DataError(
                f"{path}: expected a file named train (.tsv, .csv, .jsonl), and valid and test{images}."
            )
        splits = {split: table.examples for split, table in tables.items()}
        rule = "as the files are named"
    else:
        tables = {"": read_table(path, task, target, wish)}
        splits, rule = divide_examples(tables[""].examples, valid, test)
    if not any(splits.values()):
        raise DataError(f"{source} holds no examples.")
    warnings, notes = (
        [line for table in tables.values() for line in lines(table)]
        for lines in (lambda table: table.warnings, lambda table: table.notes)
    )
    return Examples(source, splits, rule, warnings, path=whole_path(path), notes=notes)


def split_files(folder: Path) -> dict[str, Path]:
    """The files of a folder that are named like splits."""
    files: dict[str, Path] = {}
    for split, names in SPLIT_NAMES.items():
        matches = sorted(p for p in folder.iterdir() if p.stem in names and p.is_file())
        if matches:
            files[split] = matches[0]
    return files


def is_table(source: str) -> bool:
    """Whether a SOURCE is a file of rows and columns, by its name."""
    path = user_path(source)
    return path.suffix.lower() in TABLES and path.is_file()


def is_labelled_table(path: Path) -> bool:
    """Whether a file is a table whose beginning shows texts and labels (columns.py)."""
    separator = TABLES.get(path.suffix.lower())
    if separator is None or not path.is_file():
        return False
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            text = file.read(PEEKED)
        rows = list(_cells(io.StringIO(text, newline=""), separator))
    except (OSError, UnicodeDecodeError, csv.Error):
        return False
    return holds_labels(rows[:-1] if len(text) == PEEKED else rows)  # the last may be cut in the middle


def read_examples(
    path: Path, task: str, target: str | None = None, wish: TableWish = NO_WISH
) -> list[Example]:
    return read_table(path, task, target, wish).examples


def read_table(path: Path, task: str, target: str | None = None, wish: TableWish = NO_WISH) -> Table:
    """The examples of a file, for a task."""
    text_digest(path, str(path))
    suffix = path.suffix.lower()
    if task == "translate" and target is not None:
        examples = _parallel(path, user_path(target))
    elif suffix in (".jsonl", ".ndjson"):
        return _with_labels(_json_lines(path, task, wish), task, wish, path)
    elif task == "tag":
        examples = list(_tagged(path))
    elif suffix in TABLES:
        return _columns(path, task, TABLES[suffix], wish)
    elif task == "translate":
        raise UsageError(
            f"{path}: the other language is missing: name its file with --target, line by line the same"
        )
    else:
        raise UsageError(f"{path}: expected .tsv, .csv or .jsonl for the task {task}")
    return Table(examples)


def _with_labels(
    rows: Iterable[tuple[int, Example]], task: str, wish: TableWish, path: Path, note: str = ""
) -> Table:
    """Examples with the lines they came from; of those to be classified what has no label is left out."""
    table = Table([], [f"{path}: {note}"] if note else [])
    unlabelled: list[int] = []
    for number, example in rows:
        if task == "classify" and example[1] == "" and "" not in wish.labels:
            unlabelled.append(number)
        else:
            table.examples.append(example)
    if unlabelled:
        lines = ", ".join(map(str, unlabelled[:10])) + (", …" if len(unlabelled) > 10 else "")
        table.warnings.append(
            f"{path}: {len(unlabelled):,} of {len(unlabelled) + len(table.examples):,} rows have no label "
            f"and were left out (line {lines})"
        )
    return table


def _cells(file: Iterable[str], separator: str) -> Iterator[list[str]]:
    # Tab-separated text is taken as it stands: quotes in it are part of the sentence.
    quoting = csv.QUOTE_NONE if separator == "\t" else csv.QUOTE_MINIMAL
    csv.field_size_limit(1 << 30)  # a document may be a cell
    return csv.reader(file, delimiter=separator, quoting=quoting)


def _columns(path: Path, task: str, separator: str, wish: TableWish) -> Table:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            table = list(_cells(file, separator))
    except csv.Error as error:
        raise DataError(f"{path} cannot be read as a table: {error}.") from None
    rows = [(number, row) for number, row in enumerate(table, start=1) if any(c.strip() for c in row)]
    if not rows:
        raise DataError(f"{path} holds no examples.")
    found = find_columns(str(path), [row for _, row in rows], task, wish)
    width = max(found.first, found.second) + 1

    def examples() -> Iterator[tuple[int, Example]]:
        for number, row in rows[1:] if found.header else rows:
            if len(row) < width:
                raise DataError(
                    f"{path}, line {number}: expected {width} columns, found {len(row)}. "
                    f"Each line holds {COLUMN_NAMES[task][0][0]} and {COLUMN_NAMES[task][1][0]}."
                )
            first, second = (unified(row[i], wish.newlines).strip() for i in (found.first, found.second))
            yield number, (first, second)

    return _with_labels(examples(), task, wish, path, found.note)


def _json_lines(path: Path, task: str, wish: TableWish) -> Iterator[tuple[int, Example]]:
    said = (wish.text_column, wish.label_column) if task == "classify" else (None, None)
    keys = [(name,) if name else names for name, names in zip(said, COLUMN_NAMES[task], strict=True)]
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        try:
            row: dict[str, Any] = json.loads(line)
            inputs, answer = (next(row[name] for name in names if name in row) for names in keys)
        except (ValueError, StopIteration, RuntimeError, TypeError):
            expected = f'{{"{keys[0][0]}": …, "{keys[1][0]}": …}}'
            raise DataError(f"{path}, line {number}: expected a JSON object {expected}.") from None
        if task == "tag":
            _same_length(path, number, inputs, answer)
            yield number, ([str(w) for w in inputs], [str(t) for t in answer])
        else:
            missing = answer is None and task == "classify" and "None" not in wish.labels
            first, second = (unified(str(value), wish.newlines) for value in (inputs, answer))
            yield number, (first, "" if missing else second)


def _tagged(path: Path) -> Iterator[Example]:
    words: list[str] = []
    tags: list[str] = []
    for number, line in enumerate([*_lines(path), ""], start=1):
        cells = line.split("\t") if "\t" in line else line.split()
        if not cells:
            if words:
                yield words, tags
            words, tags = [], []
        elif len(cells) < 2:
            raise DataError(f"{path}, line {number}: expected a word and its tag, found '{line.strip()}'.")
        else:
            words.append(cells[0])
            tags.append(cells[-1])


def _parallel(path: Path, target: Path) -> list[Example]:
    if not target.is_file():
        raise DataError(f"there is no file '{target}' (--target: the other language, line by line).")
    text_digest(target, str(target))
    sides = [_lines(p) for p in (path, target)]
    if len(sides[0]) != len(sides[1]):
        raise DataError(
            f"{path} has {len(sides[0])} lines and {target} has {len(sides[1])}: "
            "line n of one must be the translation of line n of the other."
        )
    return [(a.strip(), b.strip()) for a, b in zip(*sides, strict=True) if a.strip() and b.strip()]


def _lines(path: Path) -> list[str]:
    """The lines of a file: new lines end them, and none of the rarer signs that Python would cut at too."""
    return path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")


def _same_length(path: Path, number: int, words: Any, tags: Any) -> None:
    if not isinstance(words, list) or not isinstance(tags, list) or len(words) != len(tags) or not words:
        raise DataError(f"{path}, line {number}: expected as many tags as words, in two lists.")
