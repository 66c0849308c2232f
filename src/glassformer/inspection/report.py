"""A look as one object of plain numbers: what `glassformer look --json` prints and the page draws.

`docs/looking-inside.md` describes every key. Keys may be added; when one changes its meaning or goes, VERSION
goes up. Numbers are rounded to five significant digits; attention maps of long texts are left out (`omitted`
says so) unless they are asked for.
"""

from collections.abc import Sequence
from typing import Any

import torch

from glassformer.inspection import heads, residual
from glassformer.inspection.look import Look
from glassformer.inspection.maps import attention_of
from glassformer.inspection.record import see
from glassformer.inspection.relations import Encode, relations

VERSION = 1
MOST_MAPS = 4_000_000  # numbers of attention maps that are written without being asked for


def report(
    look: Look, encode: Encode | None = None, special: Sequence[int] = (), maps: bool = False
) -> dict[str, Any]:
    """`encode` takes words to tokens with their places, for relations between words; `special` are ids that
    do not occur in text."""
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
    if not look.is_transformer:
        found["omitted"] = ["attention", "residual", "gradient", "heads"]
        found["sites"] = {site: _lengths(look, site) for site in look.seen.values if "resid" in site}
        return _rounded(found)
    found["residual"] = _residual(look)
    found["attribution"] = _attribution(look)
    found["gradient"] = _gradient(look)
    found |= _attention(look, maps, found["omitted"])
    found |= _heads(look, encode, special)
    found["errors"] = _errors(look, found)
    return _rounded(found)


def _predictions(look: Look) -> list[list[list[Any]]]:
    """The five likeliest outputs at each position, or of the whole."""
    places = [-1] if look.answers_once else range(look.seen.logits.shape[1])
    return [[[name, p] for name, p in look.best(t)] for t in places]


def _residual(look: Look) -> dict[str, Any]:
    positions = 1 if look.answers_once else look.seen.logits.shape[1]
    found: dict[str, Any] = {
        "stream": [{"site": s, "length": n, "cosine": c} for s, n, c in look.stream()],
        "writes": [{"site": s, "length": n, "cosine": c} for s, n, c in look.writes()],
    }
    if not look.answers_once:
        depths: dict[str, list[Any]] = {}
        for t in range(positions):
            for site, best in look.lens(t, k=1):
                depths.setdefault(site, []).append([best[0][0], best[0][1]])
        found["lens"] = depths
    return found


def _attribution(look: Look, position: int = -1) -> dict[str, Any]:
    output = int(look.logits(position).argmax())
    shares, logit, error = look.attribution(output, position)
    name = look.name(output)
    return {"position": position, "output": name, "logit": logit, "parts": shares, "error": error}


def _gradient(look: Look) -> dict[str, Any]:
    if look.seen.inputs[-1].shape[1] < 2:
        return {}
    loss, passed = look.backward()
    layers = [
        {
            "layer": p.layer.removeprefix(look.part),
            "before": float(p.before.norm()),
            "identity": float(p.identity.norm()),
            "through": float(p.through.norm()),
            "error": p.error,
        }
        for p in passed
    ]
    return {"loss": loss, "layers": layers, "depth": look.depth()}


def _attention(look: Look, always: bool, omitted: list[str]) -> dict[str, Any]:
    """Maps by part: self-attention of each stack, and of a translator the look into the source."""
    found: dict[str, Any] = {}
    for part in look.tokens:
        T = len(look.tokens[part])
        heads_ = look.seen[f"{part}0.q"].shape[1]
        if not always and look.layers * heads_ * T * T > MOST_MAPS:
            omitted.append(f"{part}attention")
            continue
        count = range(_blocks(look, part))
        found[f"{part}attention"] = [look.pattern(i, part=part).tolist() for i in count]
        found[f"{part}rollout"] = look.rollout(part=part).tolist()
        if part == "decoder.":
            found["cross.attention"] = [look.pattern(i, part=part, cross=True).tolist() for i in count]
    return found


def _heads(look: Look, encode: Encode | None, special: Sequence[int]) -> dict[str, Any]:
    """What kinds of heads they are, on made-up sequences, and what a language model owes to copying."""
    model, limit = look.seen.model, look.model.get("context", 64)
    vocab = look.model.get("vocab", 0)
    if look.part or not vocab or limit < 9:
        return {}
    device = look.seen.logits.device
    sequences = heads.repeated(vocab, min(limit, 65), avoid=special).to(device)
    seen = see(model, sequences, sites=("q", "k", "z"))
    found = [
        {"layer": h.layer, "head": h.head, "kind": h.kind, "scores": h.scores}
        for h in heads.score_heads(seen)
    ]
    made: dict[str, Any] = {"heads": found}
    if look.task == "language":
        plain = heads.copying(model, sequences)
        top = heads.rank(heads.score_heads(seen), "induction")[0]
        without = heads.copying(model, sequences, [heads.ablation(seen, top.layer, top.head)])
        made["copying"] = {
            "first": plain.first,
            "second": plain.second,
            "saved": plain.saved,
            "without": {"layer": top.layer, "head": top.head, "saved": without.saved},
        }
    if encode is not None:
        made["relations"] = [
            {"name": r.name, "weights": r.weights, "even": r.even, "sentences": r.sentences}
            for r in relations(model, encode, limit)
        ]
    return made


def _errors(look: Look, found: dict[str, Any]) -> dict[str, float]:
    """How far each sum is from what it should be, as a share of it."""
    heads_: list[float] = []
    for i in range(look.layers):
        out = getattr(attention_of(look.seen, i, look.part), "out", None)
        bias = getattr(out, "bias", None)
        written = look.heads(i).sum(dim=0) + (0.0 if bias is None else bias.detach())
        heads_.append(residual.relative_error(written, look[f"{look.part}{i}.attn_out"][0]))
    last = [-1] if look.seen.logits.ndim == 3 else None
    errors = {
        "heads → attention": max(heads_),
        "parts → stream": look.components(positions=last).error,
        "parts → logit": found["attribution"]["error"],
    }
    if found["gradient"]:
        errors["identity + through → gradient"] = max(p["error"] for p in found["gradient"]["layers"])
    return errors


def _blocks(look: Look, part: str) -> int:
    return sum(site.startswith(part) and site.endswith(".resid") for site in look.seen.values)


def _lengths(look: Look, site: str) -> list[float]:
    return look[site][0].float().norm(dim=-1).tolist()


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
