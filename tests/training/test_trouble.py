"""When it breaks: numbers that are none, a disk or a memory that is full, weights of another model."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.config import build
from glassformer.errors import DiskError, DivergedError, RunError
from glassformer.models.transformer import Decoder
from glassformer.training import weights as weights_module
from glassformer.training.weights import load_weights, save_weights
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
    [(2, "training.accumulate=4 gives the same updates in parts of 2"), (0, "for a single sample")],
)
def test_a_batch_too_large_for_the_memory_is_named_with_one_that_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fits: int, says: str
) -> None:
    """Memory that is too small for more than `fits` samples at a time, played on the CPU."""
    trainer = make_trainer(tmp_path, configure(batch=8))
    before, plain = weights(trainer), trainer.task.loss

    def loss(forward: Any, batch: Any, *rest: Any) -> Any:
        if len(next(iter(batch.values()))) > fits:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain(forward, batch, *rest)

    monkeypatch.setattr(trainer.task, "loss", loss)
    with pytest.raises(RunError, match=says):
        trainer.run()
    assert all(torch.equal(w, before[name]) for name, w in weights(trainer).items())
    assert not any(p.grad is not None for p in trainer.model.parameters())
