"""`POST /v1/completions`: a prompt is gone on with."""

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import Response

from glassformer.serving.asked import (
    Wanted,
    check_completion,
    check_context,
    check_given,
    constraint_of,
    read_given,
    sampler_of,
    stop_texts,
)
from glassformer.serving.bodies import CompletionBody
from glassformer.serving.guard import held_by
from glassformer.serving.limits import Limits
from glassformer.serving.models import Loaded, Models
from glassformer.serving.shapes import CompletionShape
from glassformer.serving.texts import answer
from glassformer.serving.writing import Writing


def completion_routes(models: Models, limits: Limits) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/completions")
    async def completions(body: CompletionBody, request: Request) -> Response:
        tokens, held = check_completion(body, limits), held_by(request)
        loaded = await models.use(body.model, held, "language")
        wanted = await asyncio.to_thread(_wanted, body, tokens, loaded, limits)
        writing = Writing(loaded, wanted, limits)
        held.callback(writing.cancel)
        shape = CompletionShape(loaded.run.tokenizer, body.logprobs is not None)
        with_usage = bool(body.stream_options and body.stream_options.include_usage)
        return await answer(writing, shape, bool(body.stream), with_usage)

    return router


def _wanted(body: CompletionBody, tokens: int, loaded: Loaded, limits: Limits) -> Wanted:
    run = loaded.run
    prompts = [read_given("prompt", each, run) for each in check_given("prompt", body.prompt, limits)]
    for prompt in prompts:
        check_context("prompt", prompt, run.language_model.limit)
    return Wanted(
        prompts=prompts,
        tokens=tokens,
        n=body.n or 1,
        sampler=sampler_of(body),
        stop=[run.as_read(text) for text in stop_texts(body)],
        likeliest=body.logprobs,
        echo=bool(body.echo),
        constraint=constraint_of(body, run, limits),
    )
