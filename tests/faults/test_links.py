"""Links, names and kills in a run directory: nothing else is written, and any beginning can be resumed."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import glassformer as gf
from glassformer.core import files
from glassformer.core.errors import RunError, UsageError
from glassformer.core.lock import locked
from glassformer.training.checkpoint.write import checkpoints_in
from glassformer.training.log import MetricsLog
from tests.training.small import configure, make_trainer

SMALL: dict[str, Any] = {
    "tokenizer.kind": "char",
    "model.layers": 1,
    "model.heads": 2,
    "model.width": 16,
    "model.context": 16,
    "training.steps": 4,
    "training.batch": 2,
    "training.checkpoint_every": 2,
    "training.compile": "off",
    "training.device": "cpu",
}


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    path = tmp_path / "precious.txt"
    path.write_text("mine")
    return path


def test_a_lock_that_is_a_link_is_refused(tmp_path: Path, precious: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / ".lock").symlink_to(precious)
    with pytest.raises(RunError, match=r"\.lock is a link"), locked(run):
        pass
    assert precious.read_text() == "mine"


def test_a_log_that_is_a_link_or_a_pipe_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="is a link"):
        MetricsLog(tmp_path / "metrics.jsonl")
    assert not (tmp_path / "elsewhere").exists()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RunError, match="no file"):
        files.open_log(tmp_path / "pipe")


def test_a_link_where_a_file_is_to_be_is_replaced_not_followed(tmp_path: Path, precious: Path) -> None:
    link = tmp_path / "loss.svg"
    link.symlink_to(precious)
    files.write_atomically(link, "new")
    assert not link.is_symlink() and link.read_text() == "new" and precious.read_text() == "mine"
    with pytest.raises(RunError, match="no regular file"):
        files.write_atomically(Path("/dev/null"), "new")


def test_a_training_whose_plots_are_links(text_file: Path, tmp_path: Path, precious: Path) -> None:
    out = tmp_path / "run"
    gf.train(text_file, out=out, settings=SMALL)
    for name in ("loss.svg", "loss.png", "result.json"):
        (out / name).unlink()
        (out / name).symlink_to(precious)
    gf.train(text_file, out=out, settings=SMALL, resume=True)
    assert precious.read_text() == "mine" and not (out / "loss.svg").is_symlink()


def test_pruning_removes_only_real_folders_named_as_ours(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "step-00000001").mkdir(parents=True)
    run = tmp_path / "run"
    trainer = make_trainer(run, configure(keep=1))
    checkpoints = run / "checkpoints"
    checkpoints.mkdir(parents=True)
    for name in ("step-00000000-mybackup", "step-1", "step-00000001.old"):
        (checkpoints / name).mkdir()
    (checkpoints / "step-00000000").symlink_to(outside / "step-00000001")
    for _ in range(3):
        trainer.step(trainer.model)
        trainer._save()
    assert [p.name for p in checkpoints_in(checkpoints)] == ["step-00000003"]
    kept = {p.name for p in checkpoints.iterdir()} - {"latest.json"}
    assert kept == {
        "step-00000000-mybackup",
        "step-1",
        "step-00000001.old",
        "step-00000000",
        "step-00000003",
    }
    assert (outside / "step-00000001").is_dir()


def test_a_backup_beside_the_checkpoints_costs_none(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, configure(keep=2))
    (tmp_path / "checkpoints" / "step-00000015-mybackup").mkdir(parents=True)
    for _ in range(2):
        trainer.step(trainer.model)
        trainer._save()
    assert len(checkpoints_in(tmp_path / "checkpoints")) == 2


def test_a_linked_folder_of_checkpoints_is_refused_and_not_emptied(tmp_path: Path) -> None:
    outside, run = tmp_path / "outside", tmp_path / "run"
    (outside / "step-00000009").mkdir(parents=True)
    run.mkdir()
    (run / "checkpoints").symlink_to(outside)
    trainer = make_trainer(run, configure(keep=1))
    trainer.step(trainer.model)
    with pytest.raises(RunError, match="checkpoints is a link"):
        trainer._save()
    assert (outside / "step-00000009").is_dir()


@pytest.mark.parametrize("name", ["/tmp/outside", "../outside", "a/b", "..", "", "a\nb", "\x1b[31m"])
def test_a_variant_writes_nowhere_but_in_its_folder(name: str, text_file: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(json.dumps({"variants": {name: {"model": {"layers": 1}}, "b": {}}}))
    with pytest.raises(UsageError, match="is no name for a folder"):
        gf.sweep(text_file, recipe=str(recipe), out=tmp_path / "sweep", settings=SMALL)
    assert not (tmp_path / "outside").exists() and not Path("/tmp/outside").exists()


def test_a_sweep_over_paths_stays_in_its_folder(text_file: Path, tmp_path: Path) -> None:
    from glassformer.runs.sweep import _combinations

    labels = [names for names, _ in _combinations([("tokenizer.file", ["../../x.json", "/a/b.json"])])]
    assert labels == [["file=.._.._x.json"], ["file=_a_b.json"]]


def test_a_sweep_is_resumed_only_as_it_was_begun(text_file: Path, tmp_path: Path) -> None:
    grid, out = {"model.width": [16, 32]}, tmp_path / "sweep"
    runs = gf.sweep(text_file, grid, out=out, settings=SMALL)
    before = [(run.path / "result.json").read_bytes() for run in runs]
    again = gf.sweep(text_file, grid, out=out, settings=SMALL, resume=True)
    assert [(run.path / "result.json").read_bytes() for run in again] == before
    with pytest.raises(UsageError, match=r"training\.batch: 2 → 4"):
        gf.sweep(text_file, grid, out=out, settings={**SMALL, "training.batch": 4}, resume=True)
    other = tmp_path / "other.txt"
    other.write_text("another text altogether, of some length\n" * 200)
    with pytest.raises(UsageError, match=r"data\.source"):
        gf.sweep(other, grid, out=out, settings=SMALL, resume=True)
    with pytest.raises(UsageError, match="was begun from no other run"):
        gf.sweep(text_file, grid, out=out, settings=SMALL, init=str(runs[0].path), resume=True)
    text = text_file.read_bytes()
    try:
        text_file.write_bytes(text + b"one more line\n")
        with pytest.raises(RunError, match="is not the one"):
            gf.sweep(text_file, grid, out=out, settings=SMALL, resume=True)
    finally:
        text_file.write_bytes(text)


def killed_at(place: int, text: Path, out: Path, resume: bool) -> int:
    """Begin a run in a fork that is killed before its n-th rename or folder; gives how it ended."""
    child = os.fork()
    if child == 0:
        code, count = 70, [0]
        plain_replace, plain_mkdir = Path.replace, Path.mkdir

        def before(function: Any) -> Any:
            def called(self: Path, *args: Any, **kwargs: Any) -> Any:
                if self.is_relative_to(out):
                    count[0] += 1
                    if count[0] == place:
                        os.kill(os.getpid(), signal.SIGKILL)
                return function(self, *args, **kwargs)

            return called

        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            Path.replace, Path.mkdir = before(plain_replace), before(plain_mkdir)  # type: ignore[method-assign]
            gf.train(text, out=out, settings=SMALL, resume=resume)
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("resume", [False, True], ids=["train", "--resume"])
def test_a_beginning_killed_at_every_file_can_be_begun_again(
    resume: bool, text_file: Path, tmp_path: Path
) -> None:
    whole = gf.train(text_file, out=tmp_path / "whole", settings=SMALL)
    place, ended, states = 0, -1, set()
    while ended != 0:
        place += 1
        out = tmp_path / f"run{place}"
        ended = killed_at(place, text_file, out, resume)
        assert ended in (0, -signal.SIGKILL)
        is_run = (out / "config.yaml").is_file()
        states.add(
            tuple(sorted(p.name for p in out.iterdir() if not p.name.startswith("."))) if out.exists() else ()
        )
        # Before it is a run, both commands begin it; after that, it is resumed.
        gf.train(text_file, out=out, settings=SMALL, resume=resume or is_run)
        assert (out / "model.safetensors").read_bytes() == (whole.path / "model.safetensors").read_bytes()
        assert not [p for p in out.iterdir() if p.name.endswith(".tmp")]
        assert gf.load(out).result["valid"] == whole.result["valid"]
    assert {
        (),
        ("seal.json",),
        ("data.json", "seal.json"),
        ("data.json", "seal.json", "tokenizer.json"),
    } <= states


def test_a_folder_of_the_users_is_no_beginning(text_file: Path, tmp_path: Path) -> None:
    for name in ("tokenizer.json", "data.json", "seal.json"):
        out = tmp_path / name.partition(".")[0]
        out.mkdir()
        (out / name).write_text("{}")
        for resume in (False, True):
            with pytest.raises(RunError):
                gf.train(text_file, out=out, settings=SMALL, resume=resume)
        assert (out / name).read_text() == "{}"


def test_a_lock_held_by_a_frozen_process_is_said(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with locked(tmp_path):
            os.write(writer, b"x")
            time.sleep(60)
        os._exit(0)
    try:
        os.read(reader, 1)
        os.kill(child, signal.SIGSTOP)
        os.waitpid(child, os.WUNTRACED)
        for wait in (False, True):
            with (
                pytest.raises(RunError, match=f"process {child} .* frozen.*kill -CONT {child}"),
                locked(tmp_path, wait),
            ):
                pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
