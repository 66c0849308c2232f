"""The trainer takes any module and any objective: here a classifier of points that is none of ours."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.config.schema import TrainingConfig, build
from glassformer.core.errors import DivergedError, UsageError
from glassformer.training.checkpoint.write import latest_checkpoint
from glassformer.training.loop import Trainer
from tests.training.small import weights


class Bands(nn.Module):
    """Which of three bands a point lies in."""

    def __init__(self) -> None:
        super().__init__()
        self.corner = nn.Embedding(4, 8)
        self.inner, self.outer = nn.Linear(2, 8), nn.Linear(8, 3)
        self.dropout = nn.Dropout(0.1)

    def forward(self, points: Tensor, corner: Tensor) -> Tensor:
        return self.outer(self.dropout(torch.tanh(self.inner(points) + self.corner(corner))))


class BandsObjective:
    """Points by number; a running mean of the losses is what goes from batch to batch."""

    name = "bands"
    bytes_per_target: float | None = None

    def __init__(self) -> None:
        self.mean = torch.zeros(())

    def batch(self, first: int, count: int) -> dict[str, Tensor]:
        n = torch.arange(first, first + count, dtype=torch.float64)
        points = torch.stack([torch.sin(12.9898 * n), torch.cos(78.233 * n)], dim=1)
        bands = (points[:, 0] * 1.5 + 1.5).long().clamp(max=2)
        return {"points": points.float(), "corner": n.long() % 4, "bands": bands}

    def targets(self, batch: dict[str, Tensor]) -> int:
        return len(batch["bands"])

    def tokens(self, batch: dict[str, Tensor]) -> int:
        return len(batch["bands"])

    def loss(self, model: Any, batch: dict[str, Tensor], smoothing: float = 0.0, tap: Any = None) -> Tensor:
        scores = model(batch["points"], batch["corner"])
        loss = F.cross_entropy(scores, batch["bands"], reduction="sum", label_smoothing=smoothing)
        self.mean = 0.9 * self.mean + 0.1 * loss.detach()
        return loss

    def state_dict(self) -> dict[str, Tensor]:
        return {"mean": self.mean}

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        self.mean = tensors["mean"]


def settings(**changes: Any) -> TrainingConfig:
    return build({"training": {"batch": 16, "checkpoint_every": 8, "keep": 9, **changes}}).training


def trainer(folder: Path, config: TrainingConfig, seed: int = 0) -> Trainer:
    torch.manual_seed(seed)
    return Trainer(Bands(), BandsObjective(), config, folder)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_module_of_ones_own_is_trained_saved_and_resumed_to_the_bit(tmp_path: Path, optimizer: str) -> None:
    config = settings(optimizer=optimizer, steps=40, lr=0.03, warmup=2)
    whole = trainer(tmp_path / "whole", config)
    assert whole.run().step == 40
    losses = [json.loads(line)["loss"] for line in (tmp_path / "whole" / "metrics.jsonl").open()]
    assert len(losses) == 40 and sum(losses[-5:]) < 0.8 * sum(losses[:5])
    saved = load_file(tmp_path / "whole" / "model.safetensors")
    assert saved.keys() == dict(whole.model.named_parameters()).keys()

    checkpoint = tmp_path / "whole" / "checkpoints" / "step-00000008"
    again = trainer(tmp_path / "again", config, seed=7)
    again.resume(checkpoint)
    assert again.progress.step == 8
    again.run()
    assert again.objective.state_dict()["mean"] == whole.objective.state_dict()["mean"]
    assert all(torch.equal(w, weights(again)[name]) for name, w in weights(whole).items())
    last = latest_checkpoint(tmp_path / "again" / "checkpoints")
    assert last is not None and last.name == "step-00000040"


def test_muon_has_its_matrices_and_adamw_its_table() -> None:
    own = Trainer(Bands(), BandsObjective(), settings(optimizer="muon"), Path("nowhere"))
    muon, adamw = own.updates.optimizers
    shapes = [[tuple(p.shape) for g in o.param_groups for p in g["params"]] for o in (muon, adamw)]
    assert shapes == [[(8, 2), (3, 8)], [(4, 8), (8,), (3,)]]
    assert not Path("nowhere").exists()  # a folder is made when there is something to write


def test_what_breaks_is_named_by_its_parameter(tmp_path: Path) -> None:
    broken = trainer(tmp_path, settings())
    with torch.no_grad():
        broken.model.get_parameter("inner.bias").fill_(math.nan)
    with pytest.raises(DivergedError, match=r"the weight inner\.bias holds NaN"):
        broken.run()


def test_noam_asks_for_a_width(tmp_path: Path) -> None:
    config = settings(optimizer="adam", warmup=4)
    with pytest.raises(UsageError, match=r"noam .* width=… to the trainer"):
        Trainer(Bands(), BandsObjective(), config, tmp_path)
    own = Trainer(Bands(), BandsObjective(), config, tmp_path, width=8)
    assert own.step(own.model)["lr"] == pytest.approx(8**-0.5 * 4**-1.5)
