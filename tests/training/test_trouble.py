"""When it breaks: numbers that are none, a disk or a memory that is full, weights of another model."""

import errno
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from glassformer.config.schema import build
from glassformer.core.errors import DiskError, DivergedError, Interrupted, RunError
from glassformer.models.build import Decoder
from glassformer.training.checkpoint import weights as weights_module
from glassformer.training.checkpoint.weights import load_weights, save_weights
from tests.training.small import configure, make_trainer, weights


def test_nan_stops_before_the_update_and_names_the_tensor(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, configure())
    trainer.step(trainer.model)
    before = weights(trainer)

    hidden = trainer.model.stack.blocks[1].mlp.down  # type: ignore[union-attr]
    handle = hidden.register_forward_hook(lambda module, inputs, output: output * float("inf"))
    with pytest.raises(DivergedError, match=r"step 2.*first bad tensor is 1\.mlp_out") as caught:
        trainer.run()
    assert "update was not applied" in str(caught.value)
    noted = json.loads((tmp_path / "diverged.json").read_text())
    assert noted["step"] == 2 and (noted["first_sample"], noted["samples"], noted["seed"]) == (4, 4, 0)
    handle.remove()
    for name, expected in before.items():
        assert torch.equal(weights(trainer)[name], expected)


def test_an_exploding_gradient_is_named_too(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, configure())
    trainer.model.stack.norm.gamma.register_hook(lambda g: g * float("nan"))  # type: ignore[union-attr]
    with pytest.raises(DivergedError, match=r"forward pass is sound.*stack\.norm\.gamma"):
        trainer.run()


def test_a_broken_weight_is_named(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, configure())
    with torch.no_grad():
        trainer.model.stack.embedding.weight[3] = float("nan")  # type: ignore[union-attr]
    with pytest.raises(DivergedError, match=r"the weight stack\.embedding\.weight holds NaN"):
        trainer.run()


def test_fp16_overflow_moves_no_weight_and_is_not_endless(tmp_path: Path) -> None:
    """Also not the weights whose own gradient was sound."""
    trainer = make_trainer(tmp_path, configure(optimizer="muon"))
    trainer.updates.scaler = torch.amp.GradScaler("cpu")
    trainer.step(trainer.model)
    before = weights(trainer)
    scale = trainer.updates.scaler.get_scale()
    handle = trainer.model.stack.embedding.weight.register_hook(lambda g: g * float("inf"))  # type: ignore
    trainer.step(trainer.model)
    for name, expected in before.items():
        assert torch.equal(weights(trainer)[name], expected)
    assert trainer.updates.scaler.get_scale() < scale
    with pytest.raises(DivergedError, match=r"stack\.embedding\.weight"):
        for _ in range(40):
            trainer.step(trainer.model)
    handle.remove()


def test_a_full_disk_keeps_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(tmp_path, configure(checkpoint_every=4))
    real, calls = weights_module.save_file, []

    def fills_up(*args: Any, **kwargs: Any) -> None:
        calls.append(1)
        if len(calls) > 3:
            raise OSError(28, "No space left on device")
        real(*args, **kwargs)

    monkeypatch.setattr(weights_module, "save_file", fills_up)
    with pytest.raises(DiskError, match="the disk is full"):
        trainer.run()
    folder = tmp_path / "checkpoints"
    assert [p.name for p in folder.glob("step-*")] == ["step-00000004"]
    assert not list(folder.glob(".*"))


def test_weights_that_do_not_fit_are_explained(tmp_path: Path) -> None:
    small, large = Decoder(configure().model), Decoder(build({"model": {"vocab": 23, "context": 12}}).model)
    save_weights(small, tmp_path / "w.safetensors")
    with pytest.raises(RunError, match="of another shape"):
        load_weights(large, tmp_path / "w.safetensors")
    (tmp_path / "broken.safetensors").write_bytes(b"\x80\x04pickle")
    with pytest.raises(RunError, match="damaged"):
        load_weights(small, tmp_path / "broken.safetensors")


@pytest.mark.parametrize(
    ("fits", "says"),
    [(2, "training.accumulate.: 4} gives the same updates in parts of 2"), (0, "for a single sample")],
)
def test_a_batch_too_large_for_the_memory_is_named_with_one_that_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fits: int, says: str
) -> None:
    """Memory that is too small for more than `fits` samples at a time, played on the CPU."""
    trainer = make_trainer(tmp_path, configure(batch=8))
    before, plain = weights(trainer), trainer.objective.loss

    def loss(forward: Any, batch: Any, *rest: Any) -> Any:
        if len(next(iter(batch.values()))) > fits:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain(forward, batch, *rest)

    monkeypatch.setattr(trainer.objective, "loss", loss)
    with pytest.raises(RunError, match=says):
        trainer.run()
    assert all(torch.equal(w, before[name]) for name, w in weights(trainer).items())
    assert not any(p.grad is not None for p in trainer.model.parameters())


def breaks_at(trainer: Any, step: int, while_lr_scale_is: float) -> None:
    """Have the loss of a step be no number until the learning rate is lower."""
    plain = trainer.objective.loss

    def loss(*args: Any, **kwargs: Any) -> torch.Tensor:
        value = plain(*args, **kwargs)
        at, scale = trainer.progress.step + 1, trainer.progress.lr_scale
        return value * float("nan") if at == step and scale >= while_lr_scale_is else value

    trainer.objective.loss = loss


def test_a_run_that_breaks_goes_back_and_on_with_a_lower_rate(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, configure(rollbacks=3, checkpoint_every=5))
    breaks_at(trainer, step=8, while_lr_scale_is=0.5)  # twice
    progress = trainer.run()
    assert (progress.step, progress.rollbacks, progress.lr_scale) == (12, 2, 0.25)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 13))  # nothing twice
    rates = {line["step"]: line["lr"] for line in lines}
    assert rates[6] / rates[5] < 0.3  # from the checkpoint on


def test_going_back_has_an_end_and_needs_no_checkpoint_of_the_user(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, configure(rollbacks=2))
    breaks_at(trainer, step=1, while_lr_scale_is=0.0)
    with pytest.raises(DivergedError, match="Training broke at step 1"):
        trainer.run()
    assert (trainer.progress.rollbacks, trainer.progress.lr_scale) == (2, 0.25)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_going_back_to_the_start_forgets_what_the_optimizer_knew(tmp_path: Path, optimizer: str) -> None:
    """The same as a run that begins with the lower rate."""
    trainer = make_trainer(tmp_path / "a", configure(rollbacks=1, optimizer=optimizer, checkpoint_every=50))
    breaks_at(trainer, step=8, while_lr_scale_is=1.0)
    trainer.run()
    lower = make_trainer(tmp_path / "b", configure(optimizer=optimizer))
    lower.progress.lr_scale = 0.5
    lower.run()
    for name, value in weights(lower).items():
        assert torch.equal(weights(trainer)[name], value), name


def test_a_save_under_way_is_finished_when_training_breaks(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, configure(checkpoint_every=4))
    breaks_at(trainer, step=5, while_lr_scale_is=1.0)
    trainer.saver.submit(lambda: time.sleep(0.5))  # the disk is busy
    with pytest.raises(DivergedError):
        trainer.run()
    assert (tmp_path / "checkpoints" / "step-00000004" / "seal.json").is_file()


def test_a_signal_during_the_last_save_waits_for_it(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, configure(checkpoint_every=50))
    plain, sent = trainer._save, []

    def save(wait: bool = True) -> None:
        plain(wait)
        sent.append(os.kill(os.getpid(), signal.SIGTERM))

    trainer._save = save  # type: ignore[method-assign]
    with pytest.raises(Interrupted, match="Stopped at step 12 of 12"):
        trainer.run()
    assert len(sent) == 1 and (tmp_path / "checkpoints" / "step-00000012" / "seal.json").is_file()


def test_without_being_asked_nothing_goes_back(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, configure(checkpoint_every=5))
    breaks_at(trainer, step=8, while_lr_scale_is=1.0)
    with pytest.raises(DivergedError, match="rollbacks=3"):
        trainer.run()
    assert (tmp_path / "checkpoints" / "step-00000005" / "seal.json").is_file()


def test_saving_beside_training_writes_the_step_it_names(tmp_path: Path) -> None:
    """However long the disk takes: what is written is a copy from when the save was asked for."""
    trainer = make_trainer(tmp_path, configure())
    trainer.step(trainer.model)
    expected, hold = weights(trainer), threading.Event()
    trainer.saver.submit(hold.wait)  # the disk is busy
    trainer._save(wait=False)
    for _ in range(3):
        trainer.step(trainer.model)
    hold.set()
    trainer.saver.close()
    stored = load_file(tmp_path / "checkpoints" / "step-00000001" / "model.safetensors")
    assert all(torch.equal(stored[name], value) for name, value in expected.items() if name in stored)
    assert not torch.equal(stored["stack.embedding.weight"], weights(trainer)["stack.embedding.weight"])


def test_what_fails_beside_training_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(weights_module, "save_file", fail)
    trainer = make_trainer(tmp_path, configure(steps=400, checkpoint_every=10))
    with pytest.raises(DiskError, match="the disk is full"):
        trainer.run()
    assert trainer.progress.step < 400
