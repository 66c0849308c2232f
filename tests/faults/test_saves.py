"""Saving goes wrong at every place where it can, and files rot: a whole checkpoint is found each time."""

import errno
import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from glassformer.core.errors import DiskError, RunError
from glassformer.training.checkpoint.seal import find_damage
from glassformer.training.checkpoint.weights import save_tensors
from glassformer.training.checkpoint.write import latest_checkpoint
from tests.training.small import configure, make_trainer, weights

FLIPS = int(os.environ.get("GLASSFORMER_FLIPS", "150"))


class Killed(BaseException):
    """The end of a process, as far as a test can play it: nothing that cleans up is to be relied on."""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with a checkpoint at step 2."""
    trainer = make_trainer(tmp_path, configure(keep=2))
    for _ in range(2):
        trainer.step(trainer.model)
    trainer._save()
    return tmp_path


def calls_of_a_save(monkeypatch: pytest.MonkeyPatch, act: Callable[[int, str], None]) -> None:
    """Have `act` called with number and kind of each write, sync, rename and removal, before it is done."""
    count = [0]

    def before(kind: str, function: Any) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            count[0] += 1
            act(count[0], kind)
            return function(*args, **kwargs)

        return called

    monkeypatch.setattr(os, "fsync", before("sync", os.fsync))
    monkeypatch.setattr(Path, "replace", before("rename", Path.replace))
    monkeypatch.setattr(os, "open", before("open", os.open))
    monkeypatch.setattr(shutil, "rmtree", before("remove", shutil.rmtree))
    monkeypatch.setattr("glassformer.training.checkpoint.weights.save_file", before("write", _save_file()))


def _save_file() -> Any:
    from glassformer.training.checkpoint import weights as module

    return module.save_file


def next_save(run: Path) -> Any:
    """A trainer that went on from the newest checkpoint, two steps later."""
    trainer = make_trainer(run, configure(keep=2), seed=5)
    newest = latest_checkpoint(run / "checkpoints")
    assert newest is not None
    trainer.resume(newest)
    for _ in range(2):
        trainer.step(trainer.model)
    return trainer


def how_many(run: Path) -> int:
    numbers: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        trainer = next_save(run)
        calls_of_a_save(patch, lambda n, _: numbers.append(n))
        trainer._save()
    return max(numbers)


@pytest.mark.parametrize("fault", ["full disk", "killed"])
def test_a_fault_at_every_place_of_a_save(
    run: Path, tmp_path_factory: pytest.TempPathFactory, fault: str
) -> None:
    whole = make_trainer(tmp_path_factory.mktemp("whole"), configure())
    expected = {}
    for step in range(1, 5):
        whole.step(whole.model)
        expected[step] = weights(whole)
    count = how_many(shutil.copytree(run, tmp_path_factory.mktemp("count") / "run"))
    assert count >= 15
    for place in range(1, count + 1):
        folder = shutil.copytree(run, tmp_path_factory.mktemp("fault") / "run")
        trainer = next_save(folder)

        def act(n: int, kind: str, place: int = place) -> None:
            if fault == "killed" and n >= place:
                raise Killed  # also for whatever would clean up
            if n == place and kind != "remove":
                raise OSError(errno.ENOSPC, "no space left on device")

        with pytest.MonkeyPatch.context() as patch:
            calls_of_a_save(patch, act)
            with suppress(Killed, DiskError):
                trainer._save()
        newest = latest_checkpoint(folder / "checkpoints")
        assert newest is not None
        again = make_trainer(folder, configure(keep=2), seed=7)
        again.resume(newest)
        assert again.progress.step in (2, 4)
        for name, value in weights(again).items():
            assert torch.equal(value, expected[again.progress.step][name])
        while again.progress.step < 4:
            again.step(again.model)
        again._save()  # and saving goes on from there
        assert all(torch.equal(v, expected[4][n]) for n, v in weights(again).items())
        assert find_damage(folder / "checkpoints" / "step-00000004") is None


def test_every_flipped_bit_is_found_and_the_older_checkpoint_named(run: Path) -> None:
    next_save(run)._save()
    old, new = sorted((run / "checkpoints").glob("step-*"))
    files = sorted(new.iterdir())
    assert {p.name for p in files} >= {
        "seal.json",
        "state.json",
        "model.safetensors",
        "optimizer.safetensors",
    }
    chance = random.Random(0)
    for _ in range(FLIPS):
        path = chance.choice(files)
        data = path.read_bytes()
        if not data:
            continue
        bit = chance.randrange(8 * len(data))
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        warnings: list[str] = []
        assert latest_checkpoint(run / "checkpoints", warnings.append) == old, f"{path.name}, bit {bit}"
        (warning,) = warnings
        assert "step-00000004 is damaged" in warning and "step-00000002" in warning
        path.write_bytes(data)
    assert latest_checkpoint(run / "checkpoints") == new


def test_a_missing_file_is_named_and_nothing_whole_is_an_error(run: Path) -> None:
    (only,) = (run / "checkpoints").glob("step-*")
    (only / "optimizer.safetensors").unlink()
    with pytest.raises(RunError, match=r"optimizer\.safetensors is missing.*start a new run"):
        latest_checkpoint(run / "checkpoints")


def test_a_lost_pointer_does_not_matter(run: Path) -> None:
    (run / "checkpoints" / "latest.json").unlink()
    assert latest_checkpoint(run / "checkpoints") == run / "checkpoints" / "step-00000002"


def test_checkpoints_from_before_there_were_seals_are_opened(run: Path) -> None:
    (only,) = (run / "checkpoints").glob("step-*")
    (only / "seal.json").unlink()
    assert latest_checkpoint(run / "checkpoints") == only


def test_the_newest_is_never_pruned(run: Path) -> None:
    """Not even when a damaged one with a higher number lies beside it."""
    later = run / "checkpoints" / "step-00000099"
    shutil.copytree(next((run / "checkpoints").glob("step-*")), later)
    (later / "model.safetensors").write_bytes(b"rot")
    trainer = next_save(run)
    trainer.config.keep = 1
    trainer._save()
    (left,) = (run / "checkpoints").glob("step-*")
    assert left.name == "step-00000004" and find_damage(left) is None


def test_tensors_are_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.safetensors"
    save_tensors({"a": torch.ones(3)}, path)

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr("glassformer.training.checkpoint.weights.save_file", fail)
    with pytest.raises(DiskError, match="the disk is full"):
        save_tensors({"a": torch.zeros(3)}, path)
    assert torch.equal(load_file(path)["a"], torch.ones(3)) and list(tmp_path.iterdir()) == [path]
