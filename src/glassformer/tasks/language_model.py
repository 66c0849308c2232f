"""Language modelling: text, shards, likelihood, generation."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.config.model import ModelConfig
from glassformer.config.schema import Config
from glassformer.core.errors import UsageError
from glassformer.evaluation.error_analysis import Mistakes, text_mistakes
from glassformer.evaluation.likelihood import Likelihood, evaluate_likelihood, score_tokens
from glassformer.evaluation.result import Result
from glassformer.generation.make import make_engine
from glassformer.generation.request import Request
from glassformer.generation.sampling import Sampler
from glassformer.generation.stream import stream_text
from glassformer.inspection.edits import Edit, edited
from glassformer.inspection.questions import Question
from glassformer.inspection.trace import check_edits
from glassformer.models.build import make_language_model
from glassformer.models.model import LanguageModel
from glassformer.models.ngram import NGram, usual_order
from glassformer.objectives.language import language_modelling
from glassformer.objectives.loss import cross_entropy
from glassformer.objectives.objective import Objective
from glassformer.tasks.task import DEFAULTS, EvalOptions
from glassformer.tasks.text import TextTask

BASELINE_TOKENS = 8_000_000  # of training text that the n-gram model counts at most


class LanguageTask(TextTask):
    name = "language"
    understands = ("stride",)
    writes = True
    asked = "the token after it"

    @staticmethod
    def build(config: ModelConfig) -> nn.Module:
        return make_language_model(config)

    def objective(self, model: nn.Module, config: Config) -> Objective:
        assert isinstance(model, LanguageModel)
        tokens = self.tokens("train", config.model.context + 2)
        t = config.training
        penalties = t.activation_penalty, t.change_penalty
        objective = language_modelling(model, tokens, config.model.context, t.batch, t.seed, penalties)
        # Bits per byte would say less than they seem to, or more than a text costs.
        if self.unknown_share("train") or any(penalties):
            objective.bytes_per_target = None
        return objective

    def evaluate(
        self,
        model: nn.Module,
        config: Config,
        split: str,
        options: EvalOptions = DEFAULTS,
        *,
        full: bool = True,
    ) -> Likelihood:
        assert isinstance(model, LanguageModel)
        stride, context = options.stride, config.model.context
        if stride is not None and model.limit is None:
            raise UsageError("stride: a model without a limit of context reads on and on; it has no windows")
        if stride is not None and not 1 <= stride <= context:
            raise UsageError(f"stride {stride}: expected 1 to {context}, the model's context")
        tokens = self.tokens(split)
        return evaluate_likelihood(
            model,
            tokens,
            split,
            window=context,
            stride=stride,
            first_bytes=self._first_bytes(tokens),
            unknown_share=self.unknown_share(split),
        )

    def check(self, config: Config) -> None:
        self.tokens("train", config.model.context + 2)

    def sample(self, model: nn.Module, config: Config) -> str | None:
        """A short text; the same seed each time, so that progress shows."""
        assert isinstance(model, LanguageModel)
        prompt = config.training.sample_prompt
        sampler = Sampler(temperature=0.8, seed=config.training.seed)
        parts = stream_text(make_engine(model, tokens=60), self.tokenizer, prompt, 60, sampler)
        return prompt + "".join(part for (part,) in parts)

    def mistakes(
        self,
        model: nn.Module,
        config: Config,
        split: str,
        options: EvalOptions = DEFAULTS,
    ) -> Mistakes:
        assert isinstance(model, LanguageModel)
        tokens = self.tokens(split)
        losses = score_tokens(model, tokens, config.model.context, options.stride)
        counts = self._counts() if self.own_data else None
        return text_mistakes(losses, tokens.read(0, len(tokens)), counts, self.tokenizer.decode)

    def baselines(self, split: str) -> dict[str, Result]:
        train, held_out = self.tokens("train"), self.tokens(split)
        vocab = len(self.tokenizer)
        order = usual_order(vocab)
        ngram = NGram(train.beginning(BASELINE_TOKENS), vocab, order)
        nats = -np.log(ngram.probabilities(held_out.read(0, len(held_out)))[1:])
        text_bytes = held_out.bytes - self._first_bytes(held_out)
        unknown = self.unknown_share(split)
        result = Likelihood.from_nats(split, float(nats.sum()), len(nats), text_bytes, order, 1, unknown)
        return {f"{order}-gram, Kneser-Ney": result}

    @classmethod
    def next_command(cls, run: str, config: Config) -> str:
        return f'Talk to it: glassformer generate {run} "your words"'

    def continuation(self, model: nn.Module, ids: Tensor, tokens: int, edits: Sequence[Edit]) -> Tensor:
        """Always the likeliest token."""
        assert isinstance(model, LanguageModel)
        check_edits(model, edits)
        written = ids[0].tolist()
        make_engine(model, weights="open").write(
            Request(
                ids[0].tolist(),
                tokens,
                Sampler(temperature=0),
                new_tap=edited(edits),
                on_token=lambda token: written.append(token.id),
            )
        )
        return torch.tensor([written])

    def question(self, ids: list[int], word: list[int]) -> Question | None:
        after = word[-1] + 1
        return Question(ids, [after - 1], [ids[after]]) if after < len(ids) else None

    def _log_probability(self, model: nn.Module, ids: Tensor, places: Tensor) -> float:
        """Of the tokens at some places of ids (1, T), each given what stands before it."""
        return -float(cross_entropy(model(ids[:, :-1])[0, places - 1], ids[0, places]))
