"""How often a label is right: accuracy with its interval, over a whole split.

Letters: B batch, T positions, N labels.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from glassformer.evaluation.result import Result, decimals, percent, wilson
from glassformer.models.model import evaluating
from glassformer.objectives.labelling import Labelling
from glassformer.objectives.loss import NOT_SCORED, cross_entropy
from glassformer.objectives.masked import MaskedModelling
from glassformer.objectives.objective import Batch
from glassformer.objectives.translation import Translating

BATCH_TOKENS = 8192
BATCH_LOGITS = 1 << 25  # scores held at once


@dataclass(frozen=True)
class Classification(Result):
    accuracy: float
    n: int
    interval: tuple[float, float]  # of the accuracy, 95 %

    @property
    def criterion(self) -> float:
        return 1 - self.accuracy + 1e-6 * self.loss  # of equal accuracies the smaller loss is better

    @property
    def digits(self) -> int:
        return decimals(self.n)

    @property
    def score(self) -> tuple[str, float, bool]:
        return "accuracy", self.accuracy, True

    def summary(self) -> str:
        of = f" of {self.n}" if self.n < 100 else ""
        return f"loss {self.loss:.{self.digits}f}  accuracy {percent(self.accuracy, self.n)}{of}"

    def table(self) -> list[tuple[str, str]]:
        low, high = self.interval
        return [
            ("split", self.split),
            (
                "accuracy",
                f"{percent(self.accuracy, self.n)}  "
                f"(95 %: {percent(low, self.n)} to {percent(high, self.n)})",
            ),
            ("n", f"{self.n:,}"),
            ("loss", f"{self.loss:.{self.digits}f} nats"),
        ]


def classification(split: str, nats: np.ndarray, correct: np.ndarray) -> Classification:
    n = len(correct)
    interval = wilson(int(correct.sum()), n)
    return Classification(split, float(nats.mean(dtype=np.float64)), float(correct.mean()), n, interval)


@dataclass(frozen=True)
class Answers:
    """What a model said about some examples, one entry per target."""

    rows: np.ndarray  # the example it belongs to
    positions: np.ndarray  # where in it
    targets: np.ndarray
    nats: np.ndarray
    predictions: np.ndarray
    probabilities: np.ndarray  # of the predictions

    @property
    def correct(self) -> np.ndarray:
        return self.predictions == self.targets


def evaluate_labels(
    model: nn.Module, objective: Labelling, split: str, beyond_context: int = 0
) -> Classification:
    """`beyond_context`: labels of positions that the model cannot see, which count as wrong."""
    parts = list(answers(model, objective))
    correct = np.concatenate([*(part.correct for part in parts), np.zeros(beyond_context, bool)])
    return classification(split, np.concatenate([part.nats for part in parts]), correct)


def evaluate_masked(model: nn.Module, objective: MaskedModelling, split: str) -> Classification:
    """Accuracy and loss on hidden tokens; which are hidden is the same each time."""
    parts = [part for _, part in masked_answers(model, objective)]
    correct = np.concatenate([part.correct for part in parts])
    return classification(split, np.concatenate([part.nats for part in parts]), correct)


def masked_answers(model: nn.Module, objective: MaskedModelling) -> Iterator[tuple[Batch, Answers]]:
    """Every window of the text once, with what the model says about its hidden tokens."""
    windows = objective.windows
    size = max(1, BATCH_LOGITS // (windows.context * (objective.mask + 1)))
    for first in range(0, windows.per_epoch, size):
        batch = objective.batch(first, min(size, windows.per_epoch - first))
        yield batch, _answers(model, objective, batch, np.arange(len(batch["inputs"])))


def answers(model: nn.Module, objective: Labelling | Translating) -> Iterator[Answers]:
    """The model's answer to every example, those of like length together."""
    for rows in length_batches(objective.lengths):
        yield _answers(model, objective, objective.collate(rows), np.array(rows))


def length_batches(lengths: list[int]) -> Iterator[list[int]]:
    """All examples in the order of their lengths, in batches of about so many tokens."""
    rows: list[int] = []
    for i in sorted(range(len(lengths)), key=lengths.__getitem__):
        if rows and (len(rows) + 1) * lengths[i] > BATCH_TOKENS:
            yield rows
            rows = []
        rows.append(i)
    if rows:
        yield rows


@torch.no_grad()
def _answers(
    model: nn.Module, objective: Labelling | Translating | MaskedModelling, batch: Batch, rows: np.ndarray
) -> Answers:
    device = next(model.parameters()).device
    batch = {name: tensor.to(device) for name, tensor in batch.items()}
    with evaluating(model):
        logits = objective.logits(model, batch)
    targets = batch["targets"].flatten()
    nats = cross_entropy(logits, targets, reduction="none").float()
    probabilities, predictions = logits.flatten(0, -2).float().softmax(-1).max(-1)
    index = np.flatnonzero((targets != NOT_SCORED).cpu().numpy())  # of the targets that count
    width = targets.numel() // len(rows)
    values = [x.cpu().numpy()[index] for x in (targets, nats, predictions, probabilities)]
    return Answers(rows[index // width], index % width, *values)
