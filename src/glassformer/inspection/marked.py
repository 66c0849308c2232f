"""Sentences in which one word refers to another, as a person marks them:

    pronoun:
      - The [queen] opened the letter, and then {she} read it aloud.

The word in braces refers to the one in brackets; a name, such as `pronoun`, is that of all sentences below.
There is the list of the project (relations.yaml), data sets bring one of their own, and a user may too.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from glassformer.config.recipes import read_yaml
from glassformer.core.errors import DataError
from glassformer.core.files import user_path
from glassformer.data.datasets import marked_names, marked_sentences

ITS_LIST = Path(__file__).with_name("relations.yaml")
FORM = "names and sentences in quotes, `pronoun: ['[Anna] said that {she} was tired.']`"


@dataclass(frozen=True)
class Sentence:
    text: str
    source: tuple[int, int]  # characters of the word that refers
    target: tuple[int, int]  # of what it refers to


@dataclass(frozen=True)
class MarkedList:
    """Sentences by the name of the relation in them."""

    name: str
    sentences: dict[str, list[Sentence]]


def find_list(source: str | Path | None, data: str | None = None) -> MarkedList:
    """The list that was asked for, a file or the name of a data set; else that of the data, else ours."""
    if source is None:
        return data_list(data) if data in marked_names() else project_list()
    path = user_path(source)
    if not path.is_file() and str(source) in marked_names():
        return data_list(str(source))
    if not path.is_file():
        raise DataError(
            f"there is no file '{source}': expected YAML, {FORM}, or a data set "
            f"that has marked sentences ({', '.join(marked_names())})"
        )
    return MarkedList(path.name, _parsed(read_yaml(path, FORM), str(source)))


@cache
def project_list() -> MarkedList:
    return MarkedList(ITS_LIST.name, _parsed(read_yaml(ITS_LIST, FORM), ITS_LIST.name))


@cache
def data_list(name: str) -> MarkedList:
    return MarkedList(name, _parsed(marked_sentences(name), name))


def _parsed(content: dict[str, Any], where: str) -> dict[str, list[Sentence]]:
    sentences: dict[str, list[Sentence]] = {}
    for name, lines in content.items():
        if not isinstance(lines, list) or not lines or not all(isinstance(line, str) for line in lines):
            raise DataError(f"{where}: what stands below {name} is no list of sentences: expected {FORM}")
        sentences[str(name)] = [parse(line, where) for line in lines]
    if not sentences:
        raise DataError(f"{where} is empty: expected {FORM}")
    return sentences


def parse(line: str, where: str = "marked sentence") -> Sentence:
    """`The [queen] … {she} …` without its marks, and where the two words stand."""
    text = ""
    spans: dict[str, list[tuple[int, int]]] = {"[": [], "{": []}
    for i, piece in enumerate(re.split(r"(\[[^\]]*\]|\{[^}]*\})", line)):
        word = piece[1:-1] if i % 2 else piece  # every second one is what the pattern found
        if i % 2:
            spans[piece[0]].append((len(text), len(text) + len(word)))
        text += word
    if [len(found) for found in spans.values()] != [1, 1] or any(a == b for ((a, b),) in spans.values()):
        raise DataError(f"{where}: expected one {{word}} and one [word] that it refers to in '{line}'")
    return Sentence(text, spans["{"][0], spans["["][0])
