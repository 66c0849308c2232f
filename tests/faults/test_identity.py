"""A run is what was written, whichever of its files is changed: eval, generate, look and compare name it."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import glassformer as gf
from glassformer.cli.main import app
from glassformer.core.errors import RunError
from glassformer.training.checkpoint.run_seal import WEIGHTS, find_seal, load_sealed, save_run_weights
from tests.faults.kill import report
from tests.faults.test_links import SMALL

ROOT = Path(__file__).parents[2]
KEPT = Path(__file__).parents[1] / "kept" / "run"
CASES = os.environ.get("GLASSFORMER_FUZZ", "40")
COMMANDS = {
    "eval": ["eval"],
    "generate": ["generate", "--tokens", "2"],
    "look": ["look", "item"],
    "compare": ["compare"],
}


def permute(run: Path) -> None:
    """The same tokens under other ids."""
    content = json.loads((run / "tokenizer.json").read_text())
    vocab = content["model"]["vocab"]
    (a, first), (b, second) = list(vocab.items())[3:5]
    vocab[a], vocab[b] = second, first
    (run / "tokenizer.json").write_text(json.dumps(content))


def setting(section: str, name: str, value: object) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        content = yaml.safe_load((run / "config.yaml").read_text())
        assert content[section][name] != value
        content[section][name] = value
        (run / "config.yaml").write_text(yaml.safe_dump(content))

    return change


def flip_weights(run: Path) -> None:
    data = bytearray((run / WEIGHTS).read_bytes())
    data[-5] ^= 64
    (run / WEIGHTS).write_bytes(data)


def other_weights(run: Path) -> None:
    """Of the same shapes: another training's."""
    tensors = {name: torch.zeros_like(t) for name, t in load_file(run / WEIGHTS).items()}
    save_file(tensors, run / WEIGHTS)


def digit_in(name: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        text = (run / name).read_text()
        (run / name).write_text(text.replace("1", "2", 1) if "1" in text else text.replace("2", "1", 1))

    return change


CHANGES: dict[str, tuple[Callable[[Path], object], str, tuple[str, ...]]] = {
    "a permuted tokenizer": (permute, "tokenizer.json is not what was written", ("eval", "generate", "look")),
    "another activation": (setting("model", "activation", "relu"), "model.activation", tuple(COMMANDS)),
    "another position": (setting("model", "position", "none"), "model.position", tuple(COMMANDS)),
    "an older format": (lambda run: setting_version(run), "format_version", tuple(COMMANDS)),
    "a bit of the weights": (
        flip_weights,
        f"{WEIGHTS} is not what was written",
        ("eval", "generate", "look"),
    ),
    "other weights": (other_weights, f"{WEIGHTS} is not what was written", ("eval", "generate", "look")),
    "the result": (digit_in("result.json"), "result.json is not what was written", ("compare",)),
    "the record": (digit_in("metrics.jsonl"), "metrics.jsonl is not what was written", ("compare",)),
    "the data": (digit_in("data.json"), "data.json is not what was written", ("eval", "compare")),
    "the seal": (digit_in("seal.json"), "cannot be taken for a seal", tuple(COMMANDS)),
    "no seal": (lambda run: (run / "seal.json").unlink(), "seal.json is missing", tuple(COMMANDS)),
}


def setting_version(run: Path) -> None:
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("format_version: 2", "format_version: 1"))


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory, text_file: Path) -> Path:
    return gf.train(text_file, out=tmp_path_factory.mktemp("good") / "run", settings=SMALL).path


def ask(command: str, run: Path) -> tuple[int, str]:
    name, *more = COMMANDS[command]
    shown = CliRunner().invoke(app, [name, str(run), *more])
    assert shown.exception is None or isinstance(shown.exception, SystemExit), shown.exception
    return shown.exit_code, shown.output


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_file_is_named(name: str, good: Path, tmp_path: Path) -> None:
    change, words, commands = CHANGES[name]
    run = shutil.copytree(good, tmp_path / "run")
    for command in commands:
        assert ask(command, run)[0] == 0
    change(run)
    for command in commands:
        code, said = ask(command, run)
        assert code == 1 and words in said, (command, said)
        assert len([line for line in said.splitlines() if line.startswith("Error")]) == 1


def test_what_may_change_may_be_edited(good: Path, tmp_path: Path) -> None:
    """Where the text lies, the device, and how often to save: no number depends on them."""
    run = shutil.copytree(good, tmp_path / "run")
    before = ask("eval", run)
    moved = shutil.copy(yaml.safe_load((run / "config.yaml").read_text())["data"]["source"], tmp_path)
    setting("data", "source", str(moved))(run)
    setting("training", "keep", 7)(run)
    (run / "config.yaml").write_text("# a note of mine\n" + (run / "config.yaml").read_text())
    assert ask("eval", run) == before


def test_an_edit_of_the_settings_is_told_the_legal_way(good: Path, tmp_path: Path) -> None:
    run = shutil.copytree(good, tmp_path / "run")
    setting("model", "activation", "relu")(run)
    with pytest.raises(RunError, match=r"model\.activation: .* → relu.*settings=.*init="):
        gf.load(run)


def test_an_older_run_opens_and_is_said_to_be_unsealed(tmp_path: Path) -> None:
    run = shutil.copytree(KEPT, tmp_path / "run")
    shown = CliRunner().invoke(app, ["generate", str(run), "Xq3", "--tokens", "3", "--json"])
    assert shown.exit_code == 0 and "is unsealed" in shown.stderr and shown.stderr.count("\n") == 1
    assert not gf.load(run).is_sealed


def test_weights_that_are_replaced_while_they_are_read(good: Path, tmp_path: Path) -> None:
    """A training saves better ones all the time: a reader gets one of them whole, and no false alarm."""
    run = shutil.copytree(good, tmp_path / "run")
    tensors, stop, saves = load_file(run / WEIGHTS), threading.Event(), [0]

    def save() -> None:
        saves[0] += 1
        save_run_weights({n: torch.full_like(t, saves[0]) for n, t in tensors.items()}, run)

    def keep_saving() -> None:
        while not stop.wait(0.02):
            save()

    save()
    thread = threading.Thread(target=keep_saving)
    thread.start()
    try:
        reads = 0
        while (reads < 30 or saves[0] < 3) and thread.is_alive():  # until it was replaced meanwhile
            reads += 1
            values = load_sealed(run, WEIGHTS, load_file, True).values()
            assert len({float(t.flatten()[0]) for t in values}) == 1
    finally:
        stop.set()
        thread.join()
    seal = find_seal(run)
    assert saves[0] > 1 and seal is not None and len(seal.files[WEIGHTS]) == 1


def test_a_kill_between_the_seal_and_the_weights(good: Path, tmp_path: Path) -> None:
    """Whichever of the two are there, they are sealed."""

    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    run = shutil.copytree(good, tmp_path / "run")
    tensors = load_file(run / WEIGHTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "chmod", die)  # after the weights were written, before they are renamed
        with pytest.raises(Killed):
            save_run_weights(tensors, run)
    assert ask("generate", run)[0] == 0
    save_run_weights({n: t + 1 for n, t in tensors.items()}, run)
    assert ask("generate", run)[0] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_damaged_files_are_refused_or_make_no_difference(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.faults.fuzz", str(tmp_path), CASES]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=3000, env=environment
    )
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    report(f"{counts}\n")
    assert counts["wrong"] == [] and counts["outcomes"]["refused"] > 0
