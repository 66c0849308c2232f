"""`POST /v1/translate`, `/v1/classify`, `/v1/fill`: what the commands of these names answer."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from glassformer.generation.limits import BEAMS
from glassformer.generation.sampling import Sampler
from glassformer.runs.run import Run
from glassformer.serving.asked import check_most, refuse
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
        texts = check_texts(body.text, limits)
        check_most("beams", body.beams or BEAMS, limits.beams, " beams")
        drawing, sampler = _drawing(body)
        loaded = await models.use(body.model, held_by(request), "translate")
        run = loaded.run

        def translated(row: tuple[int, str]) -> str:
            i, text = row
            own = {} if sampler is None else {**drawing, "seed": sampler.for_row(i).seed}
            return run.translate([text], body.beams, body.length_penalty, **own)[0]

        found = await loaded.jobs.do(translated, list(enumerate(texts)))
        pairs = [{"source": s, "target": t} for s, t in zip(texts, found, strict=True)]
        seed = {} if sampler is None else {"seed": sampler.seed}
        return Json({"model": loaded.name, "translations": pairs, "unseen": _unseen(run, texts), **seed})

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


def _drawing(body: TranslateBody) -> tuple[dict[str, Any], Sampler | None]:
    """What is said about drawing, and the first text's sampler, if anything is."""
    drawing = body.model_dump(include={"temperature", "top_k", "top_p", "min_p", "seed"}, exclude_none=True)
    if not drawing:
        return {}, None
    if body.beams is not None or body.length_penalty is not None:
        raise refuse(
            next(iter(drawing)),
            "draws, beam search does not: leave out either this or beams and length_penalty",
        )
    return drawing, Sampler(**drawing).with_seed()


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
