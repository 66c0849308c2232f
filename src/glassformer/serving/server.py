"""The server as a process: it listens, takes signals, and ends in order.

A first signal stops new requests and gives texts a few seconds to end; then they are ended with an error. A
second one does not wait.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

import uvicorn

from glassformer.core.errors import Interrupted
from glassformer.core.process import tune_process
from glassformer.generation.make import Weights
from glassformer.serving.address import Names, listen, url_of
from glassformer.serving.app import make_app
from glassformer.serving.catalog import Entry, names_of
from glassformer.serving.counts import Counts
from glassformer.serving.guard import Guard
from glassformer.serving.limits import LIMITS, Limits
from glassformer.serving.models import Models
from glassformer.serving.protocol import limited_protocol

GRACE = 3.0  # seconds that texts have to end by themselves
LAST = 2.0  # seconds after that for their errors to be sent
SWITCH = 0.001  # seconds after which one thread lets another go on: texts are not to wait for each other
Say = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    allowed: tuple[str, ...] = ()  # further names of this machine
    budget: int | None = None  # bytes of memory for runs; None: half of what is free
    weights: Weights = "auto"  # their precision on a CPU
    limits: Limits = field(default_factory=lambda: LIMITS)


def serve(entries: Mapping[str, Entry], settings: Settings, say: Say) -> None:
    """Serve until a signal comes, which is raised as `Interrupted`."""
    tune_process()
    sys.setswitchinterval(SWITCH)
    counts, limits = Counts(), settings.limits
    models = Models(entries, limits, counts, settings.budget, say, settings.weights)
    names = Names.of(settings.host, settings.allowed)
    guard = make_app(models, names, limits, counts, settings.token, say)
    socket = listen(settings.host, settings.port)
    url = url_of(settings.host, socket.getsockname()[1])
    what = f"{len(entries)} runs" if len(entries) > 1 else "one run"
    say(f"Serving {what} at {url}: {names_of(entries)}. OpenAI clients: base_url={url}/v1; Ctrl-C stops.")
    _quiet_logs()
    config = uvicorn.Config(
        guard,
        http=limited_protocol(limits),
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=limits.idle_seconds,
        timeout_graceful_shutdown=int(GRACE + LAST),
        h11_max_incomplete_event_size=limits.head_bytes,
    )
    server = Server(config, guard, models)
    server.run(sockets=[socket])
    if server.signal:
        raise Interrupted("Stopped; every run is as it was.", server.signal)


class Server(uvicorn.Server):
    """uvicorn's, with our way to the end."""

    def __init__(self, config: uvicorn.Config, guard: Guard, models: Models):
        super().__init__(config)
        self.guard, self.models, self.signal = guard, models, 0
        self._ending: asyncio.Task[None] | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """They are noted, and not raised again at the end: the command's exit code says which came."""
        before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True
        self.signal = self.signal or number

    async def shutdown(self, sockets: object = None) -> None:
        self.guard.closing = True
        self._ending = asyncio.create_task(self._end_texts())
        await super().shutdown(sockets)  # type: ignore[arg-type]
        self._ending.cancel()

    async def _end_texts(self) -> None:
        await asyncio.sleep(GRACE)
        self.models.stop("the server is stopping: ask another one, or ask again later")


def _quiet_logs() -> None:
    """uvicorn's own log would tell of addresses and bad requests; faults are told by the guard."""
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
