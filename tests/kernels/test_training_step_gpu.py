"""The step as a graph, on a GPU: the same as call by call, the same bits twice, exact after a kill."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from glassformer.config.model import ModelConfig
from glassformer.core.errors import DivergedError
from glassformer.data.shards import Tokens
from glassformer.models.build import Decoder
from glassformer.training.checkpoint.write import latest_checkpoint
from glassformer.training.device.step import DeviceStep
from glassformer.training.loop import Trainer
from glassformer.training.step import Steps
from tests.training.small import make_objective, weights
from tests.training.test_fused import TEXT, fused

GPU = torch.device("cuda")
TRAIN = ["--set", "training.kernels=fused", "--set", "training.compile=off", "--set", "model.dropout=0.1"]


def on_gpu(folder: Path, **training: Any) -> Trainer:
    config = fused(0.1, precision="bf16", **training)
    torch.manual_seed(0)
    model = Decoder(config.model).to(GPU)
    folder.mkdir(parents=True, exist_ok=True)
    return Trainer(model, make_objective(config, TEXT), config.training, folder, device=GPU, width=32)


def run(folder: Path, steps: int = 12, **training: Any) -> Trainer:
    trainer = on_gpu(folder, **training)
    for i in range(steps):
        trainer.step(trainer.model, ahead=i + 1 < steps)
    trainer.reader.close()
    return trainer


def same(a: Trainer, b: Trainer) -> bool:
    return all(torch.equal(weights(b)[name], value) for name, value in weights(a).items())


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
@pytest.mark.parametrize("extra", [{}, {"accumulate": 2, "batch_growth": {3: 6, 7: 8}}])
def test_a_graph_is_the_calls_it_records(
    optimizer: str, extra: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphed = run(tmp_path / "a", optimizer=optimizer, **extra)
    assert same(graphed, run(tmp_path / "b", optimizer=optimizer, **extra))
    monkeypatch.setattr(DeviceStep, "_replay", DeviceStep._work)
    assert same(graphed, run(tmp_path / "c", optimizer=optimizer, **extra))


@pytest.mark.parametrize(
    "model",
    [{"shift": "embedding"}, {"shift": "layers"}, {"activation": "gelu-tanh", "dropout": 0.0, "width": 512}],
)
def test_two_trainings_give_the_same_bits(model: dict[str, Any], tmp_path: Path) -> None:
    """With enough tokens that sums may be divided: PyTorch's own gradient of an embedding then differs."""
    sizes = {"layers": 3, "heads": 4, "width": 128, "context": 256, "vocab": 65, "dropout": 0.2}
    config = fused(precision="bf16", batch=32, steps=100)
    config = config.model_copy(update={"model": ModelConfig.model_validate(sizes | model)})
    tokens = Tokens([np.random.default_rng(0).integers(0, 65, 100_000)], 100_000)
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        objective = make_objective(config, tokens)
        trainer = Steps(Decoder(config.model).to(GPU), objective, config.training, device=GPU, width=128)
        for i in range(15):
            trainer.step(trainer.model, ahead=i < 14)
        trainer.reader.close()
        found.append({n: p.detach().clone() for n, p in trainer.model.named_parameters()})
    assert all(torch.equal(found[1][name], value) for name, value in found[0].items())


def test_a_broken_step_moves_nothing(tmp_path: Path) -> None:
    trainer = on_gpu(tmp_path)
    for _ in range(3):
        trainer.step(trainer.model)
    with torch.no_grad():
        trainer.model.stack.blocks[1].mlp.down.weight[0, 0] = float("inf")  # type: ignore[union-attr]
    before = weights(trainer)
    with pytest.raises(DivergedError, match="step 4"):
        trainer.step(trainer.model, ahead=True)
    assert all(torch.equal(weights(trainer)[name], value) for name, value in before.items())
    trainer.reader.close()


def test_resuming_gives_the_same_bits(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole")
    first = run(tmp_path / "parts", 5)
    first._save()
    again = on_gpu(tmp_path / "parts")
    checkpoint = latest_checkpoint(tmp_path / "parts" / "checkpoints")
    assert checkpoint is not None
    again.resume(checkpoint)
    for _ in range(7):
        again.step(again.model)
    again.reader.close()
    assert same(whole, again)


def test_a_kill_is_survived_to_the_bit(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{i} and {i * i % 97} make {i + i * i % 97}.\n" for i in range(5000)))
    sizes = {
        "model.layers": 4,
        "model.width": 128,
        "model.heads": 4,
        "model.context": 128,
        "training.batch": 16,
    }
    sizes |= {"training.steps": 600, "training.checkpoint_every": 50, "training.eval_every": 300}
    settings = [word for key, value in sizes.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "glassformer", "train", str(text), *TRAIN, *settings, "--out"]
    subprocess.run([*command, str(tmp_path / "whole")], check=True)
    killed = subprocess.Popen([*command, str(tmp_path / "parts")])
    deadline = time.monotonic() + 120
    while not list((tmp_path / "parts" / "checkpoints").glob("step-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert killed.poll() is None
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    subprocess.run([*command, str(tmp_path / "parts"), "--resume"], check=True)
    ours, theirs = (load_file(tmp_path / name / "model.safetensors") for name in ("parts", "whole"))
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())
