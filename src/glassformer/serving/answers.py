"""`POST /v1/translate`, `/v1/classify`, `/v1/fill`: what the commands of these names answer."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from glassformer.generation.limits import BEAMS, LENGTH_PENALTY
from glassformer.runs.run import Run
from glassformer.serving.asked import check_most
from glassformer.serving.bodies import FillBody, TextsBody, TranslateBody
from glassformer.serving.guard import held_by
from glassformer.serving.limits import Limits
from glassformer.serving.models import Models
from glassformer.serving.readers import check_reads_text, check_texts
from glassformer.serving.replies import Json
from glassformer.tasks.labels import LabelTask


def answer_routes(models: Models, limits: Limits) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/translate")
    async def translate(body: TranslateBody, request: Request) -> Response:
        texts, beams = check_texts(body.text, limits), body.beams or BEAMS
        check_most("beams", beams, limits.beams, " beams")
        penalty = LENGTH_PENALTY if body.length_penalty is None else body.length_penalty
        loaded = await models.use(body.model, held_by(request), "translate")
        run = loaded.run
        found = await loaded.jobs.do(lambda text: run.translate([text], beams, penalty)[0], texts)
        pairs = [{"source": s, "target": t} for s, t in zip(texts, found, strict=True)]
        return Json({"model": loaded.name, "translations": pairs, "unseen": _unseen(run, texts)})

    @router.post("/v1/classify")
    async def classify(body: TextsBody, request: Request) -> Response:
        texts = check_texts(body.text, limits)
        loaded = await models.use(body.model, held_by(request), "classify", "tag")
        check_reads_text(loaded)
        run = loaded.run
        found = await loaded.jobs.do(lambda text: _label(run, text), texts)
        return Json({"model": loaded.name, "texts": found, "unseen": _unseen(run, texts)})

    @router.post("/v1/fill")
    async def fill(body: FillBody, request: Request) -> Response:
        texts = check_texts(body.text, limits)
        loaded = await models.use(body.model, held_by(request), "masked")
        run = loaded.run
        found = await loaded.jobs.do(lambda text: run.fill(text, body.top), texts)
        answers = [{"text": filled.text, "blanks": filled.blanks} for filled in found]
        return Json({"model": loaded.name, "texts": answers, "unseen": _unseen(run, texts)})

    return router


def _label(run: Run, text: str) -> Any:
    """What `run.label` says of a text; that would take it for the path of an image where it is one."""
    task = run.bare_task
    assert isinstance(task, LabelTask)
    if not text.strip():
        return task.unanswered(text).as_json()
    return task.label(run.model, run.config, run.as_read(text)).as_json()


def _unseen(run: Run, texts: list[str]) -> list[str]:
    """Characters that no training text had: what the model makes of them means nothing."""
    return run.unseen("".join(dict.fromkeys(texts)))
