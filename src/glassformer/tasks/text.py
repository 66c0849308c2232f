"""What the tasks on plain text share: a corpus, its shards, and sentences scored against each other."""

from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.config.data import DataConfig
from glassformer.config.schema import Config
from glassformer.config.section import Settings
from glassformer.core.errors import DataError
from glassformer.core.files import in_bytes
from glassformer.data.characters import MOST_BYTES, characters_of
from glassformer.data.datasets import open_corpus
from glassformer.data.differences import Difficulty, difficulties, unlike
from glassformer.data.mixtures import Mix, open_mix
from glassformer.data.overlap import RUN_BYTES, shared_with_train
from glassformer.data.shard_writer import Progress
from glassformer.data.shards import (
    Say,
    Tokens,
    blend,
    dropped,
    open_shards,
    require,
    tokenize,
    tokenizer_fingerprint,
)
from glassformer.data.sources import Corpus
from glassformer.generation.stream import prompt_ids
from glassformer.tasks.task import Task, TextAmount, as_ids, refuse_target
from glassformer.tokenizers.tokenizer import Tokenizer
from glassformer.tokenizers.vocabulary import Vocabulary

MUCH_OVERLAP = 0.1  # from which on a measurement says little about new text
LEAST_TOKENS = 256  # of training text; below this there is nothing to learn


class TextTask(Task):
    source: Corpus

    def __init__(
        self,
        source: Corpus | None,
        tokenizer: Tokenizer | None,
        data: DataConfig,
        progress: Progress = lambda _: None,
        say: Say = lambda _: None,
        source_tokenizer: Tokenizer | None = None,
    ):
        assert tokenizer is not None and source_tokenizer is None
        self._tokenizer = tokenizer
        self._unknown_shares: dict[str, float] = {}
        if source is None:
            return
        self.source = source
        self.parts = source.sources if isinstance(source, Mix) else [source]
        folders: list[Path] = []
        self.part_shards: list[dict[str, Tokens]] = []
        for part in self.parts:
            make = partial(tokenize, part, tokenizer, progress, list(folders) if data.dedup else None, say)
            folders.append(make())
            self.part_shards.append(open_shards(folders[-1], partial(make, thorough=True)))
        self.dropped = sum(map(dropped, folders)) if data.dedup else None
        self.shards = self.part_shards[0]
        if isinstance(source, Mix):
            for part, shards in zip(self.parts, self.part_shards, strict=True):
                require(shards, "train", 1, part.name)
            self.shards = blend(self.part_shards, source.weights)

    @classmethod
    def open(cls, data: DataConfig) -> Corpus:
        if data.mix:
            return open_mix(data.mix, data.valid, data.test, data.field, data.split, data.newlines)
        return open_corpus(data.source, data.valid, data.test, data.field, data.split, data.newlines)

    @staticmethod
    def texts(source: Corpus, limit: int | None = None) -> Iterator[str]:
        return source.texts(limit=limit)

    def settings(self) -> Settings:
        held_out = self.shards.get("valid")
        count = len(self.shards.get("train", ()))
        if self.shards and count < LEAST_TOKENS:
            raise DataError(
                f"{self.source.name}: {count} tokens to train on, and at least {LEAST_TOKENS} are needed, "
                "some thousand to learn anything. Give more text."
            )
        if self.shards and (held_out is None or len(held_out) < 2):
            raise DataError(
                f"{self.source.name}: with {count} tokens to train on nothing was left to validate on. Give "
                "more text, some KB at least, or hold out a larger share: --set data.valid=0.2"
            )
        require(self.shards, "train", LEAST_TOKENS, self.source.name)
        require(self.shards, "valid", 2, self.source.name)
        return {"model": {"vocab": len(self.tokenizer)}}

    def amount(self) -> TextAmount:
        return TextAmount(len(self.tokens("train")), len(self.tokens("valid")))

    def describe(self) -> str:
        less = "" if self.dropped is None else f", {self.dropped:,} duplicates dropped"
        size = in_bytes(self.tokens("train").bytes)
        return f"{self.source.name}, {size} to train on{less} ({self.source.rule})"

    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "tokenizer_fingerprint": tokenizer_fingerprint(self.tokenizer),
            **self._amounts(self.source, self.shards),
        }
        if self.dropped is not None:
            facts["dropped"] = self.dropped
        if self.source.skipped:
            facts["skipped"] = self.source.skipped
        if self.tokens("train").bytes <= MOST_BYTES and not self.source.is_remote:
            facts["characters"] = characters_of(self.source.texts("train"))
        if self.overlap:
            facts["overlap"] = {"run_bytes": RUN_BYTES, **self.overlap}
        if self.difficulties:
            facts["byte_pair_bits"] = {name: round(d.bits, 4) for name, d in self.difficulties.items()}
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

    @cached_property
    def overlap(self) -> dict[str, float]:
        """How much of validation and test is in the training text too."""
        unknown = self.tokenizer.unknown if isinstance(self.tokenizer, Vocabulary) else None
        return shared_with_train(self.shards, unknown)

    @cached_property
    def difficulties(self) -> dict[str, Difficulty]:
        """What the same simple model needs for each split."""
        return difficulties(self.shards, self.tokenizer)

    def report(self) -> list[str]:
        lines: list[str] = []
        if self.overlap:
            shares = " and ".join(f"{100 * share:.1f} % of {name}" for name, share in self.overlap.items())
            much = max(self.overlap.values()) >= MUCH_OVERLAP
            lines.append(
                f"{'Warning' if much else 'Held out'}: {shares} is in the training text too, in runs of "
                f"{RUN_BYTES} bytes" + ("; figures will be better than on new text." if much else ".")
            )
        if unlike(self.difficulties):
            each = ", ".join(f"{name} {d.bits:.2f}" for name, d in self.difficulties.items())
            lines.append(
                "Warning: the splits are of different kinds, so a figure for one says little of another: "
                f"in bits per byte, by a model of the byte pairs of train, {each}."
            )
        return lines + [f"Warning: {text}." for text in self.unknown_warning("valid")]

    @staticmethod
    def _amounts(source: Corpus, shards: dict[str, Tokens]) -> dict[str, Any]:
        return {
            "tokens": {s: len(shards[s]) if s in shards else 0 for s in source.splits},
            "bytes": {s: shards[s].bytes if s in shards else 0 for s in source.splits},
        }

    def tokens(self, split: str, least: int = 2) -> Tokens:
        return require(self.shards, split, least, self.source.name)

    def _first_bytes(self, tokens: Tokens) -> int:
        """The bytes of the first token, which nothing predicts; none when it is a mark."""
        first = int(tokens.read(0, 1)[0])
        return 0 if first in self.tokenizer.specials.values() else len(self.tokenizer.token_bytes(first))

    def unknown_share(self, split: str) -> float:
        if split not in self._unknown_shares:
            self._unknown_shares[split] = self._count_unknown(split)
        return self._unknown_shares[split]

    def _count_unknown(self, split: str) -> float:
        if not isinstance(self.tokenizer, Vocabulary):
            return 0.0
        tokens = self.tokens(split)
        return sum(int((ids == self.tokenizer.unknown).sum()) for ids in tokens.pieces()) / len(tokens)

    def _counts(self) -> np.ndarray:
        """How often each id stands in the training text."""
        train = self.shards.get("train")
        counts = np.zeros(len(self.tokenizer), int)
        for ids in train.pieces() if train else ():
            counts += np.bincount(ids, minlength=len(self.tokenizer))
        return counts

    def inputs(
        self, model: nn.Module, config: Config, text: str, target: str | None = None
    ) -> tuple[Tensor, ...]:
        refuse_target(self, target)
        return (as_ids(prompt_ids(self.tokenizer, text)),)

    @torch.no_grad()
    def preference(self, model: nn.Module, config: Config, first: str, second: str) -> float:
        """Of the log-probabilities of the tokens that both sentences share, in nats.

        The word that differs is not scored: it may be rarer, or longer, which says nothing of the rest.
        """
        mark = [] if self.tokenizer.eot_id is None else [self.tokenizer.eot_id]
        both = [mark + self.tokenizer.encode(text) for text in (first, second)]
        shortest = min(len(ids) for ids in both)
        same = [a == b for a, b in zip(*both, strict=False)]
        ahead = same.index(False) if False in same else shortest
        back = [a == b for a, b in zip(*(ids[::-1] for ids in both), strict=False)]
        behind = min(back.index(False) if False in back else shortest, shortest - ahead)
        one, other = (self._shared(model, config, ids, ahead, behind) for ids in both)
        return one - other

    def _shared(self, model: nn.Module, config: Config, tokens: list[int], ahead: int, behind: int) -> float:
        """The log-probability of the first `ahead` and the last `behind` tokens of a sentence."""
        ids = as_ids(tokens).to(next(model.parameters()).device)[:, -config.model.context :]
        T = ids.shape[1]
        places = [t for t in range(1, T) if t < ahead or t >= T - behind]
        if not places:
            return 0.0
        return self._log_probability(model, ids, torch.tensor(places, device=ids.device))

    @property
    def tokenizer(self) -> Tokenizer:
        return self._tokenizer

    @abstractmethod
    def _log_probability(self, model: nn.Module, ids: Tensor, places: Tensor) -> float:
        """Of the tokens at some places of ids (1, T), in nats."""
