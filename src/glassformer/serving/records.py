"""`GET /v1/runs`, `/v1/runs/{id}` and its record of training, also of a run that is being trained just now.

A record is read by a cursor: where the last answer ended, and a hash of the bytes before that place. The file
grows at its end; when training is resumed from a checkpoint it is written anew, and then what stands before
the place is another: the answer begins at the start again and says `reset`. Only whole lines are told.
"""

import asyncio
from hashlib import blake2b
from typing import IO, Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from glassformer.config.saved import load_config
from glassformer.core.errors import GlassformerError
from glassformer.core.files import open_regular, read_json
from glassformer.serving.asked import refuse
from glassformer.serving.catalog import Entry
from glassformer.serving.errors import ApiError
from glassformer.serving.limits import Limits
from glassformer.serving.models import Models
from glassformer.serving.replies import Json
from glassformer.training.log import parse_metrics

RECORD, RESULT = "metrics.jsonl", "result.json"
BEFORE = 256  # bytes before a cursor that must be the same
BLOCK = 1 << 20  # bytes that are read at once
TOLD = ("score", "summary", "best_step", "steps", "parameters", "tokens", "seconds", "tokens_per_second")


def record_routes(models: Models, limits: Limits) -> APIRouter:
    router = APIRouter()

    @router.get("/v1/runs")
    async def runs() -> Response:
        entries = list(models.entries.values())
        data = await asyncio.to_thread(lambda: [_run(entry) for entry in entries])
        return Json({"object": "list", "data": data})

    @router.get("/v1/runs/{run}")
    async def one_run(run: str) -> Response:
        return Json(await asyncio.to_thread(_run, models.entry(run), True))

    @router.get("/v1/runs/{run}/metrics")
    async def metrics(
        run: str,
        after: Annotated[str, Query(max_length=80, description="`next` of the answer before")] = "",
        limit: Annotated[int, Query(ge=1, description="rows at most")] = 1000,
    ) -> Response:
        entry = models.entry(run)
        return Json(await asyncio.to_thread(read_record, entry, after, min(limit, limits.rows)))

    return router


def _run(entry: Entry, whole: bool = False) -> dict[str, Any]:
    """What is known of a run from its small files."""
    about: dict[str, Any] = {"id": entry.name, "object": "run"}
    try:
        config = load_config(entry.path / "config.yaml")
    except GlassformerError as error:
        return {**about, "error": str(error).replace(str(entry.path), entry.name)}
    about |= {"task": config.task, "finished": (entry.path / RESULT).is_file()}
    model = config.model
    about["model"] = {
        name: getattr(model, name) for name in ("family", "layers", "width", "context", "vocab")
    }
    try:
        result = read_json(entry.path / RESULT)
        about["result"] = {name: result[name] for name in TOLD if name in result}
    except (OSError, ValueError, TypeError):
        about["result"] = None
    if whole:
        sections = config.model_dump(mode="json", include={"model", "training", "tokenizer"})
        about["settings"] = sections
    return about


def read_record(entry: Entry, after: str, most: int) -> dict[str, Any]:
    """Rows behind a cursor, and the next one."""
    offset, seal = _parsed(after)
    try:
        with open_regular(entry.path / RECORD) as file:
            start = offset if not offset or _seal(file, offset) == seal else 0
            lines = _lines(file, start, most + 1)
            told = lines[:most]
            end = start + sum(map(len, told))
            cursor = f"{end}-{_seal(file, end)}" if end else ""
    except FileNotFoundError:  # training has not got so far
        start, lines, told, cursor = 0, [], [], ""
    except OSError as error:
        reason = error.strerror or error
        raise ApiError(503, f"the record of '{entry.name}' cannot be read: {reason}") from None
    return {
        "object": "list",
        "data": parse_metrics(b"".join(told)),
        "next": cursor,
        "has_more": len(lines) > len(told),
        "reset": start != offset,
    }


def _lines(file: IO[bytes], start: int, most: int) -> list[bytes]:
    """Whole lines from a place on."""
    file.seek(start)
    data = b""
    while data.count(b"\n") < most and (block := file.read(BLOCK)):
        data += block
    return data[: data.rfind(b"\n") + 1].splitlines(keepends=True)[:most]


def _seal(file: IO[bytes], offset: int) -> str:
    """A hash of what stands before a place; of a file that is shorter, of something else."""
    start = max(0, offset - BEFORE)
    file.seek(start)
    before = file.read(offset - start)
    return blake2b(before, digest_size=8).hexdigest() if len(before) == offset - start else ""


def _parsed(cursor: str) -> tuple[int, str]:
    offset, _, seal = cursor.partition("-")
    if cursor and not (offset.isascii() and offset.isdecimal() and len(offset) < 16 and seal):
        raise refuse("after", "this is no cursor: give `next` of the answer before, or nothing")
    return int(offset or 0), seal
