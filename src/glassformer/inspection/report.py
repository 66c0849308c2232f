"""A look as one object of plain numbers: what `glassformer look --json` prints and the page draws.

`docs/looking-inside.md` describes every key. Keys may be added; when one changes its meaning or goes, VERSION
goes up. Numbers are rounded to five significant digits; attention maps of long texts are left out (`omitted`
says so) unless they are asked for.
"""

from typing import Any

import torch

from glassformer.core.errors import UsageError
from glassformer.inspection import heads, residual
from glassformer.inspection.look import Look
from glassformer.inspection.maps import attention_of, written_by_head
from glassformer.inspection.relations import relations
from glassformer.inspection.trace import record_trace, stack_of

VERSION = 1
MOST_MAPS = 4_000_000  # numbers of attention maps that are written without being asked for


def report(look: Look, maps: bool = False, position: int = -1) -> dict[str, Any]:
    """`maps`: those of a long text too; `position` is where a logit is taken apart."""
    _refuse_nan(look)
    found: dict[str, Any] = {
        "schema": "glassformer/look",
        "version": VERSION,
        "text": look.text,
        "task": look.task,
        "run": look.run,
        "model": look.model,
        "tokens": look.tokens,
        "predictions": _predictions(look),
        "omitted": [],
    }
    found["residual"] = _residual(look)
    found["gradient"] = _gradient(look)
    if look.is_transformer:
        found["attribution"] = _attribution(look, position)
        found |= _attention(look, maps, found["omitted"])
        found |= _heads(look)
        found["errors"] = _errors(look, found)
    else:
        found["omitted"] += ["attention", "attribution", "heads"]
        if f"{look.part}cross.q" in look.trace.values:
            found["cross.attention"] = [look.pattern(0, cross=True).tolist()]
    return _rounded(found)


def _refuse_nan(look: Look) -> None:
    """Where a model breaks, its numbers say no more than that: say where."""
    for site, x in look.trace.values.items():
        if not bool(x.isfinite().all()):
            raise UsageError(
                f"what this model computes is not finite; it begins at {site}. Its weights are broken, or "
                "too large for its precision."
            )


def _predictions(look: Look) -> list[list[list[Any]]]:
    """The five likeliest outputs at each position, or of the whole."""
    places = [-1] if look.answers_once else range(look.trace.logits.shape[1])
    return [[[name, p] for name, p in look.best(t)] for t in places]


def _residual(look: Look) -> dict[str, Any]:
    found: dict[str, Any] = {
        "stream": [{"site": s, "length": n, "cosine": c} for s, n, c in look.stream()],
        "writes": [{"site": s, "length": n, "cosine": c} for s, n, c in look.writes()],
    }
    crossing = (
        f"{look.part}cross.z" in look.trace.values
    )  # what a recurrent translator answers is made behind it
    if not look.answers_once and not crossing:
        found["lens"] = {}
        for site in residual.stream_sites(look.trace, look.part):
            best = residual.lens(look.trace, site, look.part)[0].softmax(-1).max(dim=-1)
            each = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            found["lens"][site] = [[look.name(i), p] for i, p in each]
    return found


def _attribution(look: Look, position: int) -> dict[str, Any]:
    output = int(look.logits(position).argmax())
    shares, logit, error = look.attribution(output, position)
    place = None if look.answers_once else position % look.trace.logits.shape[1]
    return {"position": place, "output": look.name(output), "logit": logit, "parts": shares, "error": error}


def _gradient(look: Look) -> dict[str, Any]:
    if look.task != "classify" and look.trace.inputs[-1].shape[1] < 2:
        return {}
    found: dict[str, Any] = {"depth": look.depth()}
    if look.is_transformer:
        found["loss"], passed = look.backward()
        found["layers"] = [
            {
                "layer": p.layer.removeprefix(look.part),
                "before": float(p.before.norm()),
                "identity": float(p.identity.norm()),
                "through": float(p.through.norm()),
                "error": p.error,
            }
            for p in passed
        ]
    return found


def _attention(look: Look, always: bool, omitted: list[str]) -> dict[str, Any]:
    """Maps by part: self-attention of each stack, and of a translator the look into the source."""
    found: dict[str, Any] = {}
    for part in look.tokens:
        T = len(look.tokens[part])
        count = range(len(stack_of(look.trace, part).blocks))
        if not always and len(count) * look.trace[f"{part}0.q"].shape[1] * T * T > MOST_MAPS:
            omitted += [f"{part}{name}" for name in ("attention", "value_weighted", "rollout")]
            continue
        found[f"{part}attention"] = [look.pattern(i, part=part).tolist() for i in count]
        found[f"{part}value_weighted"] = [look.value_weighted(i, part=part).tolist() for i in count]
        found[f"{part}rollout"] = look.rollout(part=part).tolist()
        if part == "decoder.":
            found["cross.attention"] = [look.pattern(i, part=part, cross=True).tolist() for i in count]
    return found


def _heads(look: Look) -> dict[str, Any]:
    """What kinds of heads they are, on made-up sequences, and what a language model owes to copying."""
    model, limit = look.trace.model, look.model.get("context", 64)
    vocab = look.model.get("vocab", 0)
    if look.part or not vocab or limit < 9:
        return {}
    device = look.trace.logits.device
    sequences = heads.repeated(vocab, min(limit, 65), avoid=look.specials).to(device)
    trace = record_trace(model, sequences, sites=("q", "k", "z"))
    scored = heads.score_heads(trace)
    made: dict[str, Any] = {
        "heads": [{"layer": h.layer, "head": h.head, "kind": h.kind, "scores": h.scores} for h in scored],
        "ranking": {
            kind: [[h.layer, h.head, h.scores[kind]] for h in heads.rank(scored, kind)]
            for kind in scored[0].scores
        },
    }
    if look.task == "language":
        plain, top = heads.copying(model, sequences), heads.rank(scored, "induction")[0]
        without = heads.copying(model, sequences, [heads.ablation(trace, top.layer, top.head)])
        made["copying"] = {
            "first": plain.first,
            "second": plain.second,
            "saved": plain.saved,
            "without": {"layer": top.layer, "head": top.head, "saved": without.saved},
        }
    if look.encode is not None:
        made["relations"] = [
            {"name": r.name, "weights": r.weights, "even": r.even, "sentences": r.sentences}
            for r in relations(model, look.encode, limit)
        ]
    return made


def _errors(look: Look, found: dict[str, Any]) -> dict[str, float]:
    """How far each sum is from what it should be, as a share of it: the largest of all layers and parts."""
    heads_: list[float] = []
    streams: list[float] = []
    for part in look.tokens:
        T, count = len(look.tokens[part]), len(stack_of(look.trace, part).blocks)
        for i in range(count):
            for cross in (False, True) if part == "decoder." else (False,):
                heads_.append(_head_error(look, i, part, cross))
        for first in range(0, T, 64):  # a part is as large as the stream, and there are many
            some = list(range(first, min(T, first + 64)))
            streams.append(look.components(positions=some, part=part).error)
    errors = {
        "heads → attention": max(heads_),
        "parts → stream": max(streams),
        "parts → logit": found["attribution"]["error"],
    }
    if found["gradient"]:
        errors["identity + through → gradient"] = max(p["error"] for p in found["gradient"]["layers"])
    return errors


def _head_error(look: Look, layer: int, part: str, cross: bool) -> float:
    attention, site = (
        attention_of(look.trace, layer, part, cross),
        f"{part}{layer}.{'cross.' if cross else ''}",
    )
    bias = getattr(getattr(attention, "out", None), "bias", None)
    written = written_by_head(attention, look[f"{site}z"].float()).sum(dim=1)
    return residual.relative_error(
        written + (0.0 if bias is None else bias.detach()), look[f"{site}attn_out"]
    )


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return float(f"{value:.5g}")
        case dict():
            return {k: _rounded(v) for k, v in value.items()}
        case list() | tuple():
            return [_rounded(v) for v in value]
        case torch.Tensor():
            return _rounded(value.tolist())
        case _:
            return value
