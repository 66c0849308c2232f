"""`POST /v1/tokenize` and `/v1/detokenize`: a text as the run cuts it, and back."""

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from glassformer.runs.run import Run
from glassformer.serving.asked import check_most, refuse
from glassformer.serving.bodies import DetokenizeBody, TokenizeBody
from glassformer.serving.guard import held_by
from glassformer.serving.limits import Limits
from glassformer.serving.models import Models
from glassformer.serving.readers import check_reads_text, check_texts
from glassformer.serving.replies import Json
from glassformer.serving.shapes import token_name


def token_routes(models: Models, limits: Limits) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/tokenize")
    async def tokenize(body: TokenizeBody, request: Request) -> Response:
        check_texts(body.text, limits)
        loaded = await models.use(body.model, held_by(request))
        check_reads_text(loaded)
        return Json(await asyncio.to_thread(_tokenize, loaded.run, body.text, body.specials))

    @router.post("/v1/detokenize")
    async def detokenize(body: DetokenizeBody, request: Request) -> Response:
        check_most("tokens", len(body.tokens), limits.characters, " tokens")
        loaded = await models.use(body.model, held_by(request))
        check_reads_text(loaded)
        return Json({"text": await asyncio.to_thread(_detokenize, loaded.run, body.tokens)})

    return router


def _tokenize(run: Run, text: str, specials: bool) -> dict[str, Any]:
    tokenizer = run.tokenizer
    ids = tokenizer.encode(run.as_read(text), specials=specials)
    return {
        "tokens": ids,
        "pieces": [token_name(tokenizer, i) for i in ids],
        "count": len(ids),
        "vocab": len(tokenizer),
        "context": run.config.model.context,
    }


def _detokenize(run: Run, tokens: list[int]) -> str:
    vocab = len(run.tokenizer)
    unknown = next((i for i in tokens if i >= vocab), None)
    if unknown is not None:
        raise refuse("tokens", f"id {unknown} is outside the vocabulary of {vocab} entries")
    return run.tokenizer.decode(tokens)
