"""From a run and a text to a look inside: what its model is given, and what the tokens are called."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from glassformer.core.errors import UsageError
from glassformer.generation.engine import generate
from glassformer.generation.stream import prompt_ids
from glassformer.inspection.edits import Edit, Edits
from glassformer.inspection.look import Look
from glassformer.inspection.relations import Encode
from glassformer.inspection.report import report
from glassformer.inspection.trace import check_edits, parts_of, record_trace
from glassformer.runs.run import Run
from glassformer.tasks.labels import ClassifyTask, TagTask
from glassformer.tasks.translator import TranslateTask
from glassformer.tokenizers.tokenizer import Tokenizer


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
    if tokens and run.config.task != "language":
        raise UsageError(f"{run.path} learned to {run.config.task}: it has no tokens to write first")
    if target is not None and run.config.task != "translate":
        raise UsageError(f"{run.path} learned to {run.config.task}: a target belongs to a translation")
    inputs, name = _inputs(run, text, target)
    limit = run.config.model.context
    for ids in inputs:
        if run.config.model.family == "transformer" and ids.shape[1] + tokens > limit:
            written = f" and {tokens} to write" if tokens else ""
            raise UsageError(
                f"{ids.shape[1]} tokens{written} are more than the model's context of {limit}: "
                "look at a shorter text"
            )
    if tokens:
        inputs = (_continued(run, inputs[0], tokens, edits),)
        text = run.tokenizer.decode(inputs[0][0].tolist(), specials=False)
    batch = tuple(ids.to(run.device) for ids in inputs)
    seen = record_trace(run.model, *batch, sites=sites, edits=edits, compiled=compiled)
    named = {
        part: [show_token(run.tokenizer, i) for i in ids[0].tolist()]
        for part, ids in zip(parts_of(run.model), inputs, strict=True)
    }
    return Look(seen, text, run.config.task, named, name, str(run.path), _settings(run))


def _continued(run: Run, ids: torch.Tensor, tokens: int, edits: Sequence[Edit]) -> torch.Tensor:
    """The ids (1, T), and what the model writes after them, always the likeliest."""
    check_edits(run.language_model, edits)
    prompt = ids.to(run.device)
    steps = generate(
        run.language_model,
        prompt,
        tokens,
        lambda logits: logits.argmax(-1),
        new_tap=lambda start: Edits(edits, goes_on=True, start=start),
    )
    return torch.cat([prompt, *(chosen[:, None] for chosen in steps)], dim=1).cpu()


def report_on(run: Run, look: Look, maps: bool = False, position: int = -1) -> dict[str, Any]:
    """All of it as plain numbers (inspection/report.py)."""
    special = list(range(len(run.tokenizer.entries), len(run.tokenizer)))
    encode = _encoder(run) if run.config.task == "language" else None
    return report(look, encode, special, maps, position)


def _inputs(run: Run, text: str, target: str | None) -> tuple[tuple[torch.Tensor, ...], Callable[[int], str]]:
    """What the model is given, and the names of what it answers."""
    tokenizer = run.tokenizer

    def token(i: int) -> str:
        return show_token(tokenizer, i)

    match run.config.task:
        case "language" | "masked":
            return (torch.tensor([prompt_ids(tokenizer, text)]),), token
        case "classify":
            job = run.bare_job(ClassifyTask)
            assert isinstance(job, ClassifyTask)
            return (torch.from_numpy(job.encode_input(text))[None],), lambda i: str(job.labels[i])
        case "tag":
            tagging = run.bare_job(TagTask)
            assert isinstance(tagging, TagTask)
            ids, _ = tagging.encode_words(text.split())
            return (torch.from_numpy(ids)[None],), lambda i: str(tagging.labels[i])
        case _:
            job_ = run.bare_job(TranslateTask)
            assert isinstance(job_, TranslateTask)
            written = run.translate([text])[0] if target is None else target
            source, given = np.append(job_.ids(text), job_.eot_id), [job_.eot_id, *job_.ids(written)]
            return (torch.from_numpy(source.astype(np.int64))[None], torch.tensor([given])), token


def _encoder(run: Run) -> Encode:
    """Ids of a sentence as the model reads it, and the characters of each; the mark before it has none."""

    def encode(text: str) -> tuple[list[int], list[tuple[int, int]]]:
        mark, spans = run.tokenizer.eot_id, run.tokenizer.spans(text)
        if run.tokenizer.decode([s.id for s in spans], specials=False) != text:
            return [], []  # of words that it cannot read nothing can be said
        start = [] if mark is None else [mark]
        return [*start, *(s.id for s in spans)], [*((0, 0) for _ in start), *(s.characters for s in spans)]

    return encode


def _settings(run: Run) -> dict[str, Any]:
    names = ["family", "layers", "width", "context", "vocab"]
    if run.config.model.family == "transformer":
        names += ["heads", "placement", "norm", "position"]
    return {name: getattr(run.config.model, name) for name in names}


def show_token(tokenizer: Tokenizer, token: int) -> str:
    """The text of one token; bytes that are no character by themselves as ⟨E2 82⟩."""
    data = tokenizer.token_bytes(token)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"⟨{data.hex(' ').upper()}⟩"
