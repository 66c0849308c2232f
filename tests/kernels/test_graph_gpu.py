"""Graphs of PyTorch's kernels, on a GPU: training steps of all families and tasks, steps of a generation."""

import time
from pathlib import Path

import numpy as np
import pytest
import torch

from glassformer.generation.engine import Engine
from glassformer.generation.gpu import graphs, repeats
from glassformer.generation.open_step import OpenStep
from glassformer.generation.sampling import Sampler
from glassformer.models.model import LanguageModel
from glassformer.training.checkpoint.write import latest_checkpoint
from glassformer.training.device.step import DeviceStep
from tests.generation.test_repeats import STACKS
from tests.generation.test_seq2seq import SOURCES, drawn, translator
from tests.generation.writing import GREEDY, Told, run
from tests.models.families import READERS, ids, make
from tests.models.test_learning import EVERY, MEASURED, STEPS, entropy, make_tiny

GPU = torch.device("cuda")
DROPOUT = {"dropout": 0.2}


def trained(folder: Path, name: str, family: str, steps: int = 12, **training: object) -> list[float]:
    trainer = make_tiny(name, family, folder, "cuda", DROPOUT, kernels="graph", **training)
    losses = [trainer.step(trainer.model, ahead=i + 1 < steps)["loss"] for i in range(steps)]
    trainer.reader.close()
    return losses


@pytest.mark.parametrize(("name", "family"), EVERY)
def test_a_graph_is_the_calls_it_records(
    name: str, family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same dropout too. Not to the bit: sums of PyTorch's kernels are taken as they come."""
    for extra in ({"precision": "bf16"}, {"precision": "float32", "accumulate": 2, "optimizer": "adamw"}):
        graphed = trained(tmp_path / "a", name, family, **extra)
        with monkeypatch.context() as patch:
            patch.setattr(DeviceStep, "_replay", DeviceStep._work)
            called = trained(tmp_path / "b", name, family, **extra)
        assert graphed == pytest.approx(called, rel=3e-3)


@pytest.mark.parametrize(("name", "family"), EVERY)
def test_it_learns(name: str, family: str, tmp_path: Path) -> None:
    trainer = make_tiny(name, family, tmp_path, "cuda", kernels="graph")
    losses = [trainer.step(trainer.model, ahead=i + 1 < STEPS)["loss"] for i in range(STEPS)]
    trainer.reader.close()
    assert np.mean(losses[-MEASURED:]) < 0.9 * entropy(trainer.objective)
    assert trainer.device_step is not None and trainer.device_step.recorded


@pytest.mark.parametrize(("name", "family"), [("language", "lstm"), ("translate", "transformer")])
def test_a_run_goes_back(name: str, family: str, tmp_path: Path) -> None:
    """To a checkpoint, after it has recorded steps: with what was carried then, and on as before."""
    trainer = make_tiny(name, family, tmp_path, "cuda", DROPOUT, kernels="graph")
    for _ in range(7):
        trainer.step(trainer.model)
    trainer._save()
    found = []
    for _ in range(2):
        steps = []
        for _ in range(6):
            loss = trainer.step(trainer.model)["loss"]
            steps.append((loss, [t.float().mean().item() for t in trainer.objective.state_dict().values()]))
        found.append(steps)
        checkpoint = latest_checkpoint(tmp_path / "checkpoints")
        assert checkpoint is not None
        trainer.resume(checkpoint)
    trainer.reader.close()
    for (first, carried), (second, carried_too) in zip(*found, strict=True):
        assert first == pytest.approx(second, rel=3e-3)
        assert carried == pytest.approx(carried_too, rel=0.05, abs=2e-3)


@pytest.mark.parametrize("name", STACKS)
def test_texts_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "LEAST_REACH", 8)
    monkeypatch.setattr(repeats, "OFTEN", 3)
    model = make("language", name, context=24).to(GPU)
    assert isinstance(model, LanguageModel)
    wishes = [(9, Sampler(seed=5)), (3, GREEDY), (1, Sampler(0.7, seed=1)), (6, Sampler(seed=9))]
    found = []
    for fixed in (True, False):
        step = OpenStep(model, 12, repeats=fixed)
        engine = Engine(step, rows=3)
        told = [Told(engine, ids(n, seed=n).tolist(), 60, sampler) for n, sampler in wishes]
        run(engine)
        found.append([one.ids for one in told])
        if fixed:
            assert step._repeats is not None and len(step._repeats._graphs._recorded) > 1
    assert found[0] == found[1]


@pytest.mark.parametrize("name", [name for name in STACKS if name in READERS])
def test_translations_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "OFTEN", 2)
    model = translator(name).to(GPU)
    wishes = [(source, Sampler(0.9, seed=i)) for i, source in enumerate(SOURCES)] + [(SOURCES[0], GREEDY)]
    fixed, called = (drawn(OpenStep(model, 40, repeats=on), wishes, 6) for on in (True, False))
    assert fixed == called


def test_it_is_sooner() -> None:
    """Of a model that waits for launches; how much is measured in benchmarks."""
    model = make("language", "transformer", layers=6, width=64, heads=4, context=256).to(GPU)
    assert isinstance(model, LanguageModel)
    seconds = []
    for fixed in (False, True):
        engine = Engine(OpenStep(model, 20, repeats=fixed))
        Told(engine, [1], 40)
        run(engine)
        began = time.perf_counter()
        told = Told(engine, [2], 100)
        run(engine)
        seconds.append(time.perf_counter() - began)
        assert len(told.ids) == 100
    assert seconds[1] < 0.7 * seconds[0]
