"""Every family learns every task it is offered for: it gets well below the loss of the frequencies alone.

A model that never looks at its input still learns how often each token or label is right. Where weights
start so that no gradient comes through, that is all it ever learns, and nothing else tells: the loss falls,
and then it stays. So the entropy of the targets is the mark to pass, on data of which a model that looks can
say much more.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glassformer.config.schema import FAMILIES, Config, build
from glassformer.data.shards import Tokens
from glassformer.models.model import LanguageModel
from glassformer.objectives.labelling import Labelling
from glassformer.objectives.language import language_modelling
from glassformer.objectives.loss import NOT_SCORED
from glassformer.objectives.masked import MaskedModelling
from glassformer.objectives.objective import Objective
from glassformer.objectives.translation import Translating
from glassformer.tasks.registry import make_model
from glassformer.training.display import Silent
from glassformer.training.hooks import Hooks
from glassformer.training.loop import Trainer

LETTERS, MARK = 50, 50  # ids 0 … 49 are letters; one more begins, ends or hides
BATCH, STEPS, MEASURED = 16, 90, 10
draw = np.random.default_rng(0)
FREQUENCY = 1 / np.arange(1, LETTERS + 1)  # few are frequent, as in any language
FREQUENCY /= FREQUENCY.sum()
WORDS = [draw.choice(LETTERS, draw.integers(4, 8), p=FREQUENCY) for _ in range(800)]
NEXT = draw.permutation(LETTERS)  # what follows a letter in the text, three times of four


def text() -> Tokens:
    ids = draw.choice(LETTERS, 8000, p=FREQUENCY)
    for i in np.flatnonzero(draw.random(len(ids) - 1) < 0.75):
        ids[i + 1] = NEXT[ids[i]]
    return Tokens([ids], len(ids))


TEXT = text()


def make_objective(name: str, model: torch.nn.Module, config: Config) -> Objective:
    context = config.model.context
    match name:
        case "language":
            assert isinstance(model, LanguageModel)
            return language_modelling(model, TEXT, context, BATCH, seed=0)
        case "masked":
            return MaskedModelling(TEXT, context, seed=0, mask=MARK)
        case "classify":  # how often the most frequent letter is there: not at all, once, or oftener
            return Labelling(name, WORDS, [np.array(min((w == 0).sum(), 2)) for w in WORDS], BATCH)
        case "tag":  # whether a letter is higher than the one before it
            return Labelling(name, WORDS, [(np.diff(w, prepend=0) > 0).astype(int) for w in WORDS], BATCH)
        case _:  # letter by letter into others: only the source tells
            return Translating(WORDS, [NEXT[w] for w in WORDS], MARK, BATCH)


def entropy(objective: Objective) -> float:
    """The loss, in nats, of a model that knows the frequencies of the targets and nothing else."""
    targets = torch.cat([objective.batch(i * BATCH, BATCH)["targets"].flatten() for i in range(30)])
    share = torch.bincount(targets[targets != NOT_SCORED]).double()
    share = share[share > 0] / share.sum()
    return -float((share * share.log()).sum())


EVERY = [(task, family) for task, families in FAMILIES.items() for family in families]


def make_tiny(
    name: str,
    family: str,
    folder: Path,
    device: str = "cpu",
    shape: dict[str, Any] | None = None,
    **training: Any,
) -> Trainer:
    """A training of seconds."""
    sizes = {"layers": 1, "heads": 2, "width": 32, "context": 16, "vocab": LETTERS + 1, "labels": 3}
    sizes |= shape or {}
    settings = {"steps": STEPS, "batch": BATCH, "warmup": 10, "lr": 0.01, **training}
    config = build({"task": name, "model": {"family": family, **sizes}, "training": settings})
    torch.manual_seed(0)
    model = make_model(name, config.model).to(device)
    objective, hooks = make_objective(name, model, config), Hooks(None, None, Silent())
    where = {"device": torch.device(device), "width": config.model.width}
    return Trainer(model, objective, config.training, folder, hooks, **where)


@pytest.mark.parametrize(("name", "family"), EVERY)
def test_it_learns_more_than_frequencies(name: str, family: str, tmp_path: Path) -> None:
    trainer = make_tiny(name, family, tmp_path)
    losses = [trainer.step(trainer.model)["loss"] for _ in range(STEPS)]
    assert np.mean(losses[-MEASURED:]) < 0.9 * entropy(trainer.objective)
