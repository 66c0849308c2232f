"""The loop: exact resuming, accumulation, stopping in time, and words when it breaks."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from glassformer.config import Config, build
from glassformer.errors import DiskError, DivergedError, RunError, UsageError
from glassformer.evaluation.result import Result
from glassformer.models.transformer import Decoder
from glassformer.settings import merge
from glassformer.tasks.language import LanguageModelling
from glassformer.tasks.task import cross_entropy
from glassformer.text.shards import Tokens
from glassformer.training import weights as weights_module
from glassformer.training.checkpoint import latest_checkpoint
from glassformer.training.device import Precision, choose_device, compile_pays
from glassformer.training.display import Silent
from glassformer.training.hooks import Hooks
from glassformer.training.log import read_metrics
from glassformer.training.loop import Trainer
from glassformer.training.optim import freeze
from glassformer.training.weights import load_weights, save_weights

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


def make_trainer(folder: Path, config: Config, evaluate: Any = None, seed: int = 0) -> Trainer:
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    model = Decoder(config.model)
    task = LanguageModelling(TOKENS, config.model.context, config.training.seed)
    return Trainer(
        model, task, config.training, folder, Hooks(evaluate, None, Silent()), device=CPU, width=16
    )


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {n: p.detach().clone() for n, p in trainer.model.named_parameters()}


@pytest.mark.parametrize("optimizer", ["muon", "adamw", "adam", "sgd"])
@pytest.mark.parametrize("extra", [{}, {"accumulate": 2, "batch_growth": {3: 6, 7: 8}, "precision": "bf16"}])
def test_resuming_gives_the_same_weights_bit_for_bit(
    tmp_path: Path, optimizer: str, extra: dict[str, Any]
) -> None:
    whole = make_trainer(tmp_path / "whole", configure(optimizer=optimizer, **extra))
    whole.run()
    config = configure(optimizer=optimizer, checkpoint_every=5, **extra)
    first = make_trainer(tmp_path / "parts", config)
    for _ in range(5):
        first.step(first.model)
    first._save()
    for _ in range(2):  # goes on a little and is lost
        first.step(first.model)
    again = make_trainer(tmp_path / "parts", config, seed=99)
    checkpoint = latest_checkpoint(tmp_path / "parts" / "checkpoints")
    assert checkpoint is not None
    again.resume(checkpoint)
    assert again.progress.step == 5
    torch.rand(3)  # somebody else's use of the generator must not matter
    again.run()
    for name, expected in weights(whole).items():
        assert torch.equal(weights(again)[name], expected), name


def test_accumulating_equals_the_full_batch(tmp_path: Path) -> None:
    results = []
    for accumulate in (1, 2, 4):
        config = configure(accumulate=accumulate, optimizer="sgd", lr=0.1)
        config.model.dropout = 0.0
        trainer = make_trainer(tmp_path / str(accumulate), config)
        trainer.model.double()
        trainer.run()
        results.append(weights(trainer))
    for other in results[1:]:
        for name, expected in results[0].items():
            torch.testing.assert_close(other[name], expected, rtol=1e-9, atol=1e-11)


def test_the_loss_falls(tmp_path: Path) -> None:
    """On a text with a pattern; the log says so."""
    pattern = Tokens([np.tile(np.arange(23), 40)], 920)
    config = configure(steps=60, optimizer="muon", lr=0.03)
    trainer = make_trainer(tmp_path, config)
    trainer.task = LanguageModelling(pattern, 12, 0)
    trainer.run()
    records = read_metrics(tmp_path / "metrics.jsonl")
    assert records[0]["loss"] > 3.0 and records[-1]["loss"] < 1.0
    assert [r["step"] for r in records] == list(range(1, 61))
    assert records[-1]["tokens"] == 60 * 4 * 12
    assert {"lr", "grad_norm", "tokens_per_second", "bits_per_byte", "seconds"} <= set(records[0])


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
    trainer.scaler = torch.amp.GradScaler("cpu")
    trainer.step(trainer.model)
    before = weights(trainer)
    scale = trainer.scaler.get_scale()
    handle = trainer.model.stack.embedding.weight.register_hook(lambda g: g * float("inf"))  # type: ignore
    trainer.step(trainer.model)
    for name, expected in before.items():
        assert torch.equal(weights(trainer)[name], expected)
    assert trainer.scaler.get_scale() < scale
    with pytest.raises(DivergedError, match=r"stack\.embedding\.weight"):
        for _ in range(40):
            trainer.step(trainer.model)
    handle.remove()


def test_best_and_last_are_kept_and_patience_ends(tmp_path: Path) -> None:
    losses = iter([3.0, 2.0, 2.5, 2.6, 9.9])
    config = configure(steps=100, eval_every=2, patience=2)
    best: dict[str, torch.Tensor] = {}

    def evaluate() -> Result:
        loss = next(losses)
        if loss == 2.0:
            best.update({n: p.detach().clone() for n, p in trainer.model.state_dict().items()})
        return Result("valid", loss)

    trainer = make_trainer(tmp_path, config, evaluate)
    progress = trainer.run()
    assert (progress.step, progress.best_step, progress.best) == (8, 4, 2.0)
    saved = load_file(tmp_path / "model.safetensors")
    for name, expected in best.items():
        assert torch.equal(saved[name], expected)
    last = latest_checkpoint(tmp_path / "checkpoints")
    assert last is not None and last.name == "step-00000008"
    assert not torch.equal(
        load_file(last / "model.safetensors")["unembedding.weight"], best["unembedding.weight"]
    )


def test_old_checkpoints_go_and_the_pointer_is_not_needed(tmp_path: Path) -> None:
    make_trainer(tmp_path, configure(checkpoint_every=3, keep=2)).run()
    folder = tmp_path / "checkpoints"
    names = sorted(p.name for p in folder.glob("step-*"))
    assert names == ["step-00000009", "step-00000012"]
    assert json.loads((folder / "latest.json").read_text()) == {"checkpoint": names[-1]}
    (folder / "latest.json").unlink()
    (folder / "step-00000099").mkdir()  # incomplete
    assert latest_checkpoint(folder) == folder / names[-1]


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


def test_tied_weights_survive_a_round_trip(tmp_path: Path) -> None:
    config = build({"model": {"vocab": 23, "context": 12, "tied": True}}).model
    one, other = Decoder(config), Decoder(config)
    save_weights(one, tmp_path / "w.safetensors")
    load_weights(other, tmp_path / "w.safetensors")
    ids = torch.randint(23, (1, 6))
    assert torch.equal(one.eval()(ids), other.eval()(ids))


def test_frozen_parts_stay(tmp_path: Path) -> None:
    config = configure(freeze=["stack.embedding", "stack.blocks.0"])
    trainer = make_trainer(tmp_path, config)
    freeze(trainer.model, config.training.freeze)
    before = weights(trainer)
    trainer = Trainer(
        trainer.model, trainer.task, config.training, tmp_path, trainer.hooks, device=CPU, width=16
    )
    trainer.run()
    moved = {name for name, w in weights(trainer).items() if not torch.equal(w, before[name])}
    assert moved and not any(n.startswith(("stack.embedding", "stack.blocks.0")) for n in moved)
    with pytest.raises(UsageError, match=r"no parameter's name starts with 'stack.block.0'"):
        freeze(trainer.model, ["stack.block.0"])
    with pytest.raises(UsageError, match="nothing to train"):
        freeze(trainer.model, ["stack", "unembedding"])


def test_label_smoothing_is_its_formula() -> None:
    logits, targets = torch.randn(2, 3, 5), torch.randint(5, (2, 3))
    log_p = logits.log_softmax(-1)
    picked = log_p.gather(-1, targets[..., None]).sum()
    expected = -(0.9 * picked + 0.1 * log_p.mean(-1).sum())
    torch.testing.assert_close(cross_entropy(logits, targets, 0.1), expected)


def test_tensorboard_files_on_request(tmp_path: Path) -> None:
    make_trainer(tmp_path, configure(tensorboard=True)).run()
    assert list((tmp_path / "tensorboard").glob("events.*"))


def test_devices_and_precisions_that_are_not_there() -> None:
    with pytest.raises(UsageError, match="cannot be used here"):
        choose_device("cuda:99")
    with pytest.raises(UsageError, match="needs a GPU"):
        Precision.choose("fp16", CPU)
    assert Precision.choose("auto", CPU).name == "float32"


def test_compiling_is_chosen_only_when_it_pays() -> None:
    long, short = (build({"training": {"steps": n}}).training for n in (100_000, 100))
    assert not compile_pays(short, CPU, lambda: 0.05)
    assert compile_pays(long, CPU, lambda: 0.5)
    on = build({"training": {"compile": "on"}}).training
    assert compile_pays(on, CPU, lambda: 0.0)


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
