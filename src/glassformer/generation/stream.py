"""Text from a model while it is written: never half a character, and nothing of a stop string."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from glassformer.core.errors import UsageError
from glassformer.generation.beam import SlotState, beam_search, read_slots
from glassformer.generation.engine import Engine
from glassformer.generation.request import Constraint, Ending, Handle, Request, Written, check_request
from glassformer.generation.sampling import Sampler
from glassformer.generation.step import Step
from glassformer.tokenizers.tokenizer import Decoding, Tokenizer


class Text:
    """One text on its way: what of it is certain by now, and the tokens it was made of.

    `on_part` is called with each new piece of text and the token that brought it, on the engine's thread; the
    piece may be empty, and the last one comes without a token. What else a request can ask for goes into
    `wishes` (request.py).
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        ids: Sequence[int],
        tokens: int,
        sampler: Sampler,
        stop: Sequence[str] = (),
        on_part: Callable[[str, Written | None], None] = lambda part, written: None,
        on_end: Callable[[Handle], None] = lambda handle: None,
        **wishes: Any,
    ):
        eot_id = tokenizer.eot_id
        self.text, self.tokens = "", list[Written]()
        self._on_part, self._on_end = on_part, on_end
        self._stream = TextStream(tokenizer, eot_id, stop, after=len(ids) > (eot_id is not None))
        self.handle = engine.submit(
            Request(ids, tokens, sampler, end=eot_id, on_token=self._take, on_end=self._finish, **wishes)
        )

    @property
    def ended(self) -> bool:
        """By the mark or a stop string, or because it was what was asked for; else it ran out of tokens."""
        return self.handle.ending in (Ending.MARK, Ending.TOLD)

    def _take(self, token: Written) -> bool:
        self.tokens.append(token)
        self._put(self._stream.feed(token.id), token)
        return not self._stream.ended

    def _finish(self, handle: Handle) -> None:
        try:
            if rest := self._stream.flush():
                self._put(rest, None)
        finally:
            self._on_end(handle)

    def _put(self, part: str, token: Written | None) -> None:
        self.text += part
        self._on_part(part, token)


def stream_text(
    engine: Engine,
    tokenizer: Tokenizer,
    prompt: str,
    tokens: int,
    sampler: Sampler,
    *,
    n: int = 1,
    stop: Sequence[str] = (),
    on_text: Callable[[list[Text]], None] = lambda texts: None,
    new_constraint: Callable[[], Constraint] | None = None,
    **wishes: Any,
) -> Iterator[list[str]]:
    """Write, and yield the new text of each of `n` sequences whenever there is some.

    A sequence ends at the end-of-text mark, before a stop string, or after `tokens` tokens. `on_text` is
    given the texts themselves before the first word is written; each gets a constraint of its own.
    """
    if tokens < 1 or n < 1:
        raise UsageError("the numbers of tokens and of samples: expected at least 1")
    ids, sampler = prompt_ids(tokenizer, prompt), sampler.with_seed()
    check_request(Request(ids, tokens, sampler, **wishes), engine.step)  # here and now, not at the first word

    def begin(i: int) -> Text:
        constraint = None if new_constraint is None else new_constraint()
        options = {**wishes, "constraint": constraint}
        if i > 0:  # one text is watched
            options["on_choice"] = None
        return Text(engine, tokenizer, ids, tokens, sampler.for_row(i), stop, **options)

    return _stream(engine, partial(map, begin, range(n)), on_text)


def _stream(
    engine: Engine, begin: Callable[[], Iterable[Text]], on_text: Callable[[list[Text]], None]
) -> Iterator[list[str]]:
    texts: list[Text] = []
    try:
        texts.extend(begin())
        on_text(texts)
        shown = [0] * len(texts)
        while any(text.handle.ending is None for text in texts):
            engine.turn()
            if any(len(text.text) > at for text, at in zip(texts, shown, strict=True)):
                new = [text.text for text in texts]
                yield [text[at:] for text, at in zip(new, shown, strict=True)]
                shown = [len(text) for text in new]
    finally:  # whoever stops listening stops the writing
        for text in texts:
            text.handle.cancel()
        if any(text.handle.ending is None for text in texts):
            engine.turn()
    for text in texts:
        if text.handle.error is not None:
            raise text.handle.error


def search_text(
    step: Step, tokenizer: Tokenizer, prompt: str, tokens: int, beams: int, length_penalty: float
) -> list[tuple[str, float]]:
    """The continuations that beam search finds, best first, each with its score.

    The step has room for one text more than there are beams.
    """
    ids = prompt_ids(tokenizer, prompt)
    if step.limit is not None and len(ids) + tokens > step.limit:
        raise UsageError(
            f"beam search needs room for prompt and text at once: {len(ids)} + {tokens} tokens are "
            f"more than the context of {step.limit}. Ask for fewer tokens."
        )
    state = SlotState(step, 1)
    try:
        hypotheses = beam_search(
            read_slots,
            state,
            torch.tensor([ids], device=step.device),
            beams=beams,
            tokens=tokens,
            end=tokenizer.eot_id,
            length_penalty=length_penalty,
        )[0]
    finally:
        state.close()
    return [(tokenizer.decode(h.ids, specials=False), h.score) for h in hypotheses]


def prompt_ids(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """What a model reads before it writes: the mark that begins a text, and the prompt."""
    eot_id = tokenizer.eot_id
    ids = ([] if eot_id is None else [eot_id]) + tokenizer.encode(prompt)
    if not ids:
        raise UsageError("this tokenizer has no end-of-text mark to start from: give a prompt")
    return ids


class TextStream:
    """One sequence. `feed` takes an id and returns the text that is certain by now."""

    def __init__(
        self, tokenizer: Tokenizer, eot_id: int | None, stop: Sequence[str] = (), after: bool = False
    ):
        """`eot_id` ends the text; `after`: the text continues a prompt."""
        self.eot_id, self.stop = eot_id, [s for s in stop if s]
        self.ended = False
        self._decoding = Decoding(tokenizer, after)
        self._pending = ""  # text that may be the beginning of a stop string

    def feed(self, token: int) -> str:
        if self.ended:
            return ""
        if token == self.eot_id:
            self.ended = True
            return self._release(self._decoding.flush(), final=True)
        return self._release(self._decoding.feed(token), final=False)

    def flush(self) -> str:
        """What was held back, when no more ids come."""
        if self.ended:
            return ""
        self.ended = True
        return self._release(self._decoding.flush(), final=True)

    def _release(self, text: str, final: bool) -> str:
        text = self._pending + text
        stops = [at for at in (text.find(s) for s in self.stop) if at >= 0]
        if stops:
            self.ended, self._pending = True, ""
            return text[: min(stops)]
        overlap = 0 if final else max((_overlap(text, s) for s in self.stop), default=0)
        self._pending = text[len(text) - overlap :]
        return text[: len(text) - overlap]


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` that begins `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
