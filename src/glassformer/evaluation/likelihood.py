"""How well a language model predicts text: full-split loss, perplexity and bits per byte.

Every token of a split is predicted once. The model sees windows of `window` tokens, each moved on by
`stride`; with a stride shorter than the window, a window scores only the tokens that the one before it did
not reach, so each has at least window − stride tokens before it. Perplexity depends on window, stride and
tokenizer, and is comparable only where these agree; bits per byte divides by the bytes of the text and is
comparable across tokenizers that lose nothing (one with an unknown word explains every such word for free).

Letters: B batch, T positions, V vocabulary.
"""

import math
from dataclasses import asdict, dataclass

import numpy as np
import torch

from glassformer.models.model import LanguageModel
from glassformer.tasks.language import next_token_loss
from glassformer.text.shards import Tokens

BATCH_LOGITS = 1 << 25  # scores held at once: 128 MB


@dataclass(frozen=True)
class Likelihood:
    split: str
    loss: float  # nats per token
    perplexity: float
    bits_per_byte: float
    tokens: int  # predicted
    bytes: int  # of text that they stand for
    window: int
    stride: int

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


@torch.no_grad()
def evaluate_likelihood(
    model: LanguageModel,
    tokens: Tokens,
    split: str,
    *,
    window: int,
    stride: int | None = None,
    first_bytes: int = 0,
) -> Likelihood:
    """Score a whole split. `first_bytes`: the text bytes of its first token, which nothing predicts."""
    stride = stride or window
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    predicted = len(tokens) - 1
    nats = 0.0
    per_batch = max(1, BATCH_LOGITS // (window * model.vocab))
    starts = np.arange(0, predicted, stride)
    begins = np.maximum(0, starts + stride - window)  # the last `stride` targets of a window are the new ones
    for i in range(0, len(starts), per_batch):
        rows = [
            (int(b), int(s), int(min(s + stride, predicted)))
            for b, s in zip(begins[i : i + per_batch], starts[i : i + per_batch], strict=True)
        ]
        for length in sorted({end - begin for begin, _, end in rows}):  # one, but for the ends of the split
            same = [r for r in rows if r[2] - r[0] == length]
            ids = torch.from_numpy(
                np.stack([tokens.read(b, end + 1) for b, _, end in same]).astype(np.int64)
            ).to(device)
            logits = model(ids[:, :-1])
            for row, (begin, start, _) in enumerate(same):
                if start - begin:
                    ids[row, 1 : start - begin + 1] = -100  # scored by an earlier window
            nats += next_token_loss(logits, ids[:, 1:]).item()
    model.train(training)
    loss = nats / predicted
    text_bytes = tokens.bytes - first_bytes
    return Likelihood(
        split=split,
        loss=loss,
        perplexity=math.exp(min(loss, 700.0)),
        bits_per_byte=nats / math.log(2) / max(1, text_bytes),
        tokens=predicted,
        bytes=text_bytes,
        window=window,
        stride=stride,
    )
