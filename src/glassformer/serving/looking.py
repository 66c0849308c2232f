"""A text seen through a run: `POST /v1/look`, `/v1/look/values`, `/v1/look/attribution`.

The first gives what `glassformer look --json` prints (inspection/report.py), the second what was recorded at
sites that are named, the third what each part of the model adds to one logit. Values and attributions also
come as float32 tensors, in the safetensors format: to the last digit, and in a tenth of the bytes.
"""

from collections.abc import Sequence
from typing import Any

import torch
from fastapi import APIRouter, Request
from safetensors.torch import save
from starlette.responses import Response
from torch import Tensor

from glassformer.config.model import ModelConfig
from glassformer.core.strict_json import dump_json
from glassformer.inspection.edits import Edit, put, steer, zero
from glassformer.inspection.look import Look
from glassformer.serving.asked import check_most, refuse
from glassformer.serving.bodies import AttributionBody, EditBody, LookBody, ReportBody, ValuesBody
from glassformer.serving.errors import ApiError
from glassformer.serving.guard import held_by
from glassformer.serving.limits import Limits
from glassformer.serving.models import Loaded, Models
from glassformer.serving.readers import check_reads_text
from glassformer.serving.replies import Json, Tensors

BINARY = ("application/octet-stream", "application/vnd.safetensors")


def look_routes(models: Models, limits: Limits) -> APIRouter:
    router = APIRouter()

    async def use(body: LookBody, request: Request) -> tuple[Loaded, list[Edit]]:
        check_most("text", len(body.text), limits.characters, " characters")
        check_most("target", len(body.target or ""), limits.characters, " characters")
        check_most("tokens", body.tokens, limits.look_tokens, " tokens")
        check_most("edits", len(body.edits), limits.edits, " edits")
        edits = [_edit(edit) for edit in body.edits]
        loaded = await models.use(body.model, held_by(request))
        check_reads_text(loaded)
        return loaded, edits

    @router.post("/v1/look")
    async def report(body: ReportBody, request: Request) -> Response:
        loaded, edits = await use(body, request)
        return Json(await loaded.jobs.one(lambda: _report(loaded, body, edits, limits)))

    @router.post("/v1/look/values")
    async def values(body: ValuesBody, request: Request) -> Response:
        loaded, edits = await use(body, request)
        binary = _is_binary(body.format, request)
        data = await loaded.jobs.one(lambda: _values(loaded, body, edits, limits, binary))
        return Tensors(data) if binary else Json(data)

    @router.post("/v1/look/attribution")
    async def attribution(body: AttributionBody, request: Request) -> Response:
        loaded, edits = await use(body, request)
        binary = _is_binary(body.format, request)
        data = await loaded.jobs.one(lambda: _attribution(loaded, body, edits, limits, binary))
        return Tensors(data) if binary else Json(data)

    return router


def _edit(body: EditBody) -> Edit:
    if body.kind == "zero":
        if body.value is not None:
            raise refuse("edits", "value: kind zero takes none; the kind that puts a value there is put")
        return zero(body.site, body.heads, body.positions)
    if body.value is None:
        raise refuse("edits", f"value: kind {body.kind} needs one")
    try:
        value = torch.tensor(body.value, dtype=torch.float32)
    except ValueError:
        raise refuse("edits", "value: its rows are of different lengths") from None
    if body.kind == "put":
        return put(body.site, value, body.heads, body.positions)
    if body.heads is not None:
        raise refuse("edits", "heads: kind steer pushes the whole stream; leave them out")
    return steer(body.site, value, 1.0 if body.strength is None else body.strength, body.positions)


def _look(
    loaded: Loaded, body: LookBody, edits: Sequence[Edit], limits: Limits, sites: Sequence[str] = ()
) -> Look:
    """The run's own look, once it is known how large it will be."""
    run, task = loaded.run, loaded.run.bare_task
    text = run.as_read(body.text)
    target = None if body.target is None else run.as_read(body.target)
    if run.config.task != "translate" and target is not None:
        raise refuse("target", f"model '{loaded.name}' is no translator: leave it out")
    sides = [len(tokenizer.encode(text)) for tokenizer in task.input_tokenizers()[:1]]
    sides.append(len(run.tokenizer.encode(target or "")))
    positions = max(sides) + body.tokens + 1
    check_most("text", positions, limits.look_tokens, " tokens")
    numbers = positions * numbers_each(run.config.model, positions)
    if numbers > limits.look_numbers:
        raise refuse(
            "text",
            f"{positions} tokens of this model are about {numbers:,} numbers to record, and "
            f"{limits.look_numbers:,} are the most here: look at a shorter text",
        )
    return task.look(
        run.model,
        run.config,
        text,
        target=target,
        tokens=body.tokens,
        sites=sites,
        edits=edits,
        run=loaded.name,
    )


def numbers_each(m: ModelConfig, positions: int) -> int:
    """About how many numbers are recorded for each position, its rows of the attention maps among them."""
    heads = m.heads * (2 * m.head_width + 2 * m.value_width) if m.family == "transformer" else 4 * m.width
    maps = 3 * m.heads * positions if m.family == "transformer" else 0
    layers = m.layers + m.encoder_layers
    return layers * (10 * m.width + heads + 3 * m.hidden + maps) + 2 * max(m.vocab, m.labels)


def _report(loaded: Loaded, body: ReportBody, edits: Sequence[Edit], limits: Limits) -> bytes:
    look = _look(loaded, body, edits, limits)
    m, T = loaded.run.config.model, max(len(tokens) for tokens in look.tokens.values())
    if body.maps and m.family == "transformer":
        check_most("maps", (m.layers + m.encoder_layers) * m.heads * T * T, limits.look_maps, " numbers")
    if body.position is not None:
        look.logits(body.position)  # refused here where it is not there
    return dump_json(look.report(body.maps, body.position)).encode()


def _values(loaded: Loaded, body: ValuesBody, edits: Sequence[Edit], limits: Limits, binary: bool) -> bytes:
    look = _look(loaded, body, edits, limits, body.sites)
    values = {site: look[site][0] for site in look.sites}
    tokens = {part or "text": names for part, names in look.tokens.items()}
    if binary:
        return _packed(values, {"model": loaded.name, "tokens": dump_json(tokens)})
    count = sum(value.numel() for value in values.values())
    if count > limits.json_numbers:
        raise ApiError(
            400,
            f"format: {count:,} numbers are too many for JSON, which has {limits.json_numbers:,} at most: "
            'ask for {"format": "safetensors"}, or for fewer sites',
            param="format",
        )
    listed = {site: {"shape": list(x.shape), "values": x.float().tolist()} for site, x in values.items()}
    return dump_json({"model": loaded.name, "tokens": tokens, "sites": listed}).encode()


def _attribution(
    loaded: Loaded, body: AttributionBody, edits: Sequence[Edit], limits: Limits, binary: bool
) -> bytes:
    look = _look(loaded, body, edits, limits)
    output = _number(look, "output", body.output)
    if output is None:
        output = int(look.logits(body.position).argmax())
    against = _number(look, "against", body.against)
    look.logits(body.position)  # refused here where it is not there
    shares, logit, error = look.attribution(output, body.position, against, body.heads)
    about: dict[str, Any] = {
        "model": loaded.name,
        "output": {"id": output, "name": look.name(output)},
        "against": None if against is None else {"id": against, "name": look.name(against)},
        "position": None if look.answers_once else body.position % look.trace.logits.shape[1],
        "logit": logit,
        "error": error,
    }
    if binary:
        values = {"shares": torch.tensor(list(shares.values()), dtype=torch.float32)}
        return _packed(values, {"parts": dump_json(list(shares)), "about": dump_json(about)})
    return dump_json({**about, "parts": shares}).encode()


def _number(look: Look, param: str, output: int | str | None) -> int | None:
    if isinstance(output, str):
        return look.number(output)
    count = look.trace.logits.shape[-1]
    if output is not None and output >= count:
        raise refuse(param, f"there is no output {output}: expected 0 to {count - 1}")
    return output


def _packed(values: dict[str, Tensor], about: dict[str, str]) -> bytes:
    tensors = {name: x.detach().float().cpu().contiguous() for name, x in values.items()}
    return save(tensors, metadata=about)


def _is_binary(format: str | None, request: Request) -> bool:
    if format is not None:
        return format == "safetensors"
    accepted = request.headers.get("accept", "")
    return any(kind in accepted for kind in BINARY)
