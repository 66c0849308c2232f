"""A run directory: what everything after training opens.

    config.yaml         every setting, resolved
    tokenizer.json      in the Hugging Face format
    model.safetensors   the best weights by validation
    metrics.jsonl       the record of training, one JSON object per line
    data.json           which text it was trained on: fingerprints, splits, sizes
    result.json         how it ended
    checkpoints/        what resuming needs
    loss.svg, loss.png  the loss curve

All of it is data; nothing in it is ever executed.
"""

import json
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from glassformer.config import Config
from glassformer.errors import RunError, UsageError
from glassformer.evaluation.likelihood import Likelihood, evaluate_likelihood
from glassformer.generation.sampling import Sampler
from glassformer.generation.stream import stream_text
from glassformer.models.transformer import Decoder
from glassformer.settings import load_config
from glassformer.text.datasets import open_corpus
from glassformer.text.load import load_tokenizer
from glassformer.text.shards import Tokens, open_shards, require, tokenize
from glassformer.text.tokenizer import UNKNOWN, Tokenizer, Vocabulary
from glassformer.training.checkpoint import load_weights
from glassformer.training.device import choose_device

Warn = Callable[[str], None]


class Run:
    """A trained model with its tokenizer and its settings."""

    def __init__(self, path: str | Path, device: str = "auto"):
        self.path = Path(path)
        if not (self.path / "config.yaml").is_file():
            what = "has no config.yaml, so it is no run directory" if self.path.is_dir() else "does not exist"
            raise RunError(f"{self.path} {what}. Train one: glassformer train TEXT --out {self.path}")
        self.config: Config = load_config(self.path / "config.yaml")
        self.device = choose_device(device)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return load_tokenizer(self.path / "tokenizer.json")

    @cached_property
    def model(self) -> Decoder:
        """The best model of the run, ready to use."""
        weights = self.path / "model.safetensors"
        if not weights.is_file():
            raise RunError(
                f"{self.path} has no model.safetensors yet: training was stopped before its first "
                "evaluation. Go on with --resume."
            )
        if self.config.model.vocab != len(self.tokenizer):
            raise RunError(
                f"{self.path}: the model's vocabulary is {self.config.model.vocab}, "
                f"the tokenizer's {len(self.tokenizer)}; they are not of one run."
            )
        model = Decoder(self.config.model)
        load_weights(model, weights)
        return model.to(self.device).eval()

    @cached_property
    def data(self) -> dict[str, Any]:
        """What is known of the text it was trained on."""
        path = self.path / "data.json"
        try:
            return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
        except (ValueError, TypeError):
            raise RunError(f"{path} is damaged: expected a JSON object.") from None

    def evaluate(
        self,
        split: str = "valid",
        data: str | None = None,
        stride: int | None = None,
        warn: Warn = lambda _: None,
    ) -> Likelihood:
        """Loss, perplexity and bits per byte on a whole split.

        `data` is any SOURCE; a file or folder named here is scored whole, whatever the split.
        """
        context = self.config.model.context
        if stride is not None and not 1 <= stride <= context:
            raise UsageError(f"stride {stride}: expected 1 to {context}, the model's context")
        tokens, split = self._tokens(split, data, warn)
        first = int(tokens.read(0, 1)[0])
        first_bytes = (
            0 if first in self.tokenizer.specials.values() else len(self.tokenizer.token_bytes(first))
        )
        return evaluate_likelihood(
            self.model, tokens, split, window=context, stride=stride, first_bytes=first_bytes
        )

    def _tokens(self, split: str, data: str | None, warn: Warn) -> tuple[Tokens, str]:
        settings = self.config.data
        corpus = open_corpus(data or settings.source, settings.valid, settings.test)
        for warning in corpus.warnings:
            warn(warning)
        trained_on = self.data.get("text_fingerprint")
        if data is None and trained_on not in (None, corpus.fingerprint):
            warn(f"{settings.source} has changed since this run was trained on it; the splits may differ")
        if data is not None and corpus.path is not None:
            corpus = corpus.whole()
            split = "all"
        splits = open_shards(tokenize(corpus, self.tokenizer))
        tokens = require(splits, split, 2, data or settings.source)
        if isinstance(self.tokenizer, Vocabulary):
            unknown = sum(int((part == self.tokenizer.unknown).sum()) for part in tokens.arrays)
            if unknown:
                warn(
                    f"{unknown / len(tokens):.2%} of the tokens are {UNKNOWN}, which says less than the text "
                    "it stands for: bits per byte is not comparable with that of a lossless tokenizer"
                )
        return tokens, split

    def stream(
        self, prompt: str = "", tokens: int = 200, *, sampler: Sampler | None = None, **options: Any
    ) -> Iterator[list[str]]:
        """Like `generate`, but yields the new text of each sequence after every token.

        Options: n, stop, cached (see `stream_text`).
        """
        return stream_text(self.model, self.tokenizer, prompt, tokens, sampler or Sampler(), **options)

    def generate(self, prompt: str = "", tokens: int = 200, *, n: int = 1, **options: Any) -> list[str]:
        """`n` continuations of a prompt, without the prompt.

        Options: temperature, top_k, top_p, min_p, seed (see `Sampler`), stop, cached.
        """
        own = {k: options.pop(k) for k in ("stop", "cached") if k in options}
        texts = [""] * n
        for parts in self.stream(prompt, tokens, n=n, sampler=Sampler(**options), **own):
            texts = [text + part for text, part in zip(texts, parts, strict=True)]
        return texts


def load(path: str | Path, device: str = "auto") -> Run:
    """Open a run directory."""
    return Run(path, device)
