"""Which characters are letters, numbers and marks: a table of one fixed version of Unicode.

New characters are assigned every year, and libraries follow at their own pace: for the `regex` package of
today some seventeen thousand code points are letters that are nothing yet for tiktoken or Hugging Face
tokenizers. A tokenizer must cut a text next year as it did when a model was trained, so the properties in
its pattern are read from unicode.json, which holds the version that those two have.

    "Lu": "A-ZÀ-ÖØ-Þ…"        the members of a property, as ranges in a character class would write them
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
    """For every code point, whether it has a property."""
    found = np.zeros(CODE_POINTS, np.bool_)
    if name not in table():
        return in_set(rf"\p{{{name}}}")
    for run in regex.finditer(r"(.)-(.)|(.)", table()[name], regex.DOTALL):
        first, last = (run[1], run[2]) if run[1] else (run[3], run[3])
        found[ord(first) : ord(last) + 1] = True
    return found


@lru_cache(maxsize=64)
def in_set(source: str) -> np.ndarray:
    """For every code point, whether a sign, an escape or a [class] of a pattern matches it."""
    if len(source) == 1 and source != ".":
        return np.arange(CODE_POINTS) == ord(source)
    whole = _PROPERTY.fullmatch(source)
    if whole and whole[1] in table():
        return members(whole[1])
    names = [name for name in _PROPERTY.findall(source) if name in table()]
    if names and source.startswith("["):
        negated = source.startswith("[^")
        rest = _PROPERTY.sub(lambda m: "" if m[1] in table() else m[0], source[2 if negated else 1 : -1])
        found = in_set(f"[{rest}]").copy() if rest else np.zeros(CODE_POINTS, np.bool_)
        for name in names:
            found |= members(name)
        return found ^ negated
    found = np.zeros(CODE_POINTS, np.bool_)
    for run in regex.finditer(f"(?:{source})+", _everything()):
        found[run.start() : run.end()] = True
    return found


@lru_cache(maxsize=1)
def _everything() -> str:
    return "".join(map(chr, range(CODE_POINTS)))


def expand(pattern: str) -> str:
    """The pattern with the properties of the table written out: exact whatever `regex` knows, and slow."""
    parts: list[str] = []
    inside = False
    for token in regex.findall(r"\\p\{\w+\}|\\.|[\s\S]", pattern):
        found = _PROPERTY.fullmatch(token)
        if found and found[1] in table():
            token = table()[found[1]] if inside else f"[{table()[found[1]]}]"
        elif token in "[]":
            inside = token == "["
        parts.append(token)
    return "".join(parts)


_checked: dict[str, bool] = {}


def same_in_regex(text: str) -> bool:
    """Whether `regex` has the properties of the table for every character of a text."""
    if text.isascii():
        return True
    for character in set(text).difference(_checked):
        _checked[character] = all(
            bool(regex.match(rf"\p{{{name}}}", character)) == bool(members(name)[ord(character)])
            for name in table()
            if name != "unicode"
        )
    return all(map(_checked.__getitem__, set(text)))
