"""The step that stays on the device, here by formulas and call by call: the open step's results, exact
resuming, and a broken step that moves nothing, also when the next one was already begun."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glassformer.config.model import ModelConfig
from glassformer.config.schema import Config
from glassformer.core.errors import DivergedError, Interrupted, UsageError
from glassformer.data.shards import Tokens
from glassformer.training import optim
from glassformer.training.checkpoint.write import latest_checkpoint
from glassformer.training.loop import Trainer
from tests.training.small import configure, make_trainer, weights

LETTERS = np.tile(np.arange(23), 60)  # easy to learn
TEXT = Tokens([LETTERS], len(LETTERS))


def fused(dropout: float = 0.1, **training: Any) -> Config:
    config = configure(**{"kernels": "fused", **training})
    model = {"layers": 2, "heads": 2, "width": 32, "context": 12, "vocab": 23, "dropout": dropout}
    return config.model_copy(update={"model": ModelConfig.model_validate(model)})


def trained(folder: Path, config: Config, **more: Any) -> Trainer:
    trainer = make_trainer(folder, config, tokens=TEXT, **more)
    trainer.run()
    return trainer


def assert_equal_weights(a: Trainer, b: Trainer) -> None:
    for name, value in weights(a).items():
        assert torch.equal(weights(b)[name], value), name


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"accumulate": 2, "batch_growth": {3: 6, 7: 8}, "label_smoothing": 0.1, "weight_decay": 0.1},
        {"clip": 0.0, "embedding_decay": 0.1},
    ],
)
def test_it_trains_as_the_open_step_does(
    tmp_path: Path, optimizer: str, extra: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optim, "fast_type", lambda _: torch.float32)  # Muon in bf16 makes much of a last bit
    if optimizer == "adamw":
        extra = {key: value for key, value in extra.items() if key != "embedding_decay"}
    found = {}
    for kernels in ("fused", "off"):
        config = fused(0.0, kernels=kernels, optimizer=optimizer, precision="float32", **extra)
        trainer = make_trainer(tmp_path / kernels, config, tokens=TEXT)
        records = [trainer.step(trainer.model) for _ in range(12)]
        found[kernels] = records, weights(trainer)
        trainer.reader.close()
    for ours, theirs in zip(found["fused"][0], found["off"][0], strict=True):
        for key in ("loss", "grad_norm", "lr", "tokens", "batch", "step"):
            assert ours[key] == pytest.approx(theirs[key], rel=2e-3), key
    assert found["fused"][0][-1]["loss"] < 0.9 * found["fused"][0][0]["loss"]
    for name, value in found["off"][1].items():
        assert torch.allclose(found["fused"][1][name], value, atol=2e-3), name


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
@pytest.mark.parametrize("extra", [{}, {"accumulate": 2, "batch_growth": {3: 6, 7: 8}, "precision": "bf16"}])
def test_resuming_gives_the_same_bits(tmp_path: Path, optimizer: str, extra: dict[str, Any]) -> None:
    whole = trained(tmp_path / "whole", fused(optimizer=optimizer, **extra))
    config = fused(optimizer=optimizer, checkpoint_every=5, **extra)
    first = make_trainer(tmp_path / "parts", config, tokens=TEXT)
    for _ in range(5):
        first.step(first.model)
    first._save()
    first.step(first.model, ahead=True)  # goes on a little and is lost
    again = make_trainer(tmp_path / "parts", config, tokens=TEXT, seed=99)
    checkpoint = latest_checkpoint(tmp_path / "parts" / "checkpoints")
    assert checkpoint is not None
    again.resume(checkpoint)
    again.run()
    assert_equal_weights(whole, again)


def test_beginning_the_next_step_early_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = make_trainer(tmp_path / "early", fused(checkpoint_every=5), tokens=TEXT)
    assert early.device_step is not None
    most, begin = [0], early.device_step.begin

    def watched(*arguments: Any) -> None:
        begin(*arguments)
        assert early.device_step is not None
        most[0] = max(most[0], len(early.device_step.begun))

    monkeypatch.setattr(early.device_step, "begin", watched)
    early.run()
    assert most == [2]
    late = make_trainer(tmp_path / "late", fused(checkpoint_every=5), tokens=TEXT)
    monkeypatch.setattr(late, "_may_go_ahead", lambda *_: False)
    late.run()
    assert_equal_weights(early, late)
    saved = [sorted(p.name for p in (tmp_path / n / "checkpoints").iterdir()) for n in ("early", "late")]
    assert saved[0] == saved[1]
    for name in ("step-00000010", "step-00000012"):
        files = [tmp_path / n / "checkpoints" / name / "model.safetensors" for n in ("early", "late")]
        assert files[0].read_bytes() == files[1].read_bytes()


def test_whoever_looks_sees_the_step_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples and evaluations see the weights of their step, and none that was begun early."""
    seen: dict[str, list[tuple[int, float]]] = {"early": [], "late": []}
    for name in seen:
        config = fused(sample_every=4, eval_every=3, checkpoint_every=50)
        trainer = make_trainer(tmp_path / name, config, tokens=TEXT)

        def look(name: str = name, trainer: Trainer = trainer) -> float:
            size = sum(float(p.detach().double().square().sum()) for p in trainer.model.parameters())
            seen[name].append((trainer.progress.step, size))
            return size

        trainer.hooks.sample = lambda look=look: str(look())
        trainer.hooks.evaluate = lambda look=look: Looked(look())
        if name == "late":
            monkeypatch.setattr(trainer, "_may_go_ahead", lambda *_: False)
        trainer.run()
    assert [step for step, _ in seen["early"]] == [3, 4, 6, 8, 9, 12, 12]
    assert seen["early"] == seen["late"]


class Looked:
    def __init__(self, size: float):
        self.criterion = size

    def numbers(self) -> dict[str, float]:
        return {"loss": self.criterion}

    def summary(self) -> str:
        return ""


def test_runs_go_on_by_the_other_step(tmp_path: Path) -> None:
    """A checkpoint does not know which step made it."""
    for first, second in (("fused", "off"), ("off", "fused")):
        folder = tmp_path / first
        begun = make_trainer(folder, fused(0.0, kernels=first, checkpoint_every=5), tokens=TEXT)
        for _ in range(5):
            begun.step(begun.model)
        begun._save()
        begun.reader.close()
        again = make_trainer(folder, fused(0.0, kernels=second, checkpoint_every=50), tokens=TEXT, seed=9)
        checkpoint = latest_checkpoint(folder / "checkpoints")
        assert checkpoint is not None
        again.resume(checkpoint)
        again.run()
        whole = trained(tmp_path / f"{first} whole", fused(0.0, kernels=first, checkpoint_every=50))
        for name, value in weights(whole).items():
            assert torch.allclose(weights(again)[name], value, atol=2e-3), name


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_what_is_no_number_moves_nothing_and_stops_at_that_step(tmp_path: Path, optimizer: str) -> None:
    trainer = make_trainer(tmp_path, fused(optimizer=optimizer, checkpoint_every=50), tokens=TEXT)
    for _ in range(3):
        trainer.step(trainer.model)
    before = weights(trainer)
    moments = [
        {key: value.clone() for key, value in state.items()}
        for optimizer in trainer.updates.optimizers
        for state in optimizer.state.values()
    ]
    plain = trainer.objective.loss
    trainer.objective.loss = lambda *a, **k: plain(*a, **k) * float("nan")  # type: ignore[method-assign]
    with pytest.raises(DivergedError, match=r"Training broke at step 4: the loss is nan.*not applied"):
        trainer.step(trainer.model, ahead=True)  # the fifth had begun, too
    for name, value in before.items():
        assert torch.equal(weights(trainer)[name], value), name
    states = [state for optimizer in trainer.updates.optimizers for state in optimizer.state.values()]
    for state, expected in zip(states, moments, strict=True):
        for key, value in expected.items():
            assert torch.equal(state[key], value), key
    trainer.objective.loss = plain  # type: ignore[method-assign]
    assert trainer.step(trainer.model)["step"] == 4
    trainer.reader.close()


def test_a_gradient_alone_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(tmp_path, fused(), tokens=TEXT)
    assert trainer.device_step is not None
    gamma, slots = trainer.model.stack.norm.gamma, trainer.device_step.way.twin.slots  # type: ignore[union-attr]
    plain = slots.put_sum

    def spoiled(weight: torch.Tensor, rows: torch.Tensor) -> torch.Tensor | None:
        return plain(weight, rows * float("inf") if weight is gamma else rows)

    monkeypatch.setattr(slots, "put_sum", spoiled)
    # … and in the open pass, which is asked what broke; of the fused one it hears nothing.
    gamma.register_hook(lambda g: None if g is None else g * float("inf"))
    before = weights(trainer)
    with pytest.raises(DivergedError, match=r"step 1.*forward pass is sound.*stack\.norm\.gamma"):
        trainer.run()
    for name, value in before.items():
        assert torch.equal(weights(trainer)[name], value), name


def test_a_run_that_breaks_goes_back(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, fused(rollbacks=2, checkpoint_every=5), tokens=TEXT)
    plain = trainer.objective.loss

    def loss(*arguments: Any, **named: Any) -> Any:
        broken = trainer.progress.step == 7 and trainer.progress.lr_scale == 1.0
        return plain(*arguments, **named) * (float("nan") if broken else 1.0)

    trainer.objective.loss = loss  # type: ignore[method-assign]
    progress = trainer.run()
    assert (progress.step, progress.rollbacks, progress.lr_scale) == (12, 1, 0.5)


def test_a_signal_is_answered_after_what_was_begun(tmp_path: Path) -> None:
    config = fused(checkpoint_every=50, eval_every=50, steps=200)
    trainer = make_trainer(tmp_path / "stopped", config, tokens=TEXT)
    step = trainer.step

    def interrupted(*arguments: Any) -> dict[str, Any]:
        record = step(*arguments)
        if record["step"] == 6:
            os.kill(os.getpid(), signal.SIGINT)
        return record

    trainer.step = interrupted  # type: ignore[method-assign]
    with pytest.raises(Interrupted, match="Stopped at step 7"):
        trainer.run()
    other = make_trainer(tmp_path / "other", config, tokens=TEXT)
    for _ in range(7):
        other.step(other.model)
    assert_equal_weights(trainer, other)
    again = make_trainer(tmp_path / "again", config, tokens=TEXT)
    checkpoint = latest_checkpoint(tmp_path / "stopped" / "checkpoints")
    assert checkpoint is not None
    again.resume(checkpoint)
    assert_equal_weights(again, other)


@pytest.mark.parametrize(
    ("changes", "word"),
    [({"optimizer": "sgd"}, "optimizer sgd"), ({"compile": "on"}, "training.compile")],
)
def test_what_it_is_not_for_is_refused(tmp_path: Path, changes: dict[str, Any], word: str) -> None:
    with pytest.raises(UsageError, match=f"training.kernels fused is not for this training: .*{word}"):
        make_trainer(tmp_path, fused(**changes), tokens=TEXT)


def test_who_took_which_is_written_down(tmp_path: Path) -> None:
    assert make_trainer(tmp_path / "a", fused()).environment["kernels"].startswith("fused")
    assert not make_trainer(tmp_path / "b", fused(kernels="off")).environment["kernels"].startswith("fused")
