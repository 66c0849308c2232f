"""Training by compiled loops and by PyTorch's: the same curve, and who took which is written down."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassformer.config.model import ModelConfig
from glassformer.config.saved import load_config, save_config
from glassformer.config.schema import Config
from glassformer.data.shards import Tokens
from glassformer.models.fast import attention as fast
from glassformer.training.loop import Trainer
from tests.training.small import configure, make_trainer

LETTERS = np.tile(np.arange(23), 60)  # easy to learn
TEXT = Tokens([LETTERS], len(LETTERS))


def wide(**training: Any) -> Config:
    """A small model with heads of the width that the loops are made for."""
    config = configure(**training)
    model = {"layers": 2, "heads": 1, "width": 32, "context": 64, "vocab": 23, "dropout": 0.1}
    return config.model_copy(update={"model": ModelConfig.model_validate(model)})


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made: list[str] = []
    run = fast._run
    monkeypatch.setattr(fast, "_run", lambda f, *args: (made.append(f._wrapper_name), run(f, *args)))
    monkeypatch.setattr(fast, "has_wide_registers", lambda: True)
    return made


def losses(trainer: Trainer) -> list[float]:
    return [trainer.step(trainer.model)["loss"] for _ in range(8)]


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_it_learns_the_same(dropout: float, calls: list[str], tmp_path: Path) -> None:
    curves = {}
    for kernels in ("auto", "off"):
        config = wide(kernels=kernels, lr=0.01)
        config = config.model_copy(update={"model": config.model.model_copy(update={"dropout": dropout})})
        trainer = make_trainer(tmp_path / kernels, config, tokens=TEXT)
        curves[kernels] = losses(trainer)
        trainer.reader.close()
        assert trainer.environment["kernels"].split(",")[0] == ("own" if kernels == "auto" else "PyTorch")
    assert len(calls) == 8 * 2 * 2  # eight steps, two layers, forth and back, and none by those without
    assert curves["auto"][-1] < 0.8 * curves["auto"][0]
    assert curves["auto"] == pytest.approx(curves["off"], rel=1e-3 if not dropout else 0.1)


def test_compiled_models_and_small_ones_do_without(calls: list[str], tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path / "small", configure())
    losses(trainer)
    trainer.reader.close()
    compiled = make_trainer(tmp_path / "compiled", wide(compile="on"))
    compiled.step(compiled.model)  # not compiled here, but as it would be
    compiled.reader.close()
    assert not calls and compiled.environment["kernels"] == "PyTorch"


def test_a_step_that_broke_is_seen_again_as_it_was(calls: list[str], tmp_path: Path) -> None:
    """With the same loops, so that the same weights are dropped."""
    trainer = make_trainer(tmp_path / "again", wide())
    trainer._reason(trainer.reader.read(0, ahead=False).batches, 1.0, float("inf"))
    trainer.reader.close()
    assert len(calls) == 2  # one forward pass through two layers


def test_runs_from_before_go_on_without(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    save_config(wide(), path)
    assert load_config(path).training.kernels == "auto"
    path.write_text("".join(line for line in path.open() if "kernels" not in line))
    assert load_config(path).training.kernels == "off"
