"""Language modelling, and its masked sister: text, shards, likelihood."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from glassformer.config.model import ModelConfig
from glassformer.config.schema import Config, DataConfig, Settings
from glassformer.core.errors import UsageError
from glassformer.data.datasets import open_corpus
from glassformer.data.mixtures import Mix, open_mix
from glassformer.data.shard_writer import Progress
from glassformer.data.shards import (
    Tokens,
    blend,
    dropped,
    open_shards,
    require,
    tokenize,
    tokenizer_fingerprint,
)
from glassformer.data.sources import Corpus
from glassformer.evaluation.accuracy import classification, evaluate_masked, masked_answers
from glassformer.evaluation.error_analysis import Mistakes, text_mistakes
from glassformer.evaluation.likelihood import Likelihood, TokenLosses, evaluate_likelihood, score_tokens
from glassformer.evaluation.result import Result
from glassformer.generation.sampling import Sampler
from glassformer.generation.stream import stream_text
from glassformer.models.build import Encoder, make_language_model
from glassformer.models.model import EncoderModel, LanguageModel
from glassformer.models.ngram import NGram, usual_order
from glassformer.objectives.language import language_modelling
from glassformer.objectives.masked import MaskedModelling
from glassformer.objectives.objective import NOT_SCORED, Objective
from glassformer.tasks.task import Task
from glassformer.tokenizers.tokenizer import END_OF_TEXT, MASK, Tokenizer
from glassformer.tokenizers.vocabulary import Vocabulary

LEAST_TOKENS = 256  # of training text; below this there is nothing to learn
BASELINE_TOKENS = 8_000_000  # of training text that the n-gram model counts at most


class LanguageTask(Task):
    name = "language"
    options = ("stride",)
    source: Corpus

    def __init__(
        self, source: Any, tokenizer: Tokenizer | None, data: DataConfig, progress: Progress = lambda _: None
    ):
        assert tokenizer is not None
        self.source, self.tokenizer = source, tokenizer
        self.parts = source.sources if isinstance(source, Mix) else [source]
        folders: list[Path] = []
        for part in self.parts:
            folders.append(tokenize(part, tokenizer, progress, list(folders) if data.dedup else None))
        self.part_shards = [open_shards(folder) for folder in folders]
        self.dropped = sum(map(dropped, folders)) if data.dedup else None
        self.shards = self.part_shards[0]
        if isinstance(source, Mix):
            for part, shards in zip(self.parts, self.part_shards, strict=True):
                require(shards, "train", 1, part.name)
            self.shards = blend(self.part_shards, source.weights)

    @classmethod
    def open(cls, data: DataConfig) -> Corpus:
        if data.mix:
            return open_mix(data.mix, data.valid, data.test, data.field)
        return open_corpus(data.source, data.valid, data.test, data.field)

    @staticmethod
    def build(config: ModelConfig) -> nn.Module:
        return make_language_model(config)

    @staticmethod
    def texts(source: Corpus, limit: int | None = None) -> Iterator[str]:
        return source.texts(limit=limit)

    def settings(self) -> Settings:
        require(self.shards, "train", LEAST_TOKENS, self.source.name)
        require(self.shards, "valid", 2, self.source.name)
        return {"model": {"vocab": len(self.tokenizer)}}

    def describe(self) -> str:
        less = "" if self.dropped is None else f", {self.dropped:,} duplicates dropped"
        size = self.tokens("train").bytes / 1e6
        return f"{self.source.name}, {size:.2f} MB to train on{less} ({self.source.rule})"

    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "tokenizer_fingerprint": tokenizer_fingerprint(self.tokenizer),
            **self._amounts(self.source, self.shards),
        }
        if self.dropped is not None:
            facts["dropped"] = self.dropped
        if isinstance(self.source, Mix):
            facts["mix"] = [
                {
                    "source": name,
                    "weight": weight,
                    "rule": part.rule,
                    "text_fingerprint": part.fingerprint,
                    **self._amounts(part, shards),
                }
                for (name, weight), part, shards in zip(
                    self.source.settings().items(), self.parts, self.part_shards, strict=True
                )
            ]
        return facts

    @staticmethod
    def _amounts(source: Corpus, shards: dict[str, Tokens]) -> dict[str, Any]:
        return {
            "tokens": {split: len(tokens) for split, tokens in shards.items()},
            "bytes": {s: shards[s].bytes if s in shards else 0 for s in source.splits},
        }

    def tokens(self, split: str, least: int = 2) -> Tokens:
        return require(self.shards, split, least, self.source.name)

    def objective(self, model: nn.Module, config: Config) -> Objective:
        assert isinstance(model, LanguageModel)
        tokens = self.tokens("train", config.model.context + 2)
        return language_modelling(
            model, tokens, config.model.context, config.training.batch, config.training.seed
        )

    def evaluate(
        self, model: nn.Module, config: Config, split: str, *, full: bool = True, **options: Any
    ) -> Result:
        """Options: stride."""
        assert isinstance(model, LanguageModel)
        stride, context = options.get("stride"), config.model.context
        if stride is not None and model.limit is None:
            raise UsageError("stride: a model without a limit of context reads on and on; it has no windows")
        if stride is not None and not 1 <= stride <= context:
            raise UsageError(f"stride {stride}: expected 1 to {context}, the model's context")
        tokens = self.tokens(split)
        return evaluate_likelihood(
            model, tokens, split, window=context, stride=stride, first_bytes=self._first_bytes(tokens)
        )

    def _first_bytes(self, tokens: Tokens) -> int:
        """The bytes of the first token, which nothing predicts; none when it is a mark."""
        first = int(tokens.read(0, 1)[0])
        return 0 if first in self.tokenizer.specials.values() else len(self.tokenizer.token_bytes(first))

    def check(self, config: Config) -> None:
        self.tokens("train", config.model.context + 2)

    def unknown_share(self, split: str) -> float:
        if not isinstance(self.tokenizer, Vocabulary):
            return 0.0
        tokens = self.tokens(split)
        return sum(int((part == self.tokenizer.unknown).sum()) for part in tokens.arrays) / len(tokens)

    def sample(self, model: nn.Module, config: Config) -> str | None:
        """A short text; the same seed each time, so that progress shows."""
        assert isinstance(model, LanguageModel)
        prompt = config.training.sample_prompt
        sampler = Sampler(temperature=0.8, seed=config.training.seed)
        return prompt + "".join(part for (part,) in stream_text(model, self.tokenizer, prompt, 60, sampler))

    def mistakes(self, model: nn.Module, config: Config, split: str, **options: Any) -> Mistakes:
        assert isinstance(model, LanguageModel)
        tokens = self.tokens(split)
        scored = score_tokens(model, tokens, config.model.context, options.get("stride"))
        counts = self._counts() if self.own_data else None
        return text_mistakes(scored, tokens.read(0, len(tokens)), counts, self.tokenizer.decode)

    def _counts(self) -> np.ndarray:
        """How often each id stands in the training text."""
        train = self.shards.get("train")
        parts = [np.bincount(a, minlength=len(self.tokenizer)) for a in (train.arrays if train else [])]
        return np.sum(parts, axis=0) if parts else np.zeros(len(self.tokenizer), int)

    def baselines(self, split: str) -> dict[str, Result]:
        train, held_out = self.tokens("train"), self.tokens(split)
        vocab = len(self.tokenizer)
        order = usual_order(vocab)
        counted = NGram(train.beginning(BASELINE_TOKENS), vocab, order)
        nats = -np.log(counted.probabilities(held_out.read(0, len(held_out)))[1:])
        text_bytes = held_out.bytes - self._first_bytes(held_out)
        result = Likelihood.from_nats(split, float(nats.sum()), len(nats), text_bytes, order, 1)
        return {f"{order}-gram, Kneser-Ney": result}


class MaskedTask(LanguageTask):
    name = "masked"
    specials = (END_OF_TEXT, MASK)
    options = ()

    @staticmethod
    def build(config: ModelConfig) -> nn.Module:
        return Encoder(config, "tokens")

    def check(self, config: Config) -> None:
        for split in ("train", "valid"):
            self.tokens(split, config.model.context + 1)

    def _objective(self, split: str, config: Config, seed: int) -> MaskedModelling:
        mask = self.tokenizer.specials.get(MASK)
        if mask is None:
            raise UsageError(f"this tokenizer has no special token {MASK}: learn one, without tokenizer.file")
        return MaskedModelling(self.tokens(split, config.model.context), config.model.context, seed, mask)

    def objective(self, model: nn.Module, config: Config) -> Objective:
        return self._objective("train", config, config.training.seed)

    def evaluate(
        self, model: nn.Module, config: Config, split: str, *, full: bool = True, **options: Any
    ) -> Result:
        assert isinstance(model, EncoderModel)
        return evaluate_masked(model, self._objective(split, config, seed=0), split)

    def mistakes(self, model: nn.Module, config: Config, split: str, **options: Any) -> Mistakes:
        made = [
            (torch.where(batch["targets"] == NOT_SCORED, batch["inputs"], batch["targets"]).numpy(), found)
            for batch, found in masked_answers(model, self._objective(split, config, seed=0))
        ]
        width = made[0][0].shape[1]
        scored, at = [], 0
        for ids, a in made:
            scored.append(TokenLosses(at + a.rows * width + a.positions, a.positions, a.nats))
            at += ids.size
        flat = np.concatenate([ids.ravel() for ids, _ in made])
        counts = self._counts() if self.own_data else None
        return text_mistakes(scored, flat, counts, self.tokenizer.decode)

    def sample(self, model: nn.Module, config: Config) -> str | None:
        return None

    def baselines(self, split: str) -> dict[str, Result]:
        """Always the most frequent token, with probabilities as frequent as in training."""
        held_out, counts = self.tokens(split), self._counts() + 1
        ids = held_out.read(0, len(held_out)).astype(np.int64)
        nats = -np.log(counts[ids] / counts.sum())
        return {"most frequent token": classification(split, nats, ids == counts.argmax())}
