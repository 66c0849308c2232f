"""`POST /v1/chat/completions`, and how a conversation is rendered.

The runs here are base models: they have learned to go on with a text, not to follow instructions. So a
conversation is a text like any other, in the plainest form there is:

    system: You are a poet.
    user: A line about the sea, please.
    assistant:

Each message is its role, a colon, a blank, its words and a line end; the text is gone on with after the last
colon, and ends before the model begins a line of somebody else's. Nothing is escaped: words that look like a
role are read as one.
"""

import asyncio
from collections.abc import Sequence

from fastapi import APIRouter, Request
from starlette.responses import Response

from glassformer.serving.asked import (
    Wanted,
    check_context,
    check_drawing_body,
    check_most,
    constraint_of,
    read_given,
    refuse,
    sampler_of,
    stop_texts,
)
from glassformer.serving.bodies import ChatBody, Message
from glassformer.serving.guard import held_by
from glassformer.serving.limits import Limits
from glassformer.serving.models import Loaded, Models
from glassformer.serving.shapes import ChatShape
from glassformer.serving.texts import answer
from glassformer.serving.writing import Writing

ENDS = ("\nuser:", "\nsystem:", "\nassistant:")  # where somebody else's line begins
TOKENS = 256  # of an answer, unless told


def render(messages: Sequence[Message]) -> str:
    lines = (f"{_role(message)}: {words_of(message)}\n" for message in messages)
    return "".join(lines) + "assistant:"


def words_of(message: Message) -> str:
    if isinstance(message.content, str):
        return message.content
    return "".join(part.text for part in message.content)


def _role(message: Message) -> str:
    return "system" if message.role == "developer" else message.role


def chat_routes(models: Models, limits: Limits) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/chat/completions")
    async def chat_completions(body: ChatBody, request: Request) -> Response:
        tokens, held = _check(body, limits), held_by(request)
        loaded = await models.use(body.model, held, "language")
        wanted = await asyncio.to_thread(_wanted, body, tokens, loaded, limits)
        writing = Writing(loaded, wanted, limits)
        held.callback(writing.cancel)
        shape = ChatShape(loaded.run.tokenizer, bool(body.logprobs))
        with_usage = bool(body.stream_options and body.stream_options.include_usage)
        return await answer(writing, shape, bool(body.stream), with_usage)

    return router


def _check(body: ChatBody, limits: Limits) -> int:
    """The number of tokens to write, of a request whose parts fit together."""
    both = (body.max_completion_tokens, body.max_tokens)
    if None not in both:
        raise refuse("max_tokens", "it is the old name of max_completion_tokens: say one of them")
    tokens = next((number for number in both if number is not None), min(TOKENS, limits.tokens))
    check_drawing_body(body, tokens, limits)
    check_most("messages", sum(len(words_of(m)) for m in body.messages), limits.characters, " characters")
    check_most("top_logprobs", body.top_logprobs, limits.logprobs)
    if body.top_logprobs and not body.logprobs:
        raise refuse("top_logprobs", "it belongs to logprobs: say logprobs as well, or leave it out")
    return tokens


def _wanted(body: ChatBody, tokens: int, loaded: Loaded, limits: Limits) -> Wanted:
    run = loaded.run
    prompt = read_given("messages", render(body.messages), run)
    check_context("messages", prompt, run.language_model.limit)
    return Wanted(
        prompts=[prompt],
        tokens=tokens,
        n=body.n or 1,
        sampler=sampler_of(body),
        stop=[run.as_read(text) for text in (*stop_texts(body), *ENDS)],
        likeliest=(body.top_logprobs or 0) if body.logprobs else None,
        echo=False,
        constraint=constraint_of(body, run, limits),
    )
