"""Which characters are letters, numbers and marks: a table of one fixed version of Unicode.

New characters are assigned every year, and libraries follow at their own pace: for the `regex` package of
today some seventeen thousand code points are letters that are nothing yet for tiktoken or Hugging Face
tokenizers. A tokenizer must cut a text next year as it did when a model was trained, so the properties in
its pattern are read from unicode.json, which holds the version that those two have.

    "Lu": "A-ZÀ-ÖØ-Þ…"        the members of a property, as ranges in a character class would write them

A set of code points is held as the places where it begins and ends, in turns: A-Z is [65, 91].
"""

import json
from functools import lru_cache
from pathlib import Path

import numpy as np
import regex

CODE_POINTS = 0x110000
_PROPERTY = regex.compile(r"\\p\{(\w+)\}")


@lru_cache
def table() -> dict[str, str]:
    return json.loads(Path(__file__).with_name("unicode.json").read_text(encoding="utf-8"))


def unicode_version() -> str:
    return table()["unicode"]


@lru_cache
def members(name: str) -> np.ndarray:
    """The set of a property in the table."""
    runs = (
        (run[1], run[2]) if run[1] else (run[3], run[3])
        for run in regex.finditer(r"(.)-(.)|(.)", table()[name], regex.DOTALL)
    )
    return _join_runs([(ord(first), ord(last) + 1) for first, last in runs])


def contains(ends: np.ndarray, points: np.ndarray | int) -> np.ndarray:
    """Whether code points lie in a set."""
    return np.searchsorted(ends, points, side="right") % 2 == 1


@lru_cache(maxsize=256)
def in_set(source: str) -> np.ndarray:
    """The set of code points that a sign, an escape or a [class] of a pattern matches."""
    whole = _PROPERTY.fullmatch(source)
    if whole and whole[1] in table():
        return members(whole[1])
    names = [name for name in _PROPERTY.findall(source) if name in table()]
    if names and source.startswith("["):
        negated = source.startswith("[^")
        rest = _without_properties(source[2 if negated else 1 : -1])
        parts = [members(name) for name in names] + ([in_set(f"[{rest}]")] if rest else [])
        union = _union(parts)
        return np.setxor1d(union, [0, CODE_POINTS]) if negated else union
    if len(source) == 1 and source != ".":
        return np.array([ord(source), ord(source) + 1])
    return _join_runs([run.span() for run in regex.finditer(f"(?:{source})+", everything())])


def _without_properties(inside: str) -> str:
    """What a [class] holds beside the properties of the table; what was a sign there stays one."""
    items = regex.findall(r"\\p\{\w+\}|\\.|[\s\S]", inside)
    is_property = [bool(_PROPERTY.fullmatch(item)) and item[3:-1] in table() for item in items]
    rest = ""
    for i, item in enumerate(items):
        beside = (i > 0 and is_property[i - 1]) or (i + 1 < len(items) and is_property[i + 1])
        if not is_property[i]:
            rest += "\\" + item if item == "^" or (item == "-" and beside) else item
    return rest


@lru_cache(maxsize=1)
def everything() -> str:
    return np.arange(CODE_POINTS, dtype="<u4").tobytes().decode("utf-32-le", errors="surrogatepass")


def _join_runs(runs: list[tuple[int, int]]) -> np.ndarray:
    """Runs in order, those that touch joined."""
    starts, ends = np.array(runs, np.int64).reshape(-1, 2).T
    apart = starts[1:] != ends[:-1]
    bounds = starts[np.append(True, apart)[: len(starts)]], ends[np.append(apart, True)[: len(ends)]]
    return np.stack(bounds, axis=1).ravel()


def _union(sets: list[np.ndarray]) -> np.ndarray:
    points = np.unique(np.concatenate(sets))
    inside = np.any([contains(ends, points) for ends in sets], axis=0)
    return points[np.diff(inside.astype(np.int8), prepend=0) != 0]


def expand(pattern: str) -> str:
    """The pattern with the properties of the table written out: exact whatever `regex` knows, and slow."""
    parts: list[str] = []
    inside = False
    for token in regex.findall(r"\\p\{\w+\}|\\.|[\s\S]", pattern):
        match = _PROPERTY.fullmatch(token)
        if match and match[1] in table():
            token = table()[match[1]] if inside else f"[{table()[match[1]]}]"
        elif token in "[]":
            inside = token == "["
        parts.append(token)
    return "".join(parts)


_agreement: dict[str, bool] = {}


def same_in_regex(text: str) -> bool:
    """Whether `regex` has the properties of the table for every character of a text."""
    if text.isascii():
        return True
    for character in set(text).difference(_agreement):
        _agreement[character] = all(
            bool(regex.match(rf"\p{{{name}}}", character)) == bool(contains(members(name), ord(character)))
            for name in table()
            if name != "unicode"
        )
    return all(map(_agreement.__getitem__, set(text)))
