"""A trainer small enough for tests: two layers, random tokens."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer.config.recipes import merge
from glassformer.config.schema import Config, build
from glassformer.data.shards import Tokens
from glassformer.models.build import Decoder
from glassformer.objectives.language import LanguageModelling
from glassformer.training.display import Silent
from glassformer.training.hooks import Hooks
from glassformer.training.loop import Trainer

CPU = torch.device("cpu")
TOKENS = Tokens([np.random.default_rng(0).integers(0, 23, 900)], 900)


def configure(**training: Any) -> Config:
    model = {"layers": 2, "heads": 2, "width": 16, "context": 12, "vocab": 23, "dropout": 0.1}
    return build(
        merge(
            {"model": model, "training": {"steps": 12, "batch": 4, "warmup": 2, "eval_every": 5}},
            {"training": training},
        )
    )


def make_objective(config: Config, tokens: Tokens = TOKENS) -> LanguageModelling:
    return LanguageModelling(tokens, config.model.context, config.training.seed)


def make_trainer(
    folder: Path, config: Config, evaluate: Any = None, seed: int = 0, tokens: Tokens = TOKENS
) -> Trainer:
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    model = Decoder(config.model)
    hooks = Hooks(evaluate, None, Silent())
    return Trainer(
        model, make_objective(config, tokens), config.training, folder, hooks, device=CPU, width=16
    )


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {n: p.detach().clone() for n, p in trainer.model.named_parameters()}
