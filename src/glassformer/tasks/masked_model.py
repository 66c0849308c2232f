"""Masked language modelling: the same text, read from both sides, some of its tokens hidden."""

import re
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.config.model import ModelConfig
from glassformer.config.schema import Config
from glassformer.core.errors import UsageError
from glassformer.evaluation.accuracy import Classification, classification, evaluate_masked, masked_answers
from glassformer.evaluation.error_analysis import Mistakes, text_mistakes
from glassformer.evaluation.likelihood import TokenLosses
from glassformer.evaluation.result import Result
from glassformer.inspection.questions import Question
from glassformer.models.build import Encoder
from glassformer.models.model import EncoderModel, evaluating
from glassformer.objectives.loss import NOT_SCORED, cross_entropy
from glassformer.objectives.masked import MaskedModelling
from glassformer.objectives.objective import Objective
from glassformer.tasks.task import DEFAULTS, EvalOptions, as_ids, refuse_target
from glassformer.tasks.text import TextTask
from glassformer.tokenizers.tokenizer import END_OF_TEXT, MASK

BLANK = re.compile(rf"_{{3,}}|{re.escape(MASK)}")  # in a text: one token that is to be found


@dataclass(frozen=True)
class Filled:
    """A text with blanks, filled in: each by itself, whatever stands in the others."""

    text: str  # with the likeliest token in every blank
    blanks: list[list[tuple[str, float]]]  # for each, the likeliest tokens and their probabilities


class MaskedTask(TextTask):
    name = "masked"
    specials = (END_OF_TEXT, MASK)
    asked = "the word itself, hidden"

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
        self,
        model: nn.Module,
        config: Config,
        split: str,
        options: EvalOptions = DEFAULTS,
        *,
        full: bool = True,
    ) -> Classification:
        assert isinstance(model, EncoderModel)
        result = evaluate_masked(model, self._objective(split, config, seed=0), split)
        return replace(result, unknown_share=self.unknown_share(split))

    def mistakes(
        self,
        model: nn.Module,
        config: Config,
        split: str,
        options: EvalOptions = DEFAULTS,
    ) -> Mistakes:
        batches = [
            (torch.where(batch["targets"] == NOT_SCORED, batch["inputs"], batch["targets"]).numpy(), answers)
            for batch, answers in masked_answers(model, self._objective(split, config, seed=0))
        ]
        width = batches[0][0].shape[1]
        losses, offset = [], 0
        for ids, answer in batches:
            losses.append(
                TokenLosses(offset + answer.rows * width + answer.positions, answer.positions, answer.nats)
            )
            offset += ids.size
        flat = np.concatenate([ids.ravel() for ids, _ in batches])
        counts = self._counts() if self.own_data else None
        return text_mistakes(losses, flat, counts, self.tokenizer.decode)

    def baselines(self, split: str) -> dict[str, Result]:
        """Always the most frequent token, with probabilities as frequent as in training."""
        held_out, counts = self.tokens(split), self._counts() + 1
        ids = held_out.read(0, len(held_out)).astype(np.int64)
        nats = -np.log(counts[ids] / counts.sum())
        return {"most frequent token": classification(split, nats, ids == counts.argmax())}

    @classmethod
    def next_command(cls, run: str, config: Config) -> str:
        return (
            f'Use it: glassformer fill {run} "your ___ words"\n'
            f"Build on it: glassformer train DATA --task classify --init {run}"
        )

    def inputs(
        self, model: nn.Module, config: Config, text: str, target: str | None = None
    ) -> tuple[Tensor, ...]:
        refuse_target(self, target)
        return (as_ids(self._with_blanks(text)),)

    def focus(self, inputs: tuple[Tensor, ...]) -> int:
        """The first blank."""
        blanks = (inputs[0][0] == self.tokenizer.specials.get(MASK, -1)).nonzero()
        return int(blanks[0]) if len(blanks) else -1

    def question(self, ids: list[int], word: list[int]) -> Question | None:
        mask = self.tokenizer.specials.get(MASK)
        if mask is None:
            return None
        hidden = [mask if t in word else i for t, i in enumerate(ids)]
        return Question(hidden, word, [ids[t] for t in word])

    @torch.no_grad()
    def fill(self, model: nn.Module, config: Config, text: str, k: int = 5) -> Filled:
        """The likeliest tokens for each blank of a text."""
        ids = as_ids(self._with_blanks(text)).to(next(model.parameters()).device)
        blanks = (ids[0] == self.tokenizer.specials[MASK]).nonzero()[:, 0]
        if not len(blanks):
            raise UsageError(f"nothing to fill in: mark the blank with ___ or {MASK}")
        if config.model.family == "transformer" and ids.shape[1] > config.model.context:
            raise UsageError(
                f"{ids.shape[1]} tokens are more than the model's context of {config.model.context}: give a "
                "shorter text"
            )
        with evaluating(model):
            probabilities = model(ids)[0, blanks].float().softmax(-1)  # (blanks, V)
        probabilities[:, list(self.tokenizer.specials.values())] = 0.0  # they are no text
        best = probabilities.topk(min(k, probabilities.shape[-1]))
        ids[0, blanks] = best.indices[:, 0]
        each = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return Filled(
            self.tokenizer.decode(ids[0].tolist(), specials=False),
            [[(self.token_name(i), p) for i, p in zip(*pair, strict=True)] for pair in each],
        )

    def _with_blanks(self, text: str) -> list[int]:
        """The ids of a text, the mask where it has blanks.

        Where a tokenizer puts a space into the word behind it, the space before a blank is the blank's.
        """
        tokenizer = self.tokenizer
        if BLANK.search(text) and MASK not in tokenizer.specials:
            raise UsageError(f"this tokenizer has no special token {MASK}, so there can be no blanks")
        ids = [] if tokenizer.eot_id is None else [tokenizer.eot_id]
        joined = any(entry.startswith(b" ") and len(entry) > 1 for entry in tokenizer.entries)
        parts = BLANK.split(text)
        for i, part in enumerate(parts):
            last = i == len(parts) - 1
            if joined and not last:
                part = part.removesuffix(" ")
            ids += tokenizer.encode(part) + ([] if last else [tokenizer.specials[MASK]])
        if not ids:
            raise UsageError("this tokenizer has no end-of-text mark to start from: give a text")
        return ids

    def _log_probability(self, model: nn.Module, ids: Tensor, places: Tensor) -> float:
        """Of the tokens at some places of ids (1, T), each when it is hidden."""
        hidden = ids.repeat(len(places), 1)
        rows = torch.arange(len(places), device=ids.device)
        hidden[rows, places] = self.tokenizer.specials[MASK]
        return -float(cross_entropy(model(hidden)[rows, places], ids[0, places]))
