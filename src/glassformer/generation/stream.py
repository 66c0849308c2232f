"""Ids to text while they arrive: never half a character, and nothing of a stop string."""

import codecs
from collections.abc import Sequence

from glassformer.text.tokenizer import Tokenizer


class TextStream:
    """One sequence. `feed` takes an id and returns the text that is certain by now."""

    def __init__(self, tokenizer: Tokenizer, mark: int | None, stop: Sequence[str] = (), after: bool = False):
        """`mark` ends the text; `after`: the text continues a prompt."""
        self.tokenizer, self.mark, self.stop = tokenizer, mark, [s for s in stop if s]
        self.ended = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._started = after
        self._held = ""  # text that may be the beginning of a stop string

    def feed(self, token: int) -> str:
        if self.ended:
            return ""
        if token == self.mark:
            self.ended = True
            return self._release(self._decoder.decode(b"", final=True), final=True)
        data = self.tokenizer.token_bytes(token)
        data = self.tokenizer.separator + data if self._started else data
        self._started = True
        return self._release(self._decoder.decode(data), final=False)

    def flush(self) -> str:
        """What was held back, when no more ids come."""
        if self.ended:
            return ""
        self.ended = True
        return self._release(self._decoder.decode(b"", final=True), final=True)

    def _release(self, text: str, final: bool) -> str:
        text = self._held + text
        found = [at for at in (text.find(s) for s in self.stop) if at >= 0]
        if found:
            self.ended, self._held = True, ""
            return text[: min(found)]
        keep = 0 if final else max((_overlap(text, s) for s in self.stop), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` that begins `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
