"""A look as one object of plain numbers: what `glassformer look --json` prints and the page draws.

`docs/looking-inside.md` describes every key. Keys may be added; when one changes its meaning or goes, VERSION
goes up. Numbers are rounded to five significant digits; attention maps of long texts are left out (`omitted`
says so) unless they are asked for.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from glassformer.core.errors import UsageError
from glassformer.inspection import heads, residual
from glassformer.inspection.maps import attention_of, head_contributions
from glassformer.inspection.marked import find_list
from glassformer.inspection.picture import picture
from glassformer.inspection.relations import relations
from glassformer.inspection.text_trace import TextTrace
from glassformer.inspection.trace import record_trace, stack_of
from glassformer.models.model import LanguageModel

VERSION = 1
MOST_MAPS = 4_000_000  # numbers of attention maps that are written without being asked for
MOST_SHARES = 100_000  # positions times parts of a logit, the same


def report(
    look: TextTrace,
    maps: bool = False,
    position: int | None = None,
    marked: str | Path | None = None,
) -> dict[str, Any]:
    """`maps`: those of a long text too; `position`: where a logit is taken apart, by default the focus;
    `marked`: sentences that were asked for (marked.py), for which every head is switched off."""
    _refuse_nan(look)
    position = look.focus if position is None else position
    sections: dict[str, Any] = {
        "schema": "glassformer/look",
        "version": VERSION,
        "text": look.text,
        "task": look.task,
        "run": look.run,
        "model": look.model,
        "tokens": look.tokens,
        "predictions": _predictions(look),
        "position": None if look.answers_once else position % look.trace.logits.shape[1],
        "omitted": [],
    }
    if look.geometry is not None:
        sections["image"] = picture(look, int(look.logits().argmax()))
    sections["residual"] = _residual(look)
    sections["gradient"] = _gradient(look)
    if look.is_transformer:
        sections["attribution"] = _attribution(look, position)
        sections |= _attributions(look, maps, sections["omitted"])
        sections |= _attention(look, maps, sections["omitted"])
        sections |= _heads(look)
        sections |= _relations(look, marked)
        sections["errors"] = _errors(look, sections)
    else:
        if marked is not None:
            raise UsageError(
                f"relations: a {look.model['family']} has no heads to follow them; leave them out"
            )
        sections["omitted"] += ["attention", "attribution", "heads"]
        if f"{look.part}cross.q" in look.trace.values:
            sections["cross.attention"] = [look.pattern(0, cross=True).tolist()]
    return _round(sections)


def _refuse_nan(look: TextTrace) -> None:
    """Where a model breaks, its numbers say no more than that: say where."""
    for site, x in look.trace.values.items():
        if not bool(x.isfinite().all()):
            raise UsageError(
                f"what this model computes is not finite; it begins at {site}. Its weights are broken, or "
                "too large for its precision."
            )


def _predictions(look: TextTrace) -> list[list[list[Any]]]:
    """The five likeliest outputs at each position, or of the whole."""
    places = [-1] if look.answers_once else range(look.trace.logits.shape[1])
    return [[[name, p] for name, p in look.best(t)] for t in places]


def _residual(look: TextTrace) -> dict[str, Any]:
    section: dict[str, Any] = {
        "stream": [{"site": s, "length": n, "cosine": c} for s, n, c in look.stream()],
        "writes": [{"site": s, "length": n, "cosine": c} for s, n, c in look.writes()],
    }
    # What a recurrent translator answers is made behind its look into the source.
    has_cross = f"{look.part}cross.z" in look.trace.values
    if not look.answers_once and not has_cross:
        section["lens"] = {}
        for site in residual.stream_sites(look.trace, look.part):
            best = residual.lens(look.trace, site, look.part)[0].softmax(-1).max(dim=-1)
            each = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            section["lens"][site] = [[look.name(i), p] for i, p in each]
    return section


def _attribution(look: TextTrace, position: int) -> dict[str, Any]:
    output = int(look.logits(position).argmax())
    shares, logit, error = look.attribution(output, position)
    place = None if look.answers_once else position % look.trace.logits.shape[1]
    return {"position": place, "output": look.name(output), "logit": logit, "parts": shares, "error": error}


def _attributions(look: TextTrace, always: bool, omitted: list[str]) -> dict[str, Any]:
    """The same for the likeliest output of every position: the page shows that of the token one chooses."""
    if look.answers_once:
        return {}
    best = look.trace.logits[0].float().max(dim=-1)
    heads = sum(x.shape[1] for site, x in look.trace.values.items() if site.endswith(".z"))
    if not always and len(best.indices) * heads > MOST_SHARES:
        omitted.append("attributions")
        return {}
    tokens = best.indices.tolist()
    names, shares = residual.attribute_each(look.trace, tokens, look.part)
    rows = zip(tokens, best.values.tolist(), shares.tolist(), strict=True)
    positions = [{"output": look.name(i), "logit": logit, "shares": row} for i, logit, row in rows]
    return {"attributions": {"parts": names, "positions": positions}}


def _gradient(look: TextTrace) -> dict[str, Any]:
    if not look.answers_once and look.trace.inputs[-1].shape[1] < 2:
        return {}
    section: dict[str, Any] = {"depth": look.depth()}
    if look.is_transformer:
        section["loss"], layers = look.backward()
        section["layers"] = [
            {
                "layer": p.layer.removeprefix(look.part),
                "before": float(p.before.norm()),
                "identity": float(p.identity.norm()),
                "through": float(p.through.norm()),
                "error": p.error,
            }
            for p in layers
        ]
    return section


def map_sections(look: TextTrace) -> dict[str, Any]:
    """The tokens and all attention maps, without the rest of the report."""
    maps = _attention(look, True, []) if look.is_transformer else {}
    return {"tokens": look.tokens, **_round(maps)}


def _attention(look: TextTrace, always: bool, omitted: list[str]) -> dict[str, Any]:
    """Maps by part: self-attention of each stack, and of a translator the look into the source."""
    section: dict[str, Any] = {}
    for part in look.tokens:
        T = len(look.tokens[part])
        layers = range(len(stack_of(look.trace, part).blocks))
        if not always and len(layers) * look.trace[f"{part}0.q"].shape[1] * T * T > MOST_MAPS:
            omitted += [f"{part}{name}" for name in ("attention", "value_weighted", "rollout")]
            continue
        section[f"{part}attention"] = [look.pattern(i, part=part).tolist() for i in layers]
        section[f"{part}value_weighted"] = [look.value_weighted(i, part=part).tolist() for i in layers]
        section[f"{part}rollout"] = look.rollout(part=part).tolist()
        if part == "decoder.":
            section["cross.attention"] = [look.pattern(i, part=part, cross=True).tolist() for i in layers]
    return section


def _heads(look: TextTrace) -> dict[str, Any]:
    """What kinds of heads they are, on made-up sequences, and what a language model owes to copying."""
    model, limit = look.trace.model, look.model.get("context", 64)
    vocab = look.model.get("vocab", 0)
    if look.part or not vocab or limit < 9:
        return {}
    device = look.trace.logits.device
    sequences = heads.repeated_sequences(vocab, min(limit, 65), avoid=look.specials).to(device)
    trace = record_trace(model, sequences, sites=("q", "k", "z"))
    scores = heads.score_heads(trace)
    section: dict[str, Any] = {
        "heads": [{"layer": h.layer, "head": h.head, "kind": h.kind, "scores": h.scores} for h in scores],
        "ranking": {
            kind: [[h.layer, h.head, h.scores[kind]] for h in heads.rank(scores, kind)]
            for kind in scores[0].scores
        },
    }
    if isinstance(model, LanguageModel):
        plain, top = heads.copying(model, sequences), heads.rank(scores, "induction")[0]
        without = heads.copying(model, sequences, [heads.ablation(trace, top.layer, top.head)])
        section["copying"] = {
            "first": plain.first,
            "second": plain.second,
            "saved": plain.saved,
            "without": {"layer": top.layer, "head": top.head, "saved": without.saved},
        }
    return section


def _relations(look: TextTrace, asked_for: str | Path | None) -> dict[str, Any]:
    """Which heads connect words, on marked sentences, and what the model answers without them."""
    if look.words is None:
        if asked_for is not None:
            raise UsageError(f"relations: the task {look.task} has none to look for; leave them out")
        return {}
    marked = find_list(asked_for, look.data)
    limit = look.model.get("context")
    found = relations(look.trace.model, look.words, marked, limit, ablate_all=asked_for is not None)
    if asked_for is not None and not found:
        count = sum(map(len, marked.sentences.values()))
        raise UsageError(
            f"{asked_for}: none of its {count} sentences can be followed by this model: expected words "
            f"that its tokenizer knows, at most {limit} tokens, and what is meant before what refers "
            "where the model reads in one direction"
        )
    section: list[dict[str, Any]] = []
    for r in found:
        row = {"name": r.name, "weights": r.weights, "even": r.even, "sentences": r.sentences}
        row |= {"list": marked.name, "asked": look.words.asked}
        if r.answer is not None:
            row |= asdict(r.answer)
            row["without"] = [{"layer": i, "head": h, **asdict(a)} for (i, h), a in r.without.items()]
        section.append(row)
    return {"relations": section}


def _errors(look: TextTrace, sections: dict[str, Any]) -> dict[str, float]:
    """How far each sum is from what it should be, as a share of it: the largest of all layers and parts."""
    head_errors: list[float] = []
    stream_errors: list[float] = []
    for part in look.tokens:
        T, count = len(look.tokens[part]), len(stack_of(look.trace, part).blocks)
        for i in range(count):
            for cross in (False, True) if part == "decoder." else (False,):
                head_errors.append(_head_error(look, i, part, cross))
        for first in range(0, T, 64):  # a part is as large as the stream, and there are many
            positions = list(range(first, min(T, first + 64)))
            stream_errors.append(look.components(positions=positions, part=part).error)
    errors = {
        "heads → attention": max(head_errors),
        "parts → stream": max(stream_errors),
        "parts → logit": sections["attribution"]["error"],
    }
    if sections["gradient"]:
        errors["identity + through → gradient"] = max(p["error"] for p in sections["gradient"]["layers"])
    return errors


def _head_error(look: TextTrace, layer: int, part: str, cross: bool) -> float:
    attention = attention_of(look.trace, layer, part, cross)
    site = f"{part}{layer}.{'cross.' if cross else ''}"
    bias = getattr(getattr(attention, "out", None), "bias", None)
    contributions = head_contributions(attention, look[f"{site}z"].float()).sum(dim=1)
    total = contributions if bias is None else contributions + bias.detach()
    return residual.relative_error(total, look[f"{site}attn_out"])


def _round(value: Any) -> Any:
    match value:
        case float():
            return float(f"{value:.5g}")
        case dict():
            return {k: _round(v) for k, v in value.items()}
        case list() | tuple():
            return [_round(v) for v in value]
        case torch.Tensor():
            return _round(value.tolist())
        case _:
            return value
