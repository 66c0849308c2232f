"""Translation: sentence pairs, one vocabulary for both sides or one for each, beam search, BLEU."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from glassformer.config.data import DataConfig
from glassformer.config.model import ModelConfig
from glassformer.config.schema import Config
from glassformer.config.section import Settings
from glassformer.data.examples import Example, Examples
from glassformer.data.shard_writer import Progress
from glassformer.data.shards import Say, tokenizer_fingerprint
from glassformer.evaluation.bleu import (
    Translation,
    corpus_bleu,
    evaluate_translation,
    sentence_scores,
)
from glassformer.evaluation.error_analysis import Mistakes, translation_mistakes
from glassformer.evaluation.result import Result
from glassformer.generation.beam import Hypothesis
from glassformer.generation.limits import BEAMS, LENGTH_PENALTY
from glassformer.generation.sampling import Sampler
from glassformer.generation.seq2seq import translate_ids
from glassformer.models.build import EncoderDecoder
from glassformer.models.model import EncoderDecoderModel
from glassformer.objectives.objective import Objective
from glassformer.objectives.translation import Translating
from glassformer.tasks.examples import ExamplesTask, mark_of
from glassformer.tasks.task import DEFAULTS, EvalOptions, Sizing, as_ids
from glassformer.tokenizers.tokenizer import Tokenizer
from glassformer.tokenizers.vocabulary import Vocabulary

MANY_PAIRS = 8000  # from which on a wider model pays
WORD, ALPHABET = 32, 256  # characters of a word at most, and different ones of what is spelled


class TranslateTask(ExamplesTask):
    name = "translate"
    understands = ("beams", "length_penalty", "progress")
    unknown_means = "and what they stand for is lost: it cannot be read, nor written"

    def __init__(
        self,
        source: Examples | None,
        tokenizer: Tokenizer | None,
        data: DataConfig,
        progress: Progress = lambda _: None,
        say: Say = lambda _: None,
        source_tokenizer: Tokenizer | None = None,
    ):
        super().__init__(source, tokenizer, data, progress, say)
        self.has_own_source = source_tokenizer is not None  # a vocabulary for each side
        self.source_tokenizer = self.text_tokenizer if source_tokenizer is None else source_tokenizer

    @staticmethod
    def build(config: ModelConfig) -> nn.Module:
        return EncoderDecoder(config)

    @staticmethod
    def texts(source: Examples, limit: int | None = None) -> Iterator[str]:
        """Both sides: one vocabulary for two languages (joint BPE)."""
        return (f"{side}\n" for pair in source.require("train") for side in pair)

    @staticmethod
    def side_texts(source: Examples, side: int) -> Iterator[str]:
        """One side alone, for a vocabulary of its own: 0 what is read, 1 what is written."""
        return (f"{pair[side]}\n" for pair in source.require("train"))

    def _labels(self) -> list[str]:
        return []

    def learned_with(self) -> Sizing:
        """A small model for few pairs. What is spelled has one right answer, which smoothing would blur."""
        pairs = len(self.source.require("train"))
        shape: Settings = {"layers": 2, "width": 192 if pairs >= MANY_PAIRS else 128, "shift": "layers"}
        rest: Settings = {"label_smoothing": 0.1}
        minutes = 3.0
        if self.of_single_words(self.source):
            shape, rest, minutes = {"layers": 2, "width": 128}, {}, 1.0
        both: Settings = {"dropout": 0.1, "tied": True}
        return Sizing(
            {"family": "transformer", **shape, **both},
            {"layers": 1, "width": 256, **both},
            rest,
            on_gpu={"layers": 3, "width": 256},
            minutes=minutes,
            epochs=20,
            least_steps=600,
        )

    def encode(self, example: Example) -> tuple[np.ndarray, np.ndarray]:
        source, target = example
        return self.source_ids(source), np.array(self.ids(target), np.int64)

    def source_ids(self, text: str) -> np.ndarray:
        return np.array(self.ids(text, self.source_tokenizer), np.int64)

    @property
    def source_eot_id(self) -> int:
        return mark_of(self.source_tokenizer)

    def settings(self) -> Settings:
        settings = super().settings()
        settings["model"]["source_vocab"] = len(self.source_tokenizer) if self.has_own_source else 0
        return settings

    def facts(self) -> dict[str, Any]:
        if not self.has_own_source:
            return super().facts()
        return {
            "source_tokenizer_fingerprint": tokenizer_fingerprint(self.source_tokenizer),
            **super().facts(),
        }

    def unknown_share(self, split: str) -> float:
        """Of both sides together."""
        unknown = tokens = 0
        for side, tokenizer in enumerate((self.source_tokenizer, self.tokenizer)):
            ids = np.concatenate([example[side] for example in self.encoded(split, 1 << 30)])
            tokens += len(ids)
            if isinstance(tokenizer, Vocabulary):
                unknown += int((ids == tokenizer.unknown).sum())
        return unknown / max(1, tokens)

    def report(self) -> list[str]:
        return [f"Warning: {text}." for text in self.unknown_warning("valid")]

    def _objective(self, split: str, context: int, **options: Any) -> Translating:
        sources, targets = zip(*self.encoded(split, context - 1), strict=True)  # the mark needs a place too
        return Translating(sources, targets, self.eot_id, source_eot_id=self.source_eot_id, **options)

    def objective(self, model: nn.Module, config: Config) -> Objective:
        t = config.training
        recut = self.recut(t.merge_dropout, config.model.context - 1)
        options = {"batch": t.batch, "seed": t.seed, "token_dropout": t.token_dropout, "recut": recut}
        return self._objective("train", config.model.context, consistency=t.consistency, **options)

    def evaluate(
        self,
        model: nn.Module,
        config: Config,
        split: str,
        options: EvalOptions = DEFAULTS,
        *,
        full: bool = True,
    ) -> Translation:
        assert isinstance(model, EncoderDecoderModel)
        objective = self._objective(split, config.model.context)
        examples = self.source.require(split)

        def translate() -> list[str]:
            translations = self.translate(
                model, config, [source for source, _ in examples], **_search(options)
            )
            return [text for ((text, _), *_) in translations]

        references = [target for _, target in examples]
        result = evaluate_translation(model, objective, split, references, translate if full else None)
        return replace(result, unknown_share=self.unknown_share(split))

    def translate(
        self,
        model: EncoderDecoderModel,
        config: Config,
        texts: list[str],
        *,
        beams: int = BEAMS,
        length_penalty: float = LENGTH_PENALTY,
        samplers: Sequence[Sampler] | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> list[list[tuple[str, Hypothesis]]]:
        """For each text its translations, best first; with `samplers`, one each, the one that is drawn."""
        hypotheses = translate_ids(
            model,
            [self.source_ids(text)[: config.model.context - 1] for text in texts],
            self.eot_id,
            source_eot_id=self.source_eot_id,
            beams=beams,
            length_penalty=length_penalty,
            samplers=samplers,
            progress=progress,
        )
        return [[(self.text_tokenizer.decode(h.ids, specials=False), h) for h in best] for best in hypotheses]

    def mistakes(
        self,
        model: nn.Module,
        config: Config,
        split: str,
        options: EvalOptions = DEFAULTS,
    ) -> Mistakes:
        assert isinstance(model, EncoderDecoderModel)
        sources, references = zip(*self.source.require(split), strict=True)
        translations = [
            best[0][0] for best in self.translate(model, config, list(sources), **_search(options))
        ]
        return translation_mistakes(
            sources, references, translations, sentence_scores(translations, references)
        )

    def sample(self, model: nn.Module, config: Config) -> str | None:
        assert isinstance(model, EncoderDecoderModel)
        sources = [source for source, _ in self.source.require("valid")[:3]]
        translations = self.translate(model, config, sources, beams=1)
        return "\n".join(f"{s} → {best[0][0]}" for s, best in zip(sources, translations, strict=True))

    def baselines(self, split: str) -> dict[str, Result]:
        """The source as it is: what is the same in both languages."""
        examples = self.source.require(split)
        bleu, signature = corpus_bleu(*zip(*examples, strict=True))
        same = sum(a == b for a, b in examples) / len(examples)
        nothing = float("nan")
        return {
            "the source itself": Translation(split, nothing, nothing, 0, bleu, signature, same, len(examples))
        }

    @staticmethod
    def of_single_words(source: Examples) -> bool:
        """One side of nearly all pairs: a spelling, a date. Scripts without blanks have more letters."""
        pairs = source.require("train")
        sides = [[pair[side] for pair in pairs] for side in (0, 1)]
        letters = len(set().union(*(set(text) for side in sides for text in side)))
        spelled = (sum(" " in t or len(t) > WORD for t in side) < len(side) / 10 for side in sides)
        return letters <= ALPHABET and any(spelled)

    def inputs(
        self, model: nn.Module, config: Config, text: str, target: str | None = None
    ) -> tuple[Tensor, ...]:
        """Source and target; the model's own translation where none is given."""
        assert isinstance(model, EncoderDecoderModel)
        source = [*self.source_ids(text), self.source_eot_id]
        if target is not None:
            return as_ids(source), as_ids([self.eot_id, *self.ids(target)])
        own = self.translate(model, config, [text])[0][0][0] if text.strip() else ""
        return as_ids(source), as_ids([self.eot_id, *self.ids(own)][: config.model.context])

    def input_tokenizers(self) -> list[Tokenizer]:
        return [self.source_tokenizer, self.text_tokenizer]


def _search(options: EvalOptions) -> dict[str, Any]:
    """What of the options the search is told."""
    return {name: getattr(options, name) for name in options.given() if name in TranslateTask.understands}
