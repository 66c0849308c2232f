"""Heads that connect words: from a pronoun to what it stands for, from a verb to its subject.

The score of a head is the weight it puts on the word meant, over all tokens of that word, from the last token
of the word that refers to it, averaged over the sentences of relations.yaml. Beside it stands what an even
look at all that comes before would give: only a head well above that has learned the relation. Sentences that
the tokenizer cannot read are left out.

Letters: H heads, T positions, S key positions.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
import yaml
from torch import nn

from glassformer.inspection.maps import pattern
from glassformer.inspection.trace import record_trace, stack_of

Encode = Callable[[str], tuple[list[int], list[tuple[int, int]]]]  # text to ids and their characters


@dataclass(frozen=True)
class Sentence:
    text: str
    source: tuple[int, int]  # characters of the word that refers
    target: tuple[int, int]  # of what it refers to


@dataclass
class Relation:
    """The mean weight from word to word for every head, [layer][head], and that of an even look."""

    name: str
    weights: list[list[float]]
    even: float
    sentences: int


@cache
def sentences() -> dict[str, list[Sentence]]:
    """The labelled list of the project."""
    relations_by_name = yaml.safe_load(Path(__file__).with_name("relations.yaml").read_text(encoding="utf-8"))
    return {name: [parse(line) for line in lines] for name, lines in relations_by_name.items()}


def parse(line: str) -> Sentence:
    """`The [queen] … {she} …` without its marks, and where the two words stand."""
    text, spans = "", {}
    for piece in re.split(r"(\[[^\]]*\]|\{[^}]*\})", line):
        word = piece[1:-1] if piece[:1] in ("[", "{") else piece
        if word != piece:
            spans[piece[0]] = len(text), len(text) + len(word)
        text += word
    return Sentence(text, spans["{"], spans["["])


def relations(model: nn.Module, encode: Encode, limit: int | None = None) -> list[Relation]:
    """How strongly each head of a transformer follows each relation of the list."""
    device = next(model.parameters()).device
    results: list[Relation] = []
    for name, examples in sentences().items():
        total: torch.Tensor | None = None
        even, count = 0.0, 0
        for sentence in examples:
            ids, places = encode(sentence.text)
            source, target = (_tokens(places, word) for word in (sentence.source, sentence.target))
            if not source or not target or (limit is not None and len(ids) > limit):
                continue
            trace = record_trace(model, torch.tensor([ids], device=device), sites=("q", "k"))
            layers = range(len(stack_of(trace).blocks))
            row = source[-1]
            weights = torch.stack([pattern(trace, i, queries=[row])[0, :, 0, target].sum(-1) for i in layers])
            total = weights if total is None else total + weights
            visible = row + 1 if stack_of(trace).mask.causal else len(ids)
            even, count = even + len(target) / visible, count + 1
        if total is not None:
            results.append(Relation(name, (total / count).tolist(), even / count, count))
    return results


def _tokens(places: list[tuple[int, int]], word: tuple[int, int]) -> list[int]:
    """The tokens that have a part of a word (more than the blank before it)."""
    return [i for i, (a, b) in enumerate(places) if max(a, word[0]) < min(b, word[1])]
