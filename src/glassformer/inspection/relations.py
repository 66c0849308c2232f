"""Heads that connect words: from a pronoun to what it stands for, from a verb to its subject.

The score of a head is the weight it puts on the word meant, over all tokens of that word, from the last token
of the word that refers to it, averaged over marked sentences (marked.py). Beside it stands what an even look
at all that can be seen would give: only a head well above that has learned the relation. Sentences that the
tokenizer cannot read, that are too long, or in which the word meant comes later than a causal model can see,
are left out.

Whether the model needs the head is another matter: heads are switched off in turn, and the model is asked
what belongs to its task (questions.py). Of a language model that is the token after the word that refers, of
a masked one that word itself, hidden; one that gives labels is held to those it gives with all its heads.

Letters: B sentences, L layers, H heads, T positions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from glassformer.inspection.maps import pattern
from glassformer.inspection.marked import MarkedList, Sentence
from glassformer.inspection.questions import Answer, Question, ask, ask_without, pieces, record_padded
from glassformer.inspection.trace import body_of, stack_of
from glassformer.models.transformer import Stack

STANDS_OUT = 1.5  # times an even look
MOST_ABLATED = 8  # heads that are switched off without being asked for

Encode = Callable[[str], tuple[list[int], list[tuple[int, int]]]]  # text to ids and their characters


@dataclass(frozen=True)
class Words:
    """How a task reads sentences: words as tokens, and what its model is asked about one that refers.

    `ask` gets the ids of a sentence and which of them are that word; None: there is nothing to ask.
    """

    encode: Encode
    ask: Callable[[list[int], list[int]], Question | None]
    asked: str  # that, in words


@dataclass
class Relation:
    """The mean weight from word to word for every head, [layer][head], and that of an even look."""

    name: str
    weights: list[list[float]]
    even: float
    sentences: int
    answer: Answer | None = None  # with all heads; None: there was nothing to ask
    without: dict[tuple[int, int], Answer] = field(default_factory=dict)  # by the head that is switched off

    def ranking(self) -> list[tuple[float, int, int]]:
        """(weight, layer, head), the largest first."""
        each = [(w, i, h) for i, row in enumerate(self.weights) for h, w in enumerate(row)]
        return sorted(each, key=lambda item: -item[0])


@dataclass(frozen=True)
class _Reading:
    """A sentence as a model reads it: which of its tokens refer, and which are meant."""

    ids: list[int]
    source: list[int]
    target: list[int]
    visible: int  # tokens that the last of the source can look at


def relations(
    model: nn.Module, words: Words, marked: MarkedList, limit: int | None = None, ablate_all: bool = False
) -> list[Relation]:
    """How strongly each head of a transformer follows each relation of a list, and what it is needed for.

    Of the heads that stand out MOST_ABLATED are switched off; with `ablate_all` every head of the model.
    """
    results: list[Relation] = []
    body = body_of(model)
    causal = isinstance(body, Stack) and body.mask.causal
    for name, sentences in marked.sentences.items():
        readings = [r for s in sentences if (r := _read(words, s, limit, causal)) is not None]
        if not readings:
            continue
        relation = _weights(model, name, readings)
        ranking = relation.ranking()
        if not ablate_all:
            ranking = [item for item in ranking[:MOST_ABLATED] if item[0] > STANDS_OUT * relation.even]
        questions = [q for r in readings if (q := words.ask(r.ids, r.source)) is not None]
        if questions:
            relation.answer, questions = ask(model, questions)
            relation.without = ask_without(model, questions, [(i, h) for _, i, h in ranking])
        results.append(relation)
    return results


def _read(words: Words, sentence: Sentence, limit: int | None, causal: bool) -> _Reading | None:
    ids, places = words.encode(sentence.text)
    source, target = (_tokens(places, word) for word in (sentence.source, sentence.target))
    if not source or not target or (limit is not None and len(ids) > limit):
        return None
    visible = source[-1] + 1 if causal else len(ids)
    return _Reading(ids, source, target, visible) if target[-1] < visible else None


def _tokens(places: list[tuple[int, int]], word: tuple[int, int]) -> list[int]:
    """The tokens that have a part of a word (more than the blank before it)."""
    return [i for i, (a, b) in enumerate(places) if max(a, word[0]) < min(b, word[1])]


def _weights(model: nn.Module, name: str, readings: Sequence[_Reading]) -> Relation:
    looks: list[Tensor] = []  # (L, H) of each sentence
    for some in pieces(readings):
        trace = record_padded(model, [r.ids for r in some], ("q", "k"))
        maps = [pattern(trace, i) for i in range(len(stack_of(trace).blocks))]  # (B, H, T, T) of each layer
        for row, r in enumerate(some):
            looks.append(torch.stack([A[row, :, r.source[-1], r.target].sum(-1) for A in maps]))
    even = sum(len(r.target) / r.visible for r in readings) / len(readings)
    return Relation(name, torch.stack(looks).mean(0).tolist(), even, len(readings))
