"""Text from a model while it is written: never half a character, and nothing of a stop string."""

from collections.abc import Iterator, Sequence

import torch

from glassformer.core.errors import UsageError
from glassformer.generation.beam import beam_search
from glassformer.generation.engine import Choose, NewTap, generate
from glassformer.models.model import LanguageModel, evaluating
from glassformer.models.tap import off
from glassformer.tokenizers.tokenizer import Decoding, Tokenizer


def stream_text(
    model: LanguageModel,
    tokenizer: Tokenizer,
    prompt: str,
    tokens: int,
    choose: Choose,
    *,
    n: int = 1,
    stop: Sequence[str] = (),
    cached: bool = True,
    new_tap: NewTap = lambda _: off,
) -> Iterator[list[str]]:
    """Generate and yield, after every token, the new text of each of `n` sequences.

    A sequence ends at the end-of-text mark, before a stop string, or after `tokens` tokens.
    """
    if tokens < 1 or n < 1:
        raise UsageError("the numbers of tokens and of samples: expected at least 1")
    eot_id = tokenizer.eot_id
    ids = prompt_ids(tokenizer, prompt)
    batch = torch.tensor([ids] * n, device=next(model.parameters()).device)
    streams = [TextStream(tokenizer, eot_id, stop, after=len(ids) > (eot_id is not None)) for _ in range(n)]
    for chosen in generate(model, batch, tokens, choose, cached=cached, new_tap=new_tap):
        yield [s.feed(t) for s, t in zip(streams, chosen.tolist(), strict=True)]
        if all(s.ended for s in streams):
            break
    yield [s.flush() for s in streams]


def search_text(
    model: LanguageModel, tokenizer: Tokenizer, prompt: str, tokens: int, beams: int, length_penalty: float
) -> list[tuple[str, float]]:
    """The continuations that beam search finds, best first, each with its score."""
    ids = torch.tensor([prompt_ids(tokenizer, prompt)], device=next(model.parameters()).device)
    if model.limit is not None and ids.shape[1] + tokens > model.limit:
        raise UsageError(
            f"beam search needs room for prompt and text at once: {ids.shape[1]} + {tokens} tokens are "
            f"more than the context of {model.limit}. Ask for fewer tokens."
        )
    with evaluating(model):
        hypotheses = beam_search(
            model.next_scores,
            model.new_state(1),
            ids,
            beams=beams,
            tokens=tokens,
            end=tokenizer.eot_id,
            length_penalty=length_penalty,
        )[0]
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
