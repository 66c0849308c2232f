"""The user's own examples as text: TSV, CSV, JSON lines, tagged words, and parallel texts.

    classify    two columns, text and label (a header may name them), or {"text": …, "label": …} per line
    tag         a word and its tag per line, an empty line between sentences, or {"words": […], "tags": […]}
    translate   two files, line by line; or two columns; or {"source": …, "target": …} per line

A folder holds files named train, valid (or val, dev) and test, which then are the splits.
"""

import csv
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from glassformer.core.errors import DataError, UsageError
from glassformer.core.files import user_path, whole_path
from glassformer.data.examples import SPLIT_NAMES, Example, Examples, divide_examples
from glassformer.data.text_files import text_digest

COLUMN_NAMES = {  # what the two columns may be called
    "classify": (("text", "sentence", "review", "document"), ("label", "class", "sentiment", "category")),
    "tag": (("words", "tokens"), ("tags", "labels")),
    "translate": (("source", "src", "from"), ("target", "tgt", "to")),
}


def own_examples(source: str, task: str, target: str | None, valid: float, test: float) -> Examples:
    """The examples in a file or folder of the user's."""
    path = user_path(source)
    if path.is_dir():
        splits = _folder(path, task)
        rule = "as the files are named"
    else:
        splits, rule = divide_examples(read_examples(path, task, target), valid, test)
    if not any(splits.values()):
        raise DataError(f"{source} holds no examples.")
    return Examples(source, splits, rule, path=whole_path(path))


def _folder(folder: Path, task: str) -> dict[str, list[Example]]:
    files = split_files(folder)
    splits = {split: read_examples(path, task, None) for split, path in files.items()}
    if "train" not in splits:
        images = ", or a folder of images for each label" if task == "classify" else ""
        raise DataError(
            f"{folder}: expected a file named train (.tsv, .csv, .jsonl), and valid and test{images}."
        )
    return splits


def split_files(folder: Path) -> dict[str, Path]:
    """The files of a folder that are named like splits."""
    files: dict[str, Path] = {}
    for split, names in SPLIT_NAMES.items():
        matches = sorted(p for p in folder.iterdir() if p.stem in names and p.is_file())
        if matches:
            files[split] = matches[0]
    return files


def read_examples(path: Path, task: str, target: str | None) -> list[Example]:
    text_digest(path, str(path))
    if task == "translate" and target is not None:
        return _parallel(path, user_path(target))
    suffix = path.suffix.lower()
    if suffix in (".jsonl", ".ndjson"):
        return list(_json_lines(path, task))
    if task == "tag":
        return list(_tagged(path))
    if suffix in (".tsv", ".csv"):
        return list(_columns(path, task, "\t" if suffix == ".tsv" else ","))
    if task == "translate":
        raise UsageError(
            f"{path}: the other language is missing: name its file with --target, line by line the same"
        )
    raise UsageError(f"{path}: expected .tsv, .csv or .jsonl for the task {task}")


def _columns(path: Path, task: str, separator: str) -> Iterator[Example]:
    # Tab-separated text is taken as it stands: quotes in it are part of the sentence.
    quoting = csv.QUOTE_NONE if separator == "\t" else csv.QUOTE_MINIMAL
    csv.field_size_limit(1 << 30)  # a document may be a cell
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            table = list(csv.reader(file, delimiter=separator, quoting=quoting))
    except csv.Error as error:
        raise DataError(f"{path} cannot be read as a table: {error}.") from None
    rows = [(number, row) for number, row in enumerate(table, start=1) if any(c.strip() for c in row)]
    if not rows:
        raise DataError(f"{path} holds no examples.")
    first, second, named = _places(path, rows[0][1], task)
    rows = rows[1:] if named else rows
    answers = Counter(row[second].strip() for _, row in rows if len(row) > second)
    if task == "classify" and len(rows) > 8 and answers[rows[0][1][second].strip()] == 1:
        rest = [n for label, n in answers.items() if label != rows[0][1][second].strip()]
        if min(rest, default=0) > 1:
            raise DataError(
                f"{path}: the first line looks like a header, since its label '{rows[0][1][second].strip()}' "
                "never comes again. Name the columns text and label, or remove it."
            )
    for number, row in rows:
        if len(row) <= max(first, second):
            raise DataError(
                f"{path}, line {number}: expected {max(first, second) + 1} columns, found {len(row)}. "
                f"Each line holds {COLUMN_NAMES[task][0][0]} and {COLUMN_NAMES[task][1][0]}."
            )
        yield row[first].strip(), row[second].strip()


def _places(path: Path, header: list[str], task: str) -> tuple[int, int, bool]:
    """Which columns hold input and output: as the header says, else the first two; whether there is one."""
    names = [cell.strip().lower() for cell in header]
    columns = [
        next((i for i, n in enumerate(names) if n in candidates), None) for candidates in COLUMN_NAMES[task]
    ]
    if columns[0] is not None and columns[1] is not None:
        return columns[0], columns[1], True
    if len(header) > 1 and (columns[0] is not None or columns[1] is not None):
        present, absent = (COLUMN_NAMES[task][i] for i in ((0, 1) if columns[1] is None else (1, 0)))
        raise DataError(
            f"{path}: its header names {' '.join(set(present) & set(names))}, but none of "
            f"{', '.join(absent)}. Name both columns, or neither."
        )
    if len(header) < 2:
        raise DataError(
            f"{path}: expected two columns, {COLUMN_NAMES[task][0][0]} and {COLUMN_NAMES[task][1][0]}, "
            "found one. A .tsv file has a tab between them, a .csv file a comma."
        )
    if len(header) > 2:
        raise DataError(
            f"{path}: {len(header)} columns and no header that names {COLUMN_NAMES[task][0][0]} and "
            f"{COLUMN_NAMES[task][1][0]}. Add one, or keep these two columns alone."
        )
    return 0, 1, False


def _json_lines(path: Path, task: str) -> Iterator[Example]:
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        try:
            row: dict[str, Any] = json.loads(line)
            inputs = next(row[name] for name in COLUMN_NAMES[task][0] if name in row)
            answer = next(row[name] for name in COLUMN_NAMES[task][1] if name in row)
        except (ValueError, StopIteration, TypeError):
            keys = f'{{"{COLUMN_NAMES[task][0][0]}": …, "{COLUMN_NAMES[task][1][0]}": …}}'
            raise DataError(f"{path}, line {number}: expected a JSON object {keys}.") from None
        if task == "tag":
            _same_length(path, number, inputs, answer)
            yield [str(w) for w in inputs], [str(t) for t in answer]
        else:
            yield str(inputs), str(answer)


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
