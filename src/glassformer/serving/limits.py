"""Every limit of the server. What goes beyond one is refused before anything is allocated for it."""

from dataclasses import dataclass, fields, replace
from typing import Self

from glassformer.core.errors import UsageError, closest


@dataclass(frozen=True)
class Limits:
    """Each is a whole number, and can be changed by `--limit NAME=NUMBER`."""

    # a connection
    connections: int = 512
    head_bytes: int = 16 * 1024  # of a request's line and headers
    head_seconds: int = 10  # to send them
    body_bytes: int = 4 << 20
    body_seconds: int = 20
    idle_seconds: int = 30  # that a connection may wait for its next request
    unread_seconds: int = 30  # that a client may leave what was sent unread
    unread_parts: int = 8192  # pieces of text that wait for a client that reads slowly

    # a text
    prompts: int = 32  # of one request
    characters: int = 1 << 18  # of a prompt, or of any other text
    tokens: int = 4096  # to be written
    n: int = 16  # texts for each prompt
    texts: int = 64  # of one request: prompts × n
    logprobs: int = 20  # likeliest tokens at each position
    stop: int = 16  # stop strings
    stop_characters: int = 256  # of each
    bias: int = 1024  # entries of logit_bias
    form_characters: int = 1 << 16  # of a regular expression or a schema
    beams: int = 16

    # a look
    look_tokens: int = 1024
    look_numbers: int = 1 << 27  # recorded at once
    look_maps: int = 1 << 24  # numbers of attention maps in a report
    json_numbers: int = 1 << 20  # of recorded values as JSON; as tensors, as many as are recorded
    edits: int = 64

    # a run
    streams: int = 64  # texts that are written at once
    queue: int = 128  # and that wait for it; more are answered 429
    jobs: int = 32  # other requests that wait
    rows: int = 10_000  # of a record of training, at once

    def with_changes(self, changes: list[str]) -> Self:
        """As `NAME=NUMBER` says."""
        known = [field.name for field in fields(self)]
        named: dict[str, int] = {}
        for change in changes:
            name, _, number = change.partition("=")
            if name not in known:
                raise UsageError(
                    f"--limit {change}: there is no limit '{name}'.{closest(name, known)} There are "
                    f"{', '.join(known)}"
                )
            if not number.isdecimal() or not 0 < int(number) < 1 << 40:
                raise UsageError(f"--limit {change}: expected {name}=NUMBER, a whole number above 0")
            named[name] = int(number)
        return replace(self, **named)


LIMITS = Limits()
