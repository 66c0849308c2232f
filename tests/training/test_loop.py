"""The loop: exact resuming, accumulation, stopping in time."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from glassformer.config.schema import build
from glassformer.core.device import Precision, choose_device
from glassformer.core.errors import UsageError
from glassformer.core.process import tune_process
from glassformer.data.shards import Tokens
from glassformer.evaluation.result import Result
from glassformer.models.build import Decoder
from glassformer.objectives.loss import cross_entropy
from glassformer.training.checkpoint.weights import load_weights, save_weights
from glassformer.training.checkpoint.write import latest_checkpoint
from glassformer.training.compile import compile_pays
from glassformer.training.log import read_metrics
from glassformer.training.loop import Trainer
from glassformer.training.optim import freeze
from tests.training.small import CPU, configure, make_trainer, weights


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
    trainer = make_trainer(tmp_path, config, tokens=pattern)
    trainer.run()
    records = read_metrics(tmp_path / "metrics.jsonl")
    assert records[0]["loss"] > 3.0 and records[-1]["loss"] < 1.0
    assert [r["step"] for r in records] == list(range(1, 61))
    assert records[-1]["tokens"] == 60 * 4 * 12
    assert {"lr", "grad_norm", "tokens_per_second", "bits_per_byte", "seconds"} <= set(records[0])


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
        trainer.model, trainer.objective, config.training, tmp_path, trainer.hooks, device=CPU, width=16
    )
    trainer.run()
    moved = {name for name, w in weights(trainer).items() if not torch.equal(w, before[name])}
    assert moved == {n for n in before if not n.startswith(("stack.embedding", "stack.blocks.0"))}
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
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    make_trainer(tmp_path, configure(tensorboard=True)).run()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    curve = [(point.step, point.value) for point in events.Scalars("train/loss")]
    records = read_metrics(tmp_path / "metrics.jsonl")
    assert curve == [(r["step"], pytest.approx(r["loss"], rel=1e-6)) for r in records]


def test_devices_and_precisions_that_are_not_there() -> None:
    with pytest.raises(UsageError, match="cannot be used here"):
        choose_device("cuda:99")
    with pytest.raises(UsageError, match="needs a GPU"):
        Precision.choose("fp16", CPU)
    assert Precision.choose("auto", CPU).name == "float32"


def test_compiling_is_chosen_only_when_it_pays() -> None:
    assert not compile_pays(100, CPU, lambda: 0.05)
    assert compile_pays(100_000, CPU, lambda: 0.5) == (shutil.which("c++") is not None)
    assert not compile_pays(100_000, torch.device("meta"), lambda: 0.5)  # nothing is known of its compiler


def test_choosing_a_device_leaves_the_process_as_it_is() -> None:
    smallest = torch.tensor(1e-40)
    choose_device("cpu")
    assert (smallest * 1).item() != 0.0
    tune_process()
    assert (smallest * 1).item() == 0.0
