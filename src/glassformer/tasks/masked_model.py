"""Masked language modelling: the same text, read from both sides, some of its tokens hidden."""

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
from glassformer.models.build import Encoder
from glassformer.models.model import EncoderModel
from glassformer.objectives.masked import MaskedModelling
from glassformer.objectives.objective import NOT_SCORED, Objective, cross_entropy
from glassformer.tasks.task import DEFAULTS, EvalOptions
from glassformer.tasks.text import TextTask
from glassformer.tokenizers.tokenizer import END_OF_TEXT, MASK


class MaskedTask(TextTask):
    name = "masked"
    specials = (END_OF_TEXT, MASK)

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
        return evaluate_masked(model, self._objective(split, config, seed=0), split)

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
    def next_command(cls, run: str) -> str:
        return f"Build on it: glassformer train DATA --task classify --init {run}"

    def _log_probability(self, model: nn.Module, ids: Tensor, places: Tensor) -> float:
        """Of the tokens at some places of ids (1, T), each when it is hidden."""
        hidden = ids.repeat(len(places), 1)
        rows = torch.arange(len(places), device=ids.device)
        hidden[rows, places] = self.tokenizer.specials[MASK]
        return -float(cross_entropy(model(hidden)[rows, places], ids[0, places]))
