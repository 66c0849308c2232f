"""Which columns of a table are input and answer: as the user says, as the header says, or as the values look.

A label is one of few values that come again and again; a text is long, and hardly ever comes twice. What is
found in that way is said in one line, and what remains open is refused with the flags that would say it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from glassformer.core.errors import DataError
from glassformer.data.newlines import Newlines

COLUMN_NAMES = {  # what the two columns may be called
    "classify": (
        ("text", "sentence", "review", "document", "comment", "message", "content", "body", "tweet"),
        ("label", "class", "sentiment", "category", "rating", "stars", "topic", "intent"),
    ),
    "tag": (("words", "tokens"), ("tags", "labels")),
    "translate": (("source", "src", "from"), ("target", "tgt", "to")),
}
FLAGS = ("--text-column", "--label-column")
FEW_ROWS = 8  # of so few nothing can be told about a first line
TITLE = 40  # characters of a column's title at most


@dataclass(frozen=True)
class TableWish:
    """What the settings say of a table."""

    text_column: str | None = None  # its name in the header, or its number, from 1
    label_column: str | None = None
    labels: tuple[str, ...] = ()  # those that are known; none: those found
    newlines: Newlines = "normalise"


NO_WISH = TableWish()


@dataclass(frozen=True)
class Columns:
    """Where input and answer are, counted from 0."""

    first: int
    second: int
    header: bool  # whether the first line names the columns
    sure: bool = True  # False: they were taken from their places, since nothing told them apart
    note: str = ""  # what a person should know about how they were found


def find_columns(where: str, table: Sequence[list[str]], task: str, wish: TableWish = NO_WISH) -> Columns:
    """The columns of a table without empty lines; a DataError that says how to name them."""
    first_line = [cell.strip() for cell in table[0]]
    names = [cell.lower() for cell in first_line]
    said = (wish.text_column, wish.label_column) if task == "classify" else (None, None)
    asked = [_asked(where, first_line, names, wanted, flag) for wanted, flag in zip(said, FLAGS, strict=True)]
    titles = _titles(table, names) if task == "classify" else names
    known = [
        place if place is not None else next((i for i, n in enumerate(titles) if n in candidates), None)
        for place, candidates in zip(asked, COLUMN_NAMES[task], strict=True)
    ]
    named = [
        place is not None and (asked[i] is None or not str(said[i]).isdecimal())
        for i, place in enumerate(known)
    ]
    input_name, answer_name = (candidates[0] for candidates in COLUMN_NAMES[task])
    if len(names) < 2:
        raise DataError(
            f"{where}: expected two columns, {input_name} and {answer_name}, found one. A .tsv file has a "
            "tab between them, a .csv file a comma."
        )
    if task != "classify":
        return _by_place(where, names, task, known)
    if known[0] is not None and known[0] == known[1]:
        raise DataError(f"{where}: column {known[0] + 1} cannot be both text and label.")
    body = table[1:] if len(table) > FEW_ROWS or any(named) else table
    first, second, sure = _by_values(where, body, first_line, known)
    values = {row[second].strip() for row in body if len(row) > second}
    if wish.labels and None in known and not values <= {*wish.labels, ""}:
        fitting = [i for i in range(len(names)) if _values(body, i) <= {*wish.labels, ""}]
        if len(fitting) == 1 and known[1] is None and known[0] != fitting[0]:
            first, second, sure = first if first != fitting[0] else second, fitting[0], True
    header = any(named) or _is_header(table, second, wish.labels)
    guessed = known[0] is None or known[1] is None
    usual = len(names) == 2 and (first, second) == (0, 1) and not header
    note = ""
    if (guessed and not usual) or (header and not any(named)):
        called = [f"{i + 1}{f' ({first_line[i]})' if header else ''}" for i in (first, second)]
        note = f"the text is taken from column {called[0]}, the label from column {called[1]}"
        note += " and the first line as their names" if header and not any(named) else ""
        note += f" (otherwise say {' and '.join(FLAGS)}, each a name or a number)"
    return Columns(first, second, header, sure, note)


def _titles(table: Sequence[list[str]], names: list[str]) -> list[str]:
    """What of a first line may be a title: all of it is short, and none of it comes again below."""
    if any(len(name) > TITLE for name in names):
        return []
    again = [{row[i].strip().lower() for row in table[1:] if len(row) > i} for i in range(len(names))]
    return ["" if name in below else name for name, below in zip(names, again, strict=True)]


def _asked(where: str, header: list[str], names: list[str], wanted: str | None, flag: str) -> int | None:
    """The place of a column that the user named."""
    if wanted is None:
        return None
    if wanted.isdecimal() and 1 <= int(wanted) <= len(names):
        return int(wanted) - 1
    if wanted.lower() in names:
        return names.index(wanted.lower())
    there = ", ".join(f"{i} {cell[:30]}" for i, cell in enumerate(header, start=1))
    raise DataError(f"{where}: {flag} '{wanted}': there is no such column. Its first line has: {there}.")


def _by_place(where: str, names: list[str], task: str, known: list[int | None]) -> Columns:
    """Of two languages: as the header says, else the two columns there are."""
    if known[0] is not None and known[1] is not None:
        return Columns(known[0], known[1], True)
    if known[0] is not None or known[1] is not None:
        present, absent = (COLUMN_NAMES[task][i] for i in ((0, 1) if known[1] is None else (1, 0)))
        raise DataError(
            f"{where}: its header names {' '.join(set(present) & set(names))}, but none of "
            f"{', '.join(absent)}. Name both columns, or neither."
        )
    if len(names) > 2:
        raise DataError(
            f"{where}: {len(names)} columns and no header that names {COLUMN_NAMES[task][0][0]} and "
            f"{COLUMN_NAMES[task][1][0]}. Add one, or keep these two columns alone."
        )
    return Columns(0, 1, False)


def _by_values(
    where: str, body: Sequence[list[str]], header: list[str], known: list[int | None]
) -> tuple[int, int, bool]:
    """Text and label by what the columns hold, where they are not known; and whether that is sure."""
    text, label = known
    others = [i for i in range(len(header)) if i not in known]
    repeats = [i for i in others if 0 < len(_values(body, i)) <= max(1, len(body) // 2)]
    lengths = {i: sum(len(row[i]) for row in body if len(row) > i) for i in others}
    if text is not None and label is not None:
        return text, label, True
    if text is not None:
        found = others if len(others) == 1 else repeats
        if len(found) == 1:
            return text, found[0], True
    elif label is not None:
        return max(others, key=lambda i: lengths[i]), label, True
    elif len(others) == 2:
        if len(repeats) == 1:
            return next(i for i in others if i not in repeats), repeats[0], True
        return 0, 1, False
    else:
        text = max([i for i in others if i not in repeats] or others, key=lambda i: lengths[i])
        found = [i for i in repeats if i != text]
        if len(found) == 1:
            return text, found[0], True
    there = ", ".join(f"{i} {cell[:30]}" for i, cell in enumerate(header, start=1))
    raise DataError(
        f"{where}: {len(header)} columns, and it is not clear which of them is the label. Say it: "
        f"{' and '.join(FLAGS)}, each a name or a number. Its first line has: {there}."
    )


def _values(rows: Sequence[list[str]], column: int) -> set[str]:
    return {row[column].strip() for row in rows if len(row) > column}


def _is_header(table: Sequence[list[str]], label: int, labels: Sequence[str]) -> bool:
    """Whether a first line that is called in no known way is no example: its label never comes again, while
    all others do, or are numbers.
    """
    cells = [row[label].strip() for row in table if len(row) > label]
    rest = [cell for cell in cells[1:] if cell]
    if len(table) <= FEW_ROWS or not rest or cells[0] in {"", *rest, *labels}:
        return False
    if labels:
        return set(rest) <= set(labels)
    again = min(Counter(rest).values()) > 1
    return again or (all(map(is_number, rest)) and not is_number(cells[0]))


def is_number(cell: str | bytes) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def holds_labels(table: Sequence[list[str]]) -> bool:
    """Whether a table is sure to be texts with labels, so that nobody needs to say so."""
    rows = [row for row in table if any(cell.strip() for cell in row)]
    if len(rows) <= FEW_ROWS or any(len(row) != len(rows[0]) for row in rows):
        return False
    try:
        found = find_columns("", rows, "classify")
    except DataError:
        return False
    body = rows[1:] if found.header else rows
    texts, labels = ([row[i].strip() for row in body] for i in (found.first, found.second))
    different = len(set(labels))
    words = sum(len(text.split()) for text in texts) / len(texts)
    return found.sure and 2 <= different <= len(body) // 4 and len(set(texts)) > len(body) // 2 and words >= 2
