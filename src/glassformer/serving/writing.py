"""Texts on their way from an engine to a client.

The engine's thread puts what happened into a buffer, and the event loop takes it out: at what pace a client
reads is none of the engine's business. What a slow one has not read yet is bounded by what it asked for, and
by a limit besides: beyond that its texts are cancelled.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from glassformer.generation.request import Ending, Handle, Written
from glassformer.generation.stream import Text
from glassformer.serving.asked import Wanted
from glassformer.serving.errors import ApiError, as_api_error, fault
from glassformer.serving.limits import Limits
from glassformer.serving.models import Loaded
from glassformer.tokenizers.tokenizer import Decoding, Tokenizer

Placed = tuple[Written, int]  # a token, and at which character of its text it begins
REASONS = {Ending.MARK: "stop", Ending.TOLD: "stop", Ending.LENGTH: "length", Ending.FULL: "length"}


@dataclass(frozen=True)
class Part:
    """More of a text."""

    index: int
    text: str
    tokens: list[Placed]


@dataclass(frozen=True)
class End:
    index: int
    reason: str  # stop or length
    error: ApiError | None = None


class Writing:
    """The texts of one request; told of them by the engine's thread, asked for them by the event loop."""

    def __init__(self, loaded: Loaded, wanted: Wanted, limits: Limits):
        assert loaded.writer is not None
        self.wanted, self.loaded, self.writer = wanted, loaded, loaded.writer
        self._most = limits.unread_parts
        self._buffer: deque[Part | End] = deque()
        self._awake = asyncio.Event()
        self._too_slow = False
        self.texts: list[_Text] = []
        self.writer.reserve(len(wanted.prompts) * wanted.n)
        try:
            for i in range(len(wanted.prompts) * wanted.n):
                self.texts.append(_Text(self, i))
        except BaseException:
            self.cancel()
            raise
        self.writer.check_writes(self.texts[0].engine)

    def cancel(self) -> None:
        """Whoever does not listen any more stops the writing."""
        for text in self.texts:
            text.handle.cancel()

    def wake(self) -> None:
        self._awake.set()

    def put(self, event: Part | End) -> None:
        """On the engine's thread."""
        if len(self._buffer) >= self._most and not self._too_slow:
            self._too_slow = True
            self.cancel()
        if not self._too_slow or isinstance(event, End):
            self._buffer.append(event)
        self.writer.tell(self)

    def put_first(self, event: Part) -> None:
        """On the event loop, before anything is written."""
        self._buffer.append(event)
        self._awake.set()

    async def events(self) -> AsyncIterator[list[Part | End]]:
        """What happened since the last time, until all texts have ended."""
        left = len(self.texts)
        while left:
            await self._awake.wait()
            self._awake.clear()
            news = [self._buffer.popleft() for _ in range(len(self._buffer))]
            left -= sum(isinstance(event, End) for event in news)
            if news:
                yield news

    def ending(self, handle: Handle) -> tuple[str, ApiError | None]:
        """How a text ended, in OpenAI's words."""
        if handle.ending is not None and handle.ending in REASONS:
            return REASONS[handle.ending], None
        if handle.error is not None:
            error = as_api_error(handle.error, self.loaded.name, self.loaded.run.path)
            if error.status == 500:
                self.writer.log(fault(handle.error))
            return "stop", error
        why = "it was read too slowly" if self._too_slow else "it was cancelled"
        return "stop", ApiError(400, f"the text was ended because {why}", code="cancelled")

    @property
    def usage(self) -> dict[str, object]:
        """Tokens that were read and written; what another text had read already is counted as cached."""
        n = self.wanted.n
        prompts = sum(len(prompt.ids) for prompt in self.wanted.prompts)
        completions = sum(text.handle.written for text in self.texts)
        shared = sum(text.handle.shared for text in self.texts[::n])
        return {
            "prompt_tokens": prompts,
            "completion_tokens": completions,
            "total_tokens": prompts + completions,
            "prompt_tokens_details": {"cached_tokens": shared},
        }


class _Text:
    """One of them: what the engine's thread tells of it, as events."""

    def __init__(self, writing: Writing, index: int):
        wanted = writing.wanted
        self.writing, self.index, self._began = writing, index, time.perf_counter()
        self._writer, self._tokenizer = writing.writer, writing.loaded.run.tokenizer
        self._prompt = wanted.prompts[index // wanted.n]
        self._length = len(self._prompt.text) if wanted.echo else 0  # characters that have been told
        self._aligned: Aligned | None = None
        if wanted.likeliest is not None:
            after = len(self._prompt.ids) > self._prompt.marked
            self._aligned = Aligned(self._tokenizer, after, self._length)
        if wanted.echo and wanted.likeliest is None:
            writing.put_first(Part(index, self._prompt.text, []))
        self._is_first = True
        self.engine = writing.writer.engine
        self.handle = Text(
            self.engine,
            self._tokenizer,
            self._prompt.ids,
            wanted.tokens,
            wanted.sampler.for_row(index % wanted.n),
            wanted.stop,
            on_part=self._part,
            on_end=self._end,
            on_prompt=self._read,
            likeliest=wanted.likeliest,
            scores_prompt=wanted.scores_prompt,
            constraint=None if wanted.constraint is None else wanted.constraint(),
        ).handle

    def _read(self, tokens: list[Written]) -> None:
        """The prompt, with how likely each of its tokens was."""
        if self._aligned is None:
            return
        aligned = Aligned(self._tokenizer)
        for token in tokens[self._prompt.marked :]:
            aligned.take(token)
        self.writing.put(Part(self.index, self._prompt.text, aligned.until(None)))

    def _part(self, text: str, token: Written | None) -> None:
        if self._is_first:
            self._is_first = False
            self._writer.counts.first.labels(self._writer.name).observe(time.perf_counter() - self._began)
        self._length += len(text)
        placed: list[Placed] = []
        if self._aligned is not None:
            if token is not None and token.id != self._tokenizer.eot_id:
                self._aligned.take(token)
            placed = self._aligned.until(self._length)
        if text or placed:
            self.writing.put(Part(self.index, text, placed))

    def _end(self, handle: Handle) -> None:
        counts, name = self._writer.counts, self._writer.name
        reason, error = self.writing.ending(handle)
        counts.endings.labels(name, str(handle.ending)).inc()
        counts.tokens.labels(name, "written").inc(handle.written)
        counts.tokens.labels(name, "prompt").inc(len(self._prompt.ids))
        counts.tokens.labels(name, "shared").inc(handle.shared)
        self._writer.took(time.perf_counter() - self._began)
        self.writing.put(End(self.index, reason, error))


class Aligned:
    """Tokens beside their text: one is told when the first of its characters is.

    So the tokens that are told are those of the text: none of a stop string that was cut off, nor the mark.
    """

    def __init__(self, tokenizer: Tokenizer, after: bool = False, start: int = 0):
        self._decoding, self._length = Decoding(tokenizer, after), start
        self._waiting: deque[Placed] = deque()

    def take(self, token: Written) -> None:
        self._waiting.append((token, self._length))
        self._length += len(self._decoding.feed(token.id))

    def until(self, length: int | None) -> list[Placed]:
        """Those that begin before so many characters; None: all."""
        told: list[Placed] = []
        while self._waiting and (length is None or self._waiting[0][1] < length):
            told.append(self._waiting.popleft())
        return told
