"""Examples that are made here, so that every task can be tried without a download.

dates        translate   "the third of March, nineteen eighty-seven" → 1987-03-03
docstrings   classify    a docstring of the standard library → what its module is about
pycode       tag         the words of a line of the standard library → keyword, call, attribute, …
digits       classify    scikit-learn's 8 × 8 digits as patches → which digit (needs the extra)
"""

import ast
import datetime
import io
import sysconfig
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.core.errors import UsageError
from glassformer.data import pydocs
from glassformer.data.examples import Example, Examples, divide_examples
from glassformer.data.order import fold_seed

HELD_OUT = 0.1  # share of validation, and of test
DATES = 12_000
SPELLINGS = 3  # of each date
FIRST_DAY, LAST_DAY = datetime.date(1900, 1, 1), datetime.date(2099, 12, 31)
MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
ONES = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth"}
ORDINALS |= {"nine": "ninth", "twelve": "twelfth", "twenty": "twentieth", "thirty": "thirtieth"}

TOPICS = {
    "gui": "tkinter turtle",
    "concurrency": "asyncio multiprocessing threading concurrent queue selectors sched contextvars",
    "internet": "email mailbox http urllib imaplib smtplib nntplib ftplib ssl socketserver xmlrpc wsgiref "
    "telnetlib poplib ipaddress socket cgi webbrowser netrc",
    "numbers": "_pydecimal fractions statistics numbers random cmath datetime calendar _pydatetime zoneinfo",
    "language": "importlib inspect typing ast dis pydoc pdb bdb traceback symtable pickletools pickle enum "
    "functools dataclasses types abc contextlib tokenize code codeop runpy",
    "testing": "unittest doctest",
    "files": "tarfile zipfile pathlib shutil os tempfile glob _pyio gzip bz2 lzma filecmp fileinput",
    "markup": "xml html plistlib configparser json csv",
}
CODE_LINES = 15_000


def dates() -> Examples:
    """Spelled-out dates and their ISO form. A date is in one split only, whatever its spelling."""
    span = (LAST_DAY - FIRST_DAY).days + 1
    examples: list[Example] = []
    for i in range(DATES):
        day = FIRST_DAY + datetime.timedelta(days=fold_seed(1, i) % span)
        spellings = _spellings(day)
        choices = {fold_seed(2, i, j) % len(spellings) for j in range(SPELLINGS)}
        examples += [(spellings[k], day.isoformat()) for k in sorted(choices)]
    splits, _ = divide_examples(examples, HELD_OUT / 2, HELD_OUT / 2, key=lambda e: e[1])
    return Examples("dates", splits, "whole dates by a hash: no spelling of a held-out date is trained on")


def _spellings(day: datetime.date) -> list[str]:
    month, weekday = MONTHS[day.month - 1], WEEKDAYS[day.weekday()]
    d, y = day.day, day.year
    suffix = "th" if 10 < d < 14 else {1: "st", 2: "nd", 3: "rd"}.get(d % 10, "th")
    ordinal, words = _ordinal(d), _year(y)
    return [
        f"{d} {month} {y}",
        f"{month} {d}, {y}",
        f"{weekday}, {d} {month} {y}",
        f"{d}{suffix} of {month} {y}",
        f"{month[:3]} {d}{suffix}, {y}",
        f"{weekday[:3]} {d} {month[:3]} {y}",
        f"the {ordinal} of {month}, {words}",
        f"{month} the {ordinal}, {words}",
        f"{weekday}, {month} {ordinal}, {y}",
        f"{y}, {month} the {d}{suffix}",
    ]


def _two_digits(n: int) -> str:
    if n < 20:
        return ONES[n]
    tens = TENS[n // 10 - 2]
    return f"{tens}-{ONES[n % 10]}" if n % 10 else tens


def _ordinal(n: int) -> str:
    head, dash, last = _two_digits(n).rpartition("-")
    return head + dash + ORDINALS.get(last, last + "th")


def _year(y: int) -> str:
    century, rest = divmod(y, 100)
    if rest == 0:
        return "two thousand" if y == 2000 else f"{ONES[century]} hundred"
    if rest < 10:
        return f"two thousand and {ONES[rest]}" if century == 20 else f"{ONES[century]} oh {ONES[rest]}"
    return f"{_two_digits(century)} {_two_digits(rest)}"


def docstrings() -> Examples:
    topic_of = {module: topic for topic, modules in TOPICS.items() for module in modules.split()}
    examples: list[Example] = []
    for name, text in pydocs.documents():
        kind, _, module = name.partition(" ")
        topic = topic_of.get(module.split(".")[0])
        if kind != "module" or topic is None:
            continue
        for entry in text.split("\n\ndef ")[1:]:  # the first holds the module's own, which names its topic
            body = entry.partition("\n\n")[2].split("\nclass ")[0]
            words = " ".join(body.split())
            if len(words) >= 20:
                examples.append((words[:600], topic))
    splits, rule = divide_examples(examples, HELD_OUT, HELD_OUT)
    return Examples("docstrings", splits, rule)


def pycode() -> Examples:
    library = Path(sysconfig.get_paths()["stdlib"])
    examples: list[Example] = []
    for path in sorted(library.glob("*.py")):
        try:
            text = path.read_text(encoding="utf-8")
            examples += _tagged_lines(text)
        except (SyntaxError, ValueError, OSError, tokenize.TokenError):
            continue  # a file that this Python cannot parse has no tags
    step = max(1, len(examples) // CODE_LINES)
    splits, rule = divide_examples(examples[::step], HELD_OUT, HELD_OUT)
    return Examples("pycode", splits, rule)


def _tagged_lines(text: str) -> Iterator[Example]:
    roles = dict(_roles(ast.parse(text)))
    words: list[str] = []
    tags: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NEWLINE:
            if 4 <= len(words) <= 40:
                yield words, tags
            words, tags = [], []
        elif token.type in (tokenize.NAME, tokenize.NUMBER, tokenize.STRING, tokenize.OP):
            kind = {tokenize.NUMBER: "number", tokenize.STRING: "string", tokenize.OP: "operator"}
            words.append(token.string if token.type != tokenize.STRING else token.string[:12])
            tags.append(kind.get(token.type) or roles.get((token.start, token.string), "keyword"))


def _roles(tree: ast.AST) -> Iterator[tuple[tuple[tuple[int, int], str], str]]:
    """((line, column), name) → what the name is there."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        match node:
            case ast.Name():
                yield ((node.lineno, node.col_offset), node.id), "call" if id(node) in called else "variable"
            case ast.Attribute():
                column = (node.end_col_offset or 0) - len(node.attr)
                role = "method" if id(node) in called else "attribute"
                yield ((node.end_lineno or 0, column), node.attr), role
            case ast.arg():
                yield ((node.lineno, node.col_offset), node.arg), "parameter"
            case ast.keyword() if node.arg:
                yield ((node.lineno, node.col_offset), node.arg), "parameter"
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                word = 6 if isinstance(node, ast.ClassDef) else 4
                role = "class" if word == 6 else "function"
                yield ((node.lineno, node.col_offset + word), node.name), role
            case ast.alias():
                yield ((node.lineno, node.col_offset), node.name.split(".")[0]), "module"
            case _:
                pass


def digits(patch: int = 2) -> Examples:
    """Images cut into patch × patch squares, row by row: an array (squares, patch²) each, in 0…1."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise UsageError(
            "the data set 'digits' comes with scikit-learn: pip install 'glassformer[digits]'"
        ) from None
    dataset: Any = load_digits()
    images = dataset.images.astype(np.float32) / 16.0  # (n, 8, 8)
    n, side, _ = images.shape
    squares = images.reshape(n, side // patch, patch, side // patch, patch).swapaxes(2, 3)
    patches = squares.reshape(n, -1, patch * patch)
    examples = [(patches[i], str(label)) for i, label in enumerate(dataset.target)]
    splits, _ = divide_examples(enumerate(examples), HELD_OUT, HELD_OUT, key=lambda e: f"digit {e[0]}")
    unnumbered = {split: [e for _, e in rows] for split, rows in splits.items()}
    rule = f"by a hash of the number, {HELD_OUT:.0%} valid, {HELD_OUT:.0%} test"
    return Examples("digits", unnumbered, rule)


GENERATED = {
    "dates": ("translate", dates),
    "docstrings": ("classify", docstrings),
    "pycode": ("tag", pycode),
    "digits": ("classify", digits),
}
"""name → the task it is for, and what makes it"""
