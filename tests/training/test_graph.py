"""Steps as graphs of PyTorch's kernels, here call by call: the steps of the loop, for all that is trained.

On a GPU tests/kernels/test_graph_gpu.py does the rest.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from glassformer.config.training import TrainingConfig
from glassformer.core.device import Precision
from glassformer.core.errors import UsageError
from glassformer.data.batches import few_lengths, pad
from glassformer.objectives.labelling import Labelling
from glassformer.objectives.objective import Batch
from glassformer.objectives.translation import Translating
from glassformer.training import optim
from glassformer.training.checkpoint.write import latest_checkpoint
from glassformer.training.device.fitting import choose_way, fits_graph
from glassformer.training.device.step import DeviceStep, Recorded, shape_of
from glassformer.training.loop import Trainer
from tests.models.test_learning import EVERY, make_tiny
from tests.training.small import weights

CPU = torch.device("cpu")


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
@pytest.mark.parametrize(("name", "family"), EVERY)
def test_it_trains_as_call_by_call(
    name: str, family: str, optimizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optim, "fast_type", lambda _: torch.float32)  # Muon in bf16 makes much of a last bit
    found: dict[str, tuple[list[dict[str, float]], Trainer]] = {}
    for kernels in ("graph", "off"):
        settings = {"kernels": kernels, "optimizer": optimizer, "precision": "float32", "accumulate": 2}
        trainer = make_tiny(name, family, tmp_path / kernels, label_smoothing=0.1, **settings)
        assert trainer.way == ("graph" if kernels == "graph" else "calls")
        found[kernels] = [trainer.step(trainer.model) for _ in range(6)], trainer
        trainer.reader.close()
    for ours, theirs in zip(found["graph"][0], found["off"][0], strict=True):
        for key in ("loss", "grad_norm", "lr", "tokens", "step"):
            assert ours[key] == pytest.approx(theirs[key], rel=2e-3), key
    for key, value in weights(found["off"][1]).items():
        assert torch.allclose(weights(found["graph"][1])[key], value, atol=2e-3), key


@pytest.mark.parametrize(("name", "family"), [("language", "lstm"), ("translate", "transformer")])
def test_resuming_gives_the_same_bits(name: str, family: str, tmp_path: Path) -> None:
    """With what a recurrent model carries from batch to batch."""
    whole, first, again = (
        make_tiny(name, family, tmp_path / folder, kernels="graph") for folder in ("whole", "parts", "parts")
    )
    for _ in range(9):
        whole.step(whole.model)
    for _ in range(4):
        first.step(first.model)
    first._save()
    first.step(first.model, ahead=True)  # goes on a little and is lost
    checkpoint = latest_checkpoint(tmp_path / "parts" / "checkpoints")
    assert checkpoint is not None
    again.resume(checkpoint)
    for _ in range(5):
        again.step(again.model)
    for trainer in (whole, first, again):
        trainer.reader.close()
    assert all(torch.equal(weights(again)[key], value) for key, value in weights(whole).items())


def test_what_is_carried_lies_where_it_lay(tmp_path: Path) -> None:
    """A graph reads and writes it there."""
    trainer = make_tiny("language", "lstm", tmp_path, kernels="graph", precision="float32")
    places: list[list[int]] = []
    for _ in range(4):
        trainer.step(trainer.model)
        places.append([t.data_ptr() for t in trainer.objective.state_dict().values()])
    trainer.reader.close()
    assert places[0] and all(place == places[0] for place in places)


class Played:
    """Stands for a graph: what it has recorded goes call by call, from the same places."""

    def __init__(self, step: DeviceStep, places: list[Batch]):
        self.step, self.places, self.times = step, places, 0

    def replay(self) -> None:
        self.times += 1
        self.step._work(self.places)


def recording(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> DeviceStep:
    """Its step on the device as on a GPU, but for what a graph is."""
    step = trainer.device_step
    assert step is not None

    def record(batches: list[Batch]) -> Recorded:
        places = [{name: torch.full_like(t, 1) if t.ndim else t for name, t in b.items()} for b in batches]
        return Recorded(Played(step, places), places)  # type: ignore[arg-type]

    monkeypatch.setattr(step, "records", True)
    monkeypatch.setattr(step, "_record", record)
    return step


@pytest.mark.parametrize(
    ("name", "family"), [("language", "lstm"), ("translate", "gru"), ("tag", "transformer")]
)
def test_batches_are_brought_to_their_places(
    name: str, family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dropout, which is seeded before each replay; of several parts of a batch, with what they carry."""
    found = []
    for plays in (True, False):
        extra = {"kernels": "graph", "precision": "float32", "accumulate": 2}
        trainer = make_tiny(name, family, tmp_path / str(plays), shape={"dropout": 0.2}, **extra)
        step = recording(trainer, monkeypatch) if plays else None
        losses = [trainer.step(trainer.model, ahead=i < 29)["loss"] for i in range(30)]
        trainer.reader.close()
        if step is not None:
            assert sum(r.graph.times for r in step.recorded.values()) > 3  # type: ignore[attr-defined]
        found.append((losses, weights(trainer), trainer.objective.state_dict()))
    assert found[0][0] == found[1][0]
    for ours, theirs in zip(found[0][1:], found[1][1:], strict=True):
        assert all(torch.equal(ours[key], value) for key, value in theirs.items())


def test_shapes_get_ready_when_they_come_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_tiny("translate", "transformer", tmp_path, kernels="graph")
    step = recording(trainer, monkeypatch)
    monkeypatch.setattr(step.way, "most_graphs", 2)
    monkeypatch.setattr("glassformer.training.device.step.IDLE", 6)

    def give(T: int) -> tuple[bool, set[int]]:
        step._replay([{"inputs": torch.zeros(1, T)}])
        lengths = {shape[0][0][1][1] for shape in step.recorded}  # type: ignore[index]
        return step.was_ready, lengths

    monkeypatch.setattr(step, "_work", lambda batches: None)
    assert give(3) == (False, set()) and give(3) == (False, {3}) and give(3) == (True, {3})
    assert give(4) == (False, {3}) and give(4) == (False, {3, 4})
    for _ in range(2):
        assert give(5) == (True, {3, 4})  # there is no room, so it is as ready as it will be
    for _ in range(4):
        assert give(4) == (True, {3, 4})
    assert give(5) == (False, {5})  # nobody has asked for the first one for long
    assert give(4) == (False, {4, 5})
    step.reset()
    assert give(4) == (False, set())  # what was read from a file is found by a step call by call


def test_what_is_carried_is_taken_up_outside_of_a_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After going back to a checkpoint the first step makes the places that a graph then reads."""
    trainer = make_tiny("language", "lstm", tmp_path, kernels="graph", precision="float32")
    step = recording(trainer, monkeypatch)
    for _ in range(4):
        trainer.step(trainer.model)
    assert len(step.recorded) == 1
    trainer._save()
    expected = [trainer.step(trainer.model)["loss"] for _ in range(3)]
    checkpoint = latest_checkpoint(tmp_path / "checkpoints")
    assert checkpoint is not None
    trainer.resume(checkpoint)
    assert not step.recorded and not step.seen
    again = [trainer.step(trainer.model)["loss"] for _ in range(3)]
    trainer.reader.close()
    assert again == expected


def test_batches_have_few_lengths_that_change_nothing() -> None:
    draw = np.random.default_rng(0)
    texts = [draw.integers(1, 9, n) for n in draw.integers(1, 30, 64)]
    for objective in (
        Translating(texts, texts[::-1], 0, batch=4),
        Labelling("classify", texts, [np.array(len(t) % 3) for t in texts], batch=4),
        Labelling("tag", texts, texts, batch=4),
    ):
        plain = [objective.batch(first, 4) for first in range(0, 64, 4)]
        objective.few_lengths = True
        few = [objective.batch(first, 4) for first in range(0, 64, 4)]
        assert len({shape_of([batch]) for batch in few}) < len({shape_of([batch]) for batch in plain})
        for batch, longer in zip(plain, few, strict=True):
            assert objective.targets(batch) == objective.targets(longer)
            assert objective.tokens(batch) == objective.tokens(longer)
            assert all(_begins_with(longer[name], tensor) for name, tensor in batch.items())
            assert all(t.ndim < 2 or t.shape[1] <= 31 for t in longer.values())  # as the longest is


def _begins_with(longer: torch.Tensor, x: torch.Tensor) -> bool:
    return torch.equal(longer[tuple(slice(n) for n in x.shape)], x)


def test_few_lengths() -> None:
    lengths = {1: 8, 8: 8, 9: 16, 63: 64, 64: 64, 65: 72, 129: 144, 1000: 1000}
    assert {n: few_lengths(n, 1000) for n in lengths} == lengths
    assert few_lengths(9, 10) == 10 and few_lengths(12, 10) == 12
    for n in range(1, 600):
        assert n <= few_lengths(n, 10_000) <= max(8, n + 7, 1.125 * n)
    assert pad([np.arange(3)], most=100)[0].shape == (1, 8)


def test_numbers_for_the_host_are_part_of_a_shape() -> None:
    def batch(row: int, T: int) -> Batch:
        return {"inputs": torch.zeros(2, T), "row": torch.tensor(row)}

    assert shape_of([batch(0, 3)]) == shape_of([batch(0, 3)])
    assert len({shape_of([batch(r, T)]) for r in (0, 1) for T in (3, 4)}) == 4


class Own(nn.Linear):
    """A module of somebody else's."""


def test_which_trainings_it_is_for(tmp_path: Path) -> None:
    trainer = make_tiny("classify", "transformer", tmp_path)
    model, objective = trainer.model, trainer.objective

    def reason(precision: str = "float32", processes: int = 1, **training: object) -> str | None:
        config = TrainingConfig.model_validate({"kernels": "auto", **training})
        return fits_graph(model, objective, config, Precision(precision, CPU), processes)  # type: ignore[arg-type]

    assert reason() is None and reason("bf16") is None and reason(optimizer="adamw") is None
    assert "fp16" in str(reason("fp16")) and "one process" in str(reason(processes=2))
    assert "sgd" in str(reason(optimizer="sgd")) and "compile" in str(reason(compile="on"))
    assert "kernels is off" in str(reason(kernels="off"))
    how = TrainingConfig(), Precision("float32", CPU), 1
    assert choose_way(model, objective, *how) == "calls"  # on a CPU, unless it is asked for
    model.head.linear = Own(32, 3)  # type: ignore[union-attr]
    assert reason() == "what Own asks of the host is not known"
    trainer.reader.close()
    with pytest.raises(UsageError, match=r"kernels graph is not for this training: it has no .*sgd"):
        make_tiny("classify", "transformer", tmp_path, kernels="graph", optimizer="sgd")
