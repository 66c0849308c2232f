"""How often a label is right: accuracy with its interval, over a whole split.

Letters: B batch, T positions, N labels.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from glassformer.evaluation.result import Result, wilson
from glassformer.tasks.labelling import Labelling
from glassformer.tasks.masked import MaskedModelling
from glassformer.tasks.task import NOT_SCORED, cross_entropy
from glassformer.tasks.translation import Translating

BATCH_TOKENS = 8192


@dataclass(frozen=True)
class Classification(Result):
    accuracy: float
    n: int
    interval: tuple[float, float]  # of the accuracy, 95 %

    @property
    def criterion(self) -> float:
        return 1 - self.accuracy

    @property
    def score(self) -> tuple[str, float, bool]:
        return "accuracy", self.accuracy, True

    def summary(self) -> str:
        return f"loss {self.loss:.4f}  accuracy {self.accuracy:.2%}"

    def table(self) -> list[tuple[str, str]]:
        low, high = self.interval
        return [
            ("split", self.split),
            ("accuracy", f"{self.accuracy:.2%}  (95 %: {low:.2%} to {high:.2%})"),
            ("n", f"{self.n:,}"),
            ("loss", f"{self.loss:.4f} nats"),
        ]


def classification(split: str, nats: np.ndarray, right: np.ndarray) -> Classification:
    n = len(right)
    interval = wilson(int(right.sum()), n)
    return Classification(split, float(nats.mean(dtype=np.float64)), float(right.mean()), n, interval)


@dataclass(frozen=True)
class Answers:
    """What a model said about some examples, one entry per target."""

    rows: np.ndarray  # the example it belongs to
    places: np.ndarray  # the position in it
    targets: np.ndarray
    nats: np.ndarray
    predicted: np.ndarray
    probability: np.ndarray  # of what was predicted


def evaluate_labels(model: nn.Module, task: Labelling, split: str) -> Classification:
    parts = list(answers(model, task))
    right = np.concatenate([p.predicted == p.targets for p in parts])
    return classification(split, np.concatenate([p.nats for p in parts]), right)


def evaluate_masked(model: nn.Module, task: MaskedModelling, split: str, batch: int = 32) -> Classification:
    """Accuracy and loss on hidden tokens; which are hidden is the same each time."""
    parts: list[Answers] = []
    for first in range(0, task.windows.per_epoch, batch):
        count = min(batch, task.windows.per_epoch - first)
        made = task.batch(first, count)
        parts.append(answer(model, made["targets"], np.arange(count), (made["inputs"],)))
    right = np.concatenate([p.predicted == p.targets for p in parts])
    return classification(split, np.concatenate([p.nats for p in parts]), right)


def answers(model: nn.Module, task: Labelling | Translating) -> Iterator[Answers]:
    """The model's answer to every example, those of like length together."""
    for rows in length_batches(task.lengths):
        batch = task.collate(rows)
        names = ("inputs", "keys") if isinstance(task, Labelling) else ("sources", "inputs", "keys")
        yield answer(model, batch["targets"], np.array(rows), tuple(batch[n] for n in names))


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
def answer(
    model: nn.Module, targets: torch.Tensor, rows: np.ndarray, given: tuple[torch.Tensor, ...]
) -> Answers:
    training, device = model.training, next(model.parameters()).device
    model.eval()
    logits = model(*(x.to(device) for x in given))
    model.train(training)
    flat = targets.to(device).flatten()
    nats = cross_entropy(logits, flat, reduction="none").float()
    probability, predicted = logits.flatten(0, -2).float().softmax(-1).max(-1)
    scored = (flat != NOT_SCORED).cpu().numpy()
    width = flat.numel() // len(rows)
    kept = [x.cpu().numpy()[scored] for x in (flat, nats, predicted, probability)]
    everywhere = np.arange(flat.numel())[scored]
    return Answers(rows[everywhere // width], everywhere % width, *kept)
