"""How good translations are: BLEU as sacrebleu computes it, exact matches, the loss of the targets."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from glassformer.evaluation.accuracy import answers
from glassformer.evaluation.result import Result
from glassformer.objectives.translation import Translating


@dataclass(frozen=True)
class Translation(Result):
    perplexity: float  # per target token
    tokens: int
    bleu: float | None = None  # None where nothing was translated, only scored
    signature: str | None = None  # how sacrebleu computed it
    exact_match: float | None = None
    n: int = 0

    @property
    def score(self) -> tuple[str, float, bool]:
        return ("BLEU", self.bleu, True) if self.bleu is not None else ("loss", self.loss, False)

    def as_dict(self) -> dict[str, Any]:
        return {k: v for k, v in super().as_dict().items() if v is not None and v == v}

    def summary(self) -> str:
        text = f"loss {self.loss:.4f}  perplexity {self.perplexity:.3f}"
        if self.bleu is not None and self.exact_match is not None:
            text += f"  BLEU {self.bleu:.2f}  exact {self.exact_match:.2%}"
        return text

    def table(self) -> list[tuple[str, str]]:
        rows = [("split", self.split)]
        if self.bleu is not None and self.exact_match is not None:
            rows += [
                ("BLEU", f"{self.bleu:.2f}  ({self.signature})"),
                ("exact match", f"{self.exact_match:.2%} of {self.n:,}"),
            ]
        return [
            *rows,
            ("loss", f"{self.loss:.4f} nats per token, perplexity {self.perplexity:.3f}"),
            ("tokens", f"{self.tokens:,} of the targets"),
            *(
                [("unknown", f"{self.unknown_share:.2%} of the tokens, both sides")]
                if self.unknown_share
                else []
            ),
        ]


def evaluate_translation(
    model: nn.Module,
    objective: Translating,
    split: str,
    references: Sequence[str],
    translate: Callable[[], list[str]] | None = None,
) -> Translation:
    """The loss of every target token; with `translate`, which gives all hypotheses, also BLEU."""
    nats = np.concatenate([part.nats for part in answers(model, objective)])
    loss = float(nats.mean(dtype=np.float64))
    perplexity = math.exp(min(loss, 700.0))
    if translate is None:
        return Translation(split, loss, perplexity, len(nats), n=len(references))
    hypotheses = translate()
    bleu, signature = corpus_bleu(hypotheses, references)
    exact = sum(h == r for h, r in zip(hypotheses, references, strict=True)) / len(references)
    return Translation(split, loss, perplexity, len(nats), bleu, signature, exact, len(references))


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, str]:
    """BLEU of a whole set against one reference each, and sacrebleu's signature."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU()
    score = metric.corpus_score(list(hypotheses), [list(references)]).score
    return score, str(metric.get_signature())


def sentence_scores(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """chrF of each sentence by itself, 0 to 100; BLEU says little about single sentences."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    return [metric.sentence_score(h, [r]).score for h, r in zip(hypotheses, references, strict=True)]
