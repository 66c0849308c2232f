"""What a head is needed for: a model is asked questions, with all its heads and with one switched off.

A question says where in a text something is to be said, and what is right; where there is no right and wrong,
that is what the model says with all its heads. Switched off is a head with its mean in its place, over all
tokens of all the texts. The answer is the log-probability of what is right, in nats, and how often it is the
likeliest.

Letters: B texts, H heads, T positions, D head width, V outputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor, nn

from glassformer.inspection.edits import Edit, put
from glassformer.inspection.trace import Trace, record_trace, stack_of

ROWS = 16  # texts at a time
T = TypeVar("T")


@dataclass(frozen=True)
class Question:
    """About ids that do not give the answer away."""

    ids: list[int]
    places: list[int] | None  # None: one answer for the whole text
    answers: list[int] | None  # one for each place; None: what the model says


@dataclass
class Answer:
    """To many questions: the mean log-probability of what is right, and the share in which it is likeliest.

    Where a question has several places, all have to be right, and log-probabilities add up.
    """

    log_prob: float
    right: float


def ask(model: nn.Module, questions: Sequence[Question]) -> tuple[Answer, list[Question]]:
    """The answer with all heads, and the questions with what is right in each."""
    log_probs = _log_probs(model, questions)
    known = [
        q if q.answers is not None else replace(q, answers=row.argmax(-1).tolist())
        for q, row in zip(questions, log_probs, strict=True)
    ]
    return _judge(known, log_probs), known


def ask_without(
    model: nn.Module, questions: Sequence[Question], heads: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], Answer]:
    """The answers with each of these heads, (layer, head), switched off in turn."""
    means = mean_outputs(model, [q.ids for q in questions]) if heads else []
    edits = {(i, h): put(f"{i}.z", means[i], heads=h) for i, h in heads}
    return {head: _judge(questions, _log_probs(model, questions, [edit])) for head, edit in edits.items()}


def mean_outputs(model: nn.Module, texts: Sequence[list[int]]) -> list[Tensor]:
    """What each head gives on average, over all tokens of all texts: (1, H, 1, D) of each layer."""
    sums: list[Tensor] = []
    for some in pieces(texts):
        trace = record_padded(model, some, ("z",))
        assert trace.padding_mask is not None
        real = trace.padding_mask[:, None, :, None]
        layers = range(len(stack_of(trace).blocks))
        here = [(trace[f"{i}.z"] * real).sum(dim=(0, 2), keepdim=True) for i in layers]
        sums = [a + b for a, b in zip(sums, here, strict=True)] if sums else here
    return [x / sum(map(len, texts)) for x in sums]


def _log_probs(model: nn.Module, questions: Sequence[Question], edits: Sequence[Edit] = ()) -> list[Tensor]:
    """At the places of each question, (places, V)."""
    log_probs: list[Tensor] = []
    for some in pieces(questions):
        logits = record_padded(model, [q.ids for q in some], ("logits",), edits).logits
        rows = [logits[i, None] if q.places is None else logits[i, q.places] for i, q in enumerate(some)]
        log_probs += [row.float().log_softmax(-1).cpu() for row in rows]
    return log_probs


def _judge(questions: Sequence[Question], log_probs: list[Tensor]) -> Answer:
    nats, right = 0.0, 0
    for q, row in zip(questions, log_probs, strict=True):
        answers = torch.tensor(q.answers)
        nats += float(row.gather(-1, answers[:, None]).sum())
        right += bool((row.argmax(-1) == answers).all())
    return Answer(nats / len(questions), right / len(questions))


def record_padded(
    model: nn.Module, texts: Sequence[list[int]], sites: Sequence[str], edits: Sequence[Edit] = ()
) -> Trace:
    """Texts of unequal length as one batch, padded at the end."""
    device, longest = next(model.parameters()).device, max(map(len, texts))
    ids = torch.tensor([row + row[:1] * (longest - len(row)) for row in texts], device=device)
    lengths = torch.tensor([len(row) for row in texts], device=device)
    padding_mask = torch.arange(longest, device=device) < lengths[:, None]  # (B, T)
    return record_trace(model, ids, sites=sites, edits=edits, padding_mask=padding_mask)


def pieces(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[i : i + ROWS] for i in range(0, len(items), ROWS)]
