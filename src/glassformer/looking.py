"""From a run and a text to a look inside: what its model is given, and what the tokens are called."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from glassformer.errors import UsageError
from glassformer.generation.stream import prompt_ids
from glassformer.inspection.edit import Edit
from glassformer.inspection.look import Look
from glassformer.inspection.record import see
from glassformer.inspection.relations import Encode
from glassformer.inspection.report import report
from glassformer.jobs.labels import ClassifyJob, TagJob
from glassformer.jobs.translate import TranslateJob
from glassformer.models.model import EncoderDecoder
from glassformer.run import Run
from glassformer.text.tokenizer import Tokenizer


def look_at(
    run: Run,
    text: str,
    *,
    target: str | None = None,
    tokens: int = 0,
    sites: Sequence[str] = (),
    edits: Sequence[Edit] = (),
    compiled: Callable[..., Any] | None = None,
) -> Look:
    """See a text through the model of a run.

    Of a translator, `target` is the translation to look at (its own, if none is given); a language model
    writes so many `tokens` first and is looked at with them. `sites` limits what is recorded.
    """
    if tokens and run.config.task == "language":
        text += run.generate(text, tokens, temperature=0.0)[0]
    inputs, name = _inputs(run, text, target)
    limit = run.config.model.context
    for ids in inputs:
        if run.config.model.family == "transformer" and ids.shape[1] > limit:
            raise UsageError(
                f"{ids.shape[1]} tokens are more than the model's context of {limit}: look at a shorter text"
            )
    batch = tuple(ids.to(run.device) for ids in inputs)
    seen = see(run.model, *batch, sites=sites, edits=edits, compiled=compiled)
    parts = ["encoder.", "decoder."] if isinstance(run.model, EncoderDecoder) else [""]
    named = {
        part: [show_token(run.tokenizer, i) for i in ids[0].tolist()]
        for part, ids in zip(parts, inputs, strict=True)
    }
    return Look(seen, text, run.config.task, named, name, str(run.path), _settings(run))


def report_on(run: Run, look: Look, maps: bool = False) -> dict[str, Any]:
    """All of it as plain numbers (inspection/report.py)."""
    special = list(range(len(run.tokenizer.entries), len(run.tokenizer)))
    encode = _encoder(run) if run.config.task == "language" else None
    return report(look, encode, special, maps)


def _inputs(run: Run, text: str, target: str | None) -> tuple[tuple[torch.Tensor, ...], Callable[[int], str]]:
    """What the model is given, and the names of what it answers."""
    tokenizer = run.tokenizer

    def token(i: int) -> str:
        return show_token(tokenizer, i)

    match run.config.task:
        case "language" | "masked":
            return (torch.tensor([prompt_ids(tokenizer, text)]),), token
        case "classify":
            job = run.bare_job(ClassifyJob)
            assert isinstance(job, ClassifyJob)
            return (torch.from_numpy(job.encode_input(text))[None],), lambda i: str(job.labels[i])
        case "tag":
            tagging = run.bare_job(TagJob)
            assert isinstance(tagging, TagJob)
            ids, _ = tagging.encode_words(text.split())
            return (torch.from_numpy(ids)[None],), lambda i: str(tagging.labels[i])
        case _:
            job_ = run.bare_job(TranslateJob)
            assert isinstance(job_, TranslateJob)
            written = run.translate([text])[0] if target is None else target
            source, given = np.append(job_.ids(text), job_.mark), [job_.mark, *job_.ids(written)]
            return (torch.from_numpy(source.astype(np.int64))[None], torch.tensor([given])), token


def _encoder(run: Run) -> Encode:
    """Ids of a sentence as the model reads it, and the characters of each; the mark before it has none."""

    def encode(text: str) -> tuple[list[int], list[tuple[int, int]]]:
        mark, spans = run.tokenizer.end_of_text, run.tokenizer.spans(text)
        start = [] if mark is None else [mark]
        return [*start, *(s.id for s in spans)], [*((0, 0) for _ in start), *(s.characters for s in spans)]

    return encode


def _settings(run: Run) -> dict[str, Any]:
    names = ["family", "layers", "heads", "width", "context", "vocab", "placement", "norm", "position"]
    return {name: getattr(run.config.model, name) for name in names}


def show_token(tokenizer: Tokenizer, token: int) -> str:
    """The text of one token; bytes that are no character by themselves as ⟨E2 82⟩."""
    data = tokenizer.token_bytes(token)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"⟨{data.hex(' ').upper()}⟩"
