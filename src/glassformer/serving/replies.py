"""Answers: JSON that every reader takes, tensors, and events one after the other."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from glassformer.core.strict_json import dump_json

DONE = b"data: [DONE]\n\n"


class Json(Response):
    media_type = "application/json"

    def __init__(self, content: Any, status: int = 200, headers: Mapping[str, str] | None = None):
        """`content` is a value, or JSON that has been written already."""
        data = content if isinstance(content, bytes) else dump_json(content).encode()
        super().__init__(data, status, headers)


class Tensors(Response):
    """A file in the safetensors format."""

    media_type = "application/octet-stream"


class EventStream(Response):
    """Server-sent events, each as soon as it is there; several that wait go out together."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes]):
        super().__init__(None)
        self._events = events
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for block in self._events:
            await send({"type": "http.response.body", "body": block, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def event(value: Any) -> bytes:
    return b"data: " + dump_json(value).encode() + b"\n\n"
