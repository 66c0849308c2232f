"""The texts of a request as its answer: all at once, or event by event."""

import time
from collections.abc import AsyncIterator
from secrets import token_hex
from typing import Any

from starlette.responses import Response

from glassformer.core.strict_json import dump_json
from glassformer.serving.errors import ApiError
from glassformer.serving.replies import DONE, EventStream, Json, event
from glassformer.serving.shapes import Shape
from glassformer.serving.writing import End, Part, Placed, Writing


async def answer(writing: Writing, shape: Shape, stream: bool, with_usage: bool) -> Response:
    head = {
        "id": f"{shape.prefix}{token_hex(12)}",
        "object": shape.piece if stream else shape.whole,
        "created": int(time.time()),
        "model": writing.loaded.name,
        "system_fingerprint": f"gf-{writing.loaded.weights}" if writing.loaded.weights else None,
    }
    if stream:
        return EventStream(_events(writing, shape, head, with_usage))
    return Json(await _whole(writing, shape, head))


async def _whole(writing: Writing, shape: Shape, head: dict[str, Any]) -> dict[str, Any]:
    texts = ["" for _ in writing.texts]
    tokens: list[list[Placed]] = [[] for _ in writing.texts]
    reasons = ["" for _ in writing.texts]
    async for news in writing.events():
        for happened in news:
            match happened:
                case Part(index, text, placed):
                    texts[index] += text
                    tokens[index] += placed
                case End(index, reason, error):
                    if error is not None:
                        raise error
                    reasons[index] = reason
    choices = [shape.choice(i, *each) for i, each in enumerate(zip(texts, tokens, reasons, strict=True))]
    return {**head, "choices": choices, "usage": writing.usage}


async def _events(
    writing: Writing, shape: Shape, head: dict[str, Any], with_usage: bool
) -> AsyncIterator[bytes]:
    """An event for each piece of a text. An error is the last: the other texts of the request end too."""
    # All but the choice is the same in every event, so it is written as JSON once.
    before = dump_json({**head, **({"usage": None} if with_usage else {})})[:-1] + ', "choices": ['

    def chunk(choice: dict[str, Any]) -> bytes:
        return f"data: {before}{dump_json(choice)}]}}\n\n".encode()

    openings = [shape.opening(i) for i in range(len(writing.texts))]
    if any(openings):
        yield b"".join(chunk(opening) for opening in openings if opening)
    async for news in writing.events():
        block = b""
        for happened in news:
            match happened:
                case Part(index, text, placed):
                    block += chunk(shape.delta(index, text, placed, None))
                case End(index, reason, None):
                    block += chunk(shape.delta(index, "", [], reason))
                case End(index, _, ApiError() as error):
                    yield block + event(error.body)
                    return
        yield block
    if with_usage:
        yield event({**head, "choices": [], "usage": writing.usage})
    yield DONE
