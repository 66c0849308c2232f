"""A connection that cannot be held for nothing.

uvicorn waits for a request's head as long as it takes, and for a reader as well. Here a head that does not
arrive within its time ends the connection, and so does a client that leaves what was sent unread; more
connections than there may be are turned away at once.
"""

from asyncio import TimerHandle, Transport
from contextlib import suppress

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from glassformer.core.strict_json import dump_json
from glassformer.serving.errors import ApiError
from glassformer.serving.limits import Limits


def limited_protocol(limits: Limits) -> type[H11Protocol]:
    """The protocol for uvicorn's `http` setting."""
    return type("LimitedProtocol", (Limited,), {"limits": limits})


class Limited(H11Protocol):
    limits: Limits
    _head: TimerHandle | None = None  # until the head of a request is here
    _unread: TimerHandle | None = None  # until the client has read

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._refuse(ApiError(503, "the server has as many connections as it takes: try again", retry=1))
            return
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.IDLE and self._head is None:
            self._expect_head()
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._head = _cancelled(self._head)

    def send_400_response(self, msg: str) -> None:
        """In our form; nothing where an answer is on its way already."""
        if self.conn.our_state is h11.IDLE or self.conn.our_state is h11.SEND_RESPONSE:
            self._refuse(ApiError(400, "this is no HTTP request, or its head is too large"))
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._abort_unread()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._unread = _cancelled(self._unread)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():  # it closes when all is read, which may be never
            self._abort_unread()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._abort_unread()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head, self._unread = _cancelled(self._head), _cancelled(self._unread)
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._head = self.loop.call_later(self.limits.head_seconds, self._too_slow)

    def _too_slow(self) -> None:
        self._head = None
        if not self.transport.is_closing() and self.conn.their_state is h11.IDLE:
            message = f"the head of a request has to be here within {self.limits.head_seconds} seconds"
            self._refuse(ApiError(408, message))

    def _abort_unread(self) -> None:
        if self._unread is None:
            self._unread = self.loop.call_later(self.limits.unread_seconds, self.transport.abort)

    def _refuse(self, error: ApiError) -> None:
        """Answer without the application, and close."""
        headers = {"content-type": "application/json", "connection": "close", **error.headers}
        with suppress(h11.LocalProtocolError):
            for event in (
                h11.Response(
                    status_code=error.status, headers=[(k.encode(), v.encode()) for k, v in headers.items()]
                ),
                h11.Data(data=dump_json(error.body).encode()),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        self._abort_unread()


def _cancelled(timer: TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
