"""What every request passes through, whatever its route: one place that none can be added beside.

    1  the name it calls us by, and the site it comes from (address.py)
    2  the token, where there is one
    3  its body, counted and timed while it arrives
    4  the route, as long as the client is there: when it goes away, the work is cancelled
    5  whatever came of it: what the request held is given back, and faults are told without its words

Only /health is open to whoever has no token, and says nothing but that the server is there.
"""

import asyncio
import hmac
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from hashlib import sha256
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from glassformer.serving.address import Names
from glassformer.serving.counts import Counts
from glassformer.serving.errors import ApiError, fault
from glassformer.serving.limits import Limits
from glassformer.serving.replies import Json

OPEN = ("/health",)
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
)
LINGER = 2.0  # seconds for which a body that is too large is read on, so that the answer can be
Log = Callable[[str], None]


class Guard:
    """An ASGI application around another."""

    def __init__(
        self,
        app: ASGIApp,
        names: Names,
        limits: Limits,
        counts: Counts,
        token: str | None = None,
        log: Log = lambda _: None,
    ):
        self.app, self.names, self.limits, self.counts, self.log = app, names, limits, counts, log
        self._token = None if token is None else _digest(token.encode())
        self.closing = False  # no new request is taken

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        began, answer, body = time.perf_counter(), Answer(send), None
        self.counts.open.inc()
        try:
            self.check(scope)
            body = await self._read(scope, receive)
            with ExitStack() as held:
                scope.setdefault("state", {})["held"] = held
                await self._work(scope, body, receive, answer)
        except ApiError as error:
            if body is None:  # who has not been listened to is not to go on talking
                error.headers.setdefault("connection", "close")
            await answer.refuse(scope, receive, error)
        except Exception as error:
            self.log(fault(error))
            await answer.refuse(scope, receive, ApiError(500, "something went wrong in the server"))
        finally:
            self.counts.open.dec()
            route = getattr(scope.get("route"), "path", "none")
            seconds = time.perf_counter() - began
            self.counts.request(route, str(scope["method"]), answer.status, seconds)

    # 1 and 2

    def check(self, scope: Scope) -> None:
        """Refuse a request that calls us by another name, comes from another site, or has no token."""
        if self.closing:
            raise ApiError(503, "the server is stopping: ask another one", retry=5)
        headers = scope["headers"]
        hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
        if len(hosts) != 1 or not self.names.include(hosts[0]):
            raise ApiError(
                403,
                "the Host of the request is not a name of this server; `glassformer serve --allow-host NAME` "
                "allows one",
                code="host_not_allowed",
            )
        for value in (value for name, value in headers if name == b"origin"):
            if _site(value.decode("latin-1")) != hosts[0].lower():
                raise ApiError(
                    403, "requests from pages of other sites are not answered", code="origin_not_allowed"
                )
        if self._token is not None and scope["path"] not in OPEN:
            self._check_token([value for name, value in headers if name == b"authorization"])

    def _check_token(self, given: list[bytes]) -> None:
        kind, _, token = (given[0] if len(given) == 1 else b"").partition(b" ")
        assert self._token is not None
        same = hmac.compare_digest(_digest(token.strip()), self._token)
        if kind.lower() != b"bearer" or not same:
            raise ApiError(
                401,
                "this server needs its token: send it as `Authorization: Bearer TOKEN` (the api_key of an "
                "OpenAI client)",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )

    # 3

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        """The body, if it is small enough and comes in time."""
        most, seconds = self.limits.body_bytes, self.limits.body_seconds
        lengths = [value for name, value in scope["headers"] if name == b"content-length"]
        if lengths and lengths[0].isdigit() and int(lengths[0]) > most:
            await _discard(receive, most)
            raise _too_large(most)
        body = bytearray()
        try:
            async with asyncio.timeout(seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _gone_early()
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > most:
                        if more:
                            await _discard(receive, most)
                        raise _too_large(most)
                    if not more:
                        return bytes(body)
        except TimeoutError:
            raise ApiError(
                408,
                f"the body of a request has to be here within {seconds} seconds",
                headers={"connection": "close"},
            ) from None

    # 4

    async def _work(self, scope: Scope, body: bytes, receive: Receive, answer: "Answer") -> None:
        """The route, until it is done or the client has gone."""
        work = asyncio.create_task(self._answer(scope, body, answer))
        watch = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, watch):
                if not task.done():
                    task.cancel()
            with suppress(asyncio.CancelledError):
                await watch
        try:
            await work
        except asyncio.CancelledError:
            self.counts.gone.inc()

    async def _answer(self, scope: Scope, body: bytes, answer: "Answer") -> None:
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            if messages:
                return messages.pop()
            return await asyncio.get_running_loop().create_future()  # the guard hears of the end

        try:
            await self.app(scope, replay, answer.send)
        except ApiError:
            raise
        except Exception as error:
            if answer.status == 0:
                raise
            self.log(fault(error))  # it has been answered, or is half answered


class Answer:
    """What has been sent so far, with the headers that every answer has."""

    def __init__(self, send: Send):
        self._send, self.status = send, 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", []), *HEADERS]}
        await self._send(message)

    async def refuse(self, scope: Scope, receive: Receive, error: ApiError) -> None:
        if self.status == 0:
            await Json(error.body, error.status, error.headers)(scope, receive, self.send)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _discard(receive: Receive, most: int) -> None:
    """Read on for a moment: who is still sending does not hear an answer."""
    read = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER):
            while read < 16 * most:
                message = await receive()
                read += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return


def _gone_early() -> ApiError:
    return ApiError(400, "the client went away before it had asked")


def _too_large(most: int) -> ApiError:
    return ApiError(
        413,
        f"a request has {most:,} bytes at most: send less at a time",
        code="request_too_large",
        headers={"connection": "close"},
    )


def _site(origin: str) -> str:
    """The host and port of an origin, as the `Host` header of a request from there would have it."""
    scheme, _, rest = origin.lower().partition("://")
    return rest if scheme in ("http", "https") else ""


def _digest(token: bytes) -> bytes:
    """Of the same length for all, so that comparing takes the same time."""
    return sha256(token).digest()


def held_by(request: Any) -> ExitStack:
    """What is given back when a request ends, however it ends."""
    return request.scope["state"]["held"]
