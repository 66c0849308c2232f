"""How well a language model predicts text: full-split loss, perplexity and bits per byte.

Every token of a split is predicted once. A model with a limit of context sees windows of `window` tokens,
each moved on by `stride`; with a stride shorter than the window, a window scores only the tokens that the
one before it did not reach, so each has at least window − stride tokens before it. A model without a limit
reads the split as a few long streams and carries its state along each; a stream then is its window.

Perplexity depends on window, stride and tokenizer, and is comparable only where these agree; bits per byte
divides by the bytes of the text and is comparable across tokenizers that lose nothing (one with an unknown
word explains every such word for free).

Letters: B batch, T positions, V vocabulary.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from glassformer.core.files import in_bytes
from glassformer.data.shards import Tokens
from glassformer.evaluation.result import PRECISE, Result, decimals
from glassformer.models.model import LanguageModel, evaluating
from glassformer.objectives.loss import NOT_SCORED, each_loss
from glassformer.tokenizers.tokenizer import UNKNOWN

BATCH_LOGITS = 1 << 25  # scores held at once: 128 MB
BATCH_TOKENS = 1 << 15  # read at once, where few of them are scored
STREAM_TOKENS, MOST_STREAMS, PIECE = 8192, 16, 256


@dataclass(frozen=True)
class Likelihood(Result):
    perplexity: float
    bits_per_byte: float
    tokens: int  # predicted
    bytes: int  # of text that they stand for
    window: int
    stride: int

    @property
    def digits(self) -> int:
        return decimals(self.tokens)

    @property
    def score(self) -> tuple[str, float, bool]:
        return "bits per byte", self.bits_per_byte, False

    def as_dict(self) -> dict[str, Any]:
        """With the share of unknown tokens, also where there are none: bits per byte ask for it."""
        return asdict(self)

    def summary(self) -> str:
        digits = self.digits
        bits = f"{self.bits_per_byte:.{digits}f} bits/byte{self._caution()}{self._from_little()}"
        return f"loss {self.loss:.{digits}f}  perplexity {self.perplexity:.{max(1, digits - 2)}f}  {bits}"

    def table(self) -> list[tuple[str, str]]:
        digits = self.digits
        return [
            ("split", self.split),
            ("loss", f"{self.loss:.{digits}f} nats per token{self._from_little()}"),
            ("perplexity", f"{self.perplexity:.{digits - 1}f}"),
            ("bits per byte", f"{self.bits_per_byte:.{digits}f}{self._caution()}"),
            ("tokens, bytes", f"{self.tokens:,} predicted, {self.bytes:,} of text"),
            ("scored in", f"windows of {self.window:,} tokens, each {self.stride:,} further on (--stride)"),
        ]

    def _caution(self) -> str:
        return f" with {self.unknown_share:.2%} {UNKNOWN}, not comparable" if self.unknown_share else ""

    def _from_little(self) -> str:
        little = self.digits < PRECISE
        return f" (of {in_bytes(self.bytes)} only: on other text it may differ much)" if little else ""

    @classmethod
    def from_nats(
        cls,
        split: str,
        nats: float,
        tokens: int,
        text_bytes: int,
        window: int,
        stride: int,
        unknown_share: float = 0.0,
    ) -> "Likelihood":
        loss = nats / tokens
        return cls(
            split=split,
            loss=loss,
            perplexity=math.exp(min(loss, 700.0)),
            bits_per_byte=nats / math.log(2) / max(1, text_bytes),
            tokens=tokens,
            bytes=text_bytes,
            window=window,
            stride=stride,
            unknown_share=unknown_share,
        )


@dataclass(frozen=True)
class TokenLosses:
    """The losses of some tokens of a split."""

    index: np.ndarray  # which tokens, counted from the start of the split
    depth: np.ndarray  # how many tokens the model had seen before each, in its window or stream
    nats: np.ndarray


def evaluate_likelihood(
    model: LanguageModel,
    tokens: Tokens,
    split: str,
    *,
    window: int,
    stride: int | None = None,
    first_bytes: int = 0,
    unknown_share: float = 0.0,
) -> Likelihood:
    """Score a whole split. `first_bytes`: the text bytes of its first token, which nothing predicts;
    `unknown_share`: of its tokens.
    """
    nats = sum(float(part.nats.sum(dtype=np.float64)) for part in score_tokens(model, tokens, window, stride))
    if model.limit is None:
        window = model.stack.span or _stream_length(len(tokens) - 1)
        stride = window if model.stack.span is None else 1
    text_bytes = tokens.bytes - first_bytes
    return Likelihood.from_nats(
        split, nats, len(tokens) - 1, text_bytes, window, stride or window, unknown_share
    )


@torch.no_grad()
def score_tokens(
    model: LanguageModel, tokens: Tokens, window: int, stride: int | None = None
) -> Iterator[TokenLosses]:
    """The loss of every token but the first, each once, in the order of reading."""
    with evaluating(model):
        yield from _streams(model, tokens) if model.limit is None else _windows(model, tokens, window, stride)


def _windows(model: LanguageModel, tokens: Tokens, window: int, stride: int | None) -> Iterator[TokenLosses]:
    stride = stride or window
    predicted = len(tokens) - 1
    scored, read = (BATCH_LOGITS // (n * model.vocab) for n in (stride, window))
    per_batch = max(1, read, min(scored, BATCH_TOKENS // window))
    starts = np.arange(0, predicted, stride)
    begins = np.maximum(0, starts + stride - window)  # the last `stride` targets of a window are the new ones
    for i in range(0, len(starts), per_batch):
        rows = [
            (int(b), int(s), int(min(s + stride, predicted)))
            for b, s in zip(begins[i : i + per_batch], starts[i : i + per_batch], strict=True)
        ]
        sizes = [(end - begin, end - start) for begin, start, end in rows]
        for size in sorted(set(sizes)):  # one, but for the ends of the split
            same = [row for row, its in zip(rows, sizes, strict=True) if its == size]
            ids = np.stack([tokens.read(b, end + 1) for b, _, end in same]).astype(np.int64)
            losses = _losses(model, ids, new=size[1])  # the others were scored by an earlier window
            for row, (begin, start, end) in zip(losses, same, strict=True):
                index = np.arange(start, end) + 1
                yield TokenLosses(index, index - begin, row)


def _stream_length(predicted: int) -> int:
    return math.ceil(predicted / min(MOST_STREAMS, max(1, predicted // STREAM_TOKENS)))


def _streams(model: LanguageModel, tokens: Tokens) -> Iterator[TokenLosses]:
    predicted = len(tokens) - 1
    length = _stream_length(predicted)
    starts = np.arange(0, predicted, length)
    state = model.new_state(len(starts))
    piece = max(1, min(PIECE, BATCH_LOGITS // (len(starts) * model.vocab)))
    for at in range(0, length, piece):
        step = min(piece, length - at)
        rows = np.full((len(starts), step + 1), NOT_SCORED)
        for row, start in zip(rows, starts, strict=True):
            end = min(start + at + step + 1, min(start + length, predicted) + 1)
            ids = tokens.read(int(start) + at, int(end)) if end > start + at else ()
            row[: len(ids)] = ids
        losses = _losses(model, rows, state)
        for row, ids, start in zip(losses, rows, starts, strict=True):
            depth = np.arange(at, at + step)[ids[1:] != NOT_SCORED] + 1
            yield TokenLosses(start + depth, depth, row[ids[1:] != NOT_SCORED])


def _losses(
    model: LanguageModel, ids: np.ndarray, state: object = None, new: int | None = None
) -> np.ndarray:
    """−log p of every id but the first of each row, (B, T), or of the last `new` ones."""
    device = next(model.parameters()).device
    batch = torch.from_numpy(ids).to(device)
    inputs = batch[:, :-1].clamp(min=0)
    targets = batch[:, batch.shape[1] - (new or inputs.shape[1]) :].contiguous()
    losses = model(inputs, state=state, readout=each_loss, readout_args=(targets,))
    return losses.float().cpu().numpy()
