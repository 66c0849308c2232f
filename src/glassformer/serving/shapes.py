"""The two shapes in which OpenAI's clients expect a text: that of a completion, and that of a chat.

completion   {"index", "text", "logprobs": {"tokens", "token_logprobs", "top_logprobs", "text_offset"}}
chat         {"index", "message" or "delta", "logprobs": {"content": [{"token", "bytes", "logprob", …}]}}
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from glassformer.generation.request import Written
from glassformer.serving.writing import Placed
from glassformer.tokenizers.tokenizer import Tokenizer

LEAST = -9999.0  # a log-probability of −∞, which is no number in JSON


class Shape(ABC):
    prefix: str  # of an id
    whole: str  # what an answer is called
    piece: str  # and an event of a stream

    def __init__(self, tokenizer: Tokenizer, with_logprobs: bool):
        self.tokenizer, self.with_logprobs = tokenizer, with_logprobs

    @abstractmethod
    def choice(self, index: int, text: str, tokens: Sequence[Placed], reason: str) -> dict[str, Any]:
        """A text that is written."""

    @abstractmethod
    def delta(self, index: int, text: str, tokens: Sequence[Placed], reason: str | None) -> dict[str, Any]:
        """More of a text; the last of it with the reason why it ended."""

    def opening(self, index: int) -> dict[str, Any] | None:
        """What comes before the first of a text."""
        return None


class CompletionShape(Shape):
    prefix, whole, piece = "cmpl-", "text_completion", "text_completion"

    def choice(self, index: int, text: str, tokens: Sequence[Placed], reason: str | None) -> dict[str, Any]:
        logprobs = self._logprobs(tokens) if self.with_logprobs else None
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}

    delta = choice

    def _logprobs(self, tokens: Sequence[Placed]) -> dict[str, Any]:
        return {
            "tokens": [token_name(self.tokenizer, token.id) for token, _ in tokens],
            "token_logprobs": [finite(token.log_prob) for token, _ in tokens],
            "top_logprobs": [self._top(token) for token, _ in tokens],
            "text_offset": [offset for _, offset in tokens],
        }

    def _top(self, token: Written) -> dict[str, float | None] | None:
        """The likeliest, and the one that was drawn; nothing where nothing stands before it."""
        if token.log_prob is None:
            return None
        best = {token_name(self.tokenizer, i): finite(value) for i, value in token.likeliest}
        return {**best, token_name(self.tokenizer, token.id): finite(token.log_prob)}


class ChatShape(Shape):
    prefix, whole, piece = "chatcmpl-", "chat.completion", "chat.completion.chunk"

    def choice(self, index: int, text: str, tokens: Sequence[Placed], reason: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        return {
            "index": index,
            "message": message,
            "logprobs": self._logprobs(tokens),
            "finish_reason": reason,
        }

    def delta(self, index: int, text: str, tokens: Sequence[Placed], reason: str | None) -> dict[str, Any]:
        content = {"content": text} if text else {}
        return {
            "index": index,
            "delta": content,
            "logprobs": self._logprobs(tokens),
            "finish_reason": reason,
        }

    def opening(self, index: int) -> dict[str, Any]:
        delta = {"role": "assistant", "content": ""}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def _logprobs(self, tokens: Sequence[Placed]) -> dict[str, Any] | None:
        if not self.with_logprobs:
            return None
        content = [
            {
                **self._one(token.id, token.log_prob),
                "top_logprobs": [self._one(i, value) for i, value in token.likeliest],
            }
            for token, _ in tokens
        ]
        return {"content": content, "refusal": None}

    def _one(self, token: int, log_prob: float | None) -> dict[str, Any]:
        data = self.tokenizer.token_bytes(token)
        return {
            "token": token_name(self.tokenizer, token),
            "bytes": list(data),
            "logprob": finite(log_prob),
        }


def token_name(tokenizer: Tokenizer, token: int) -> str:
    """The text of a token; bytes that are none by themselves as `bytes:\\xe2\\x82`."""
    data = tokenizer.token_bytes(token)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def finite(log_prob: float | None) -> float | None:
    return None if log_prob is None else max(log_prob, LEAST)
