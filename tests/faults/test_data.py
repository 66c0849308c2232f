"""Ways in which data gave wrong results without a word, each as a program.

Now it is said, and the results are those of what was not touched.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import glassformer as gf
from glassformer.cli.main import app
from glassformer.core.errors import DataError, UsageError
from glassformer.data import shards, sources

FLIPS = int(os.environ.get("GLASSFORMER_CACHE_FLIPS", "12"))
GLASSFORMER = [sys.executable, "-m", "glassformer"]
SMALL = {"model.layers": 1, "model.heads": 2, "model.width": 16, "model.context": 16, "training.steps": 4}
SMALL |= {"training.batch": 4, "training.compile": "off", "training.device": "cpu", "tokenizer.kind": "byte"}
SETTINGS = [argument for key, value in SMALL.items() for argument in ("--set", f"{key}={value}")]


def prose(lines: int, seed: int = 0) -> str:
    draw = random.Random(seed)
    words = [a + b for a in ("ri", "sto", "brid", "lan") for b in ("ver", "ne", "ge", "tern", "gate")]
    ends = (".\n", ".\n", ".\n\n")
    return "".join(" ".join(draw.choices(words, k=9)) + ends[i % 3] for i in range(lines))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text(prose(4000))
    return tmp_path


def command(*arguments: str, stdin: bytes | None = None) -> dict[str, object]:
    done = CliRunner().invoke(app, [*arguments, "--json"], input=stdin)
    assert done.exit_code == 0, (done.output, done.exception)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(done.stdout, parse_constant=refuse)


def weights(run: str | Path) -> bytes:
    return Path(run, "model.safetensors").read_bytes()


def mutate(path: Path, draw: random.Random, others: list[Path]) -> str:
    """Change a file as disks, people and programs do."""
    data = path.read_bytes()
    kind = draw.choice(["flip", "flips", "cut", "empty", "gone", "longer", "zeros", "exchanged", "another's"])
    at = draw.randrange(max(1, len(data)))
    changed = bytearray(data)
    match kind:
        case "flip" if data:
            changed[at] ^= 1 << draw.randrange(8)
        case "flips" if data:
            for _ in range(20):
                changed[draw.randrange(len(data))] = draw.randrange(256)
        case "cut":
            del changed[at:]
        case "empty":
            changed.clear()
        case "longer":
            changed += bytes(draw.randrange(1, 9))
        case "zeros":
            changed[at : at + 512] = bytes(len(changed[at : at + 512]))
        case "exchanged" if len(data) > 600:
            half = len(data) // 2
            changed = bytearray(data[half:] + data[:half])
        case "another's":
            changed = bytearray(draw.choice(others).read_bytes())
        case _:
            path.unlink()
            return f"{path.name}: gone"
    path.write_bytes(changed)
    return f"{path.name}: {kind} at {at}"


def test_a_damaged_cache_changes_no_result(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards and digests, changed at random: evaluating and training give what they gave."""
    monkeypatch.setattr(shards, "SHARD_TOKENS", 60_000)
    gf.train("a.txt", out="run", settings=SMALL)
    expected, trained = command("eval", "run"), weights("run")
    whole = shutil.copytree(folder / "cache", folder / "whole cache")
    draw = random.Random(1)
    for number in range(FLIPS):
        shutil.rmtree(folder / "cache")
        shutil.copytree(whole, folder / "cache")
        files = sorted(p for p in (folder / "cache" / "shards").rglob("*") if p.is_file())
        told = mutate(draw.choice(files), draw, files)
        assert command("eval", "run") == expected, told
        if number % 4 == 0:
            shutil.rmtree(folder / "again", ignore_errors=True)
            gf.train("a.txt", out="again", settings=SMALL)
            assert weights("again") == trained, told


def test_a_damaged_source_is_said(folder: Path) -> None:
    """A text, changed at random: measuring refuses it, and so does going on."""
    gf.train("a.txt", out="run", settings=SMALL)
    text, draw = (folder / "a.txt").read_bytes(), random.Random(2)
    (folder / "b.txt").write_text(prose(3000, seed=1))
    for _ in range(FLIPS):
        (folder / "a.txt").write_bytes(text)
        told = mutate(folder / "a.txt", draw, [folder / "b.txt"])
        shown = CliRunner().invoke(app, ["eval", "run"])
        assert isinstance(shown.exception, SystemExit | None), (told, shown.exception)
        assert shown.exit_code in (1, 2) and "Error: " in shown.output, told
        shown = CliRunner().invoke(app, ["train", "a.txt", "--out", "run", "--resume"])
        assert shown.exit_code in (1, 2) and "Error: " in shown.output, told


def test_a_source_that_changes_is_said(folder: Path) -> None:
    """A file that is another one for a while leaves nothing in the cache."""
    text = (folder / "a.txt").read_bytes()
    gf.train("a.txt", out="run", settings=SMALL)
    shutil.rmtree(folder / "cache")
    opened = sources.Corpus.parts
    changes: list[int] = []

    def parts(self: sources.Corpus, unit: int) -> object:
        if not changes:
            changes.append(1)
            (folder / "a.txt").write_bytes(text.replace(b"stone", b"stove"))
        return opened(self, unit)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources.Corpus, "parts", parts)
        with pytest.raises(DataError, match="has changed since it was opened"):
            gf.train("a.txt", out="poisoned", settings=SMALL)
    assert not (folder / "poisoned").exists()
    (folder / "a.txt").write_bytes(text)
    gf.train("a.txt", out="again", settings=SMALL)
    assert weights("again") == weights("run")


def test_copies_are_on_one_side(folder: Path) -> None:
    """Thirty files and a copy of each; a large and a small file of which the one holds the other."""
    (folder / "texts").mkdir()
    for i in range(30):
        for name in (f"{i}.txt", f"again {i}.txt"):
            (folder / "texts" / name).write_text(prose(60, seed=i))
    run = gf.train("texts", out="run", settings=SMALL | {"data.valid": 0.1, "data.test": 0.1})
    assert (
        run.config.data.split == "content" and max(run.data["overlap"][s] for s in ("valid", "test")) < 0.05
    )
    before = gf.train("texts", out="before", settings=SMALL | {"data.split": "name", "data.valid": 0.1})
    assert before.data["overlap"]["valid"] > 0.5  # as it was, and is said now


def test_a_run_inside_its_own_source(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = folder / "texts"
    texts.mkdir()
    shutil.move(folder / "a.txt", texts)
    monkeypatch.chdir(texts)
    first = command("train", ".", *SETTINGS)
    assert first["run"] == "runs/run"
    assert command("eval", "runs/run")["loss"] == first["valid"]["loss"]  # type: ignore[index]
    command("train", ".", "--out", "runs/run", "--resume")
    command("train", ".", "--out", "runs/many", "--sweep", "training.seed=0,1", *SETTINGS)
    second = command("train", ".", "--out", "other", *SETTINGS)
    pattern = command("train", "**/*", "--out", "third", *SETTINGS)
    assert weights("other") == weights("runs/run") == weights("third") and second and pattern
    with pytest.raises(DataError, match="is a run directory"):
        gf.train("runs/run", out="fourth")


def test_an_old_run_keeps_its_split(folder: Path) -> None:
    """Its config.yaml does not say how it was divided: as there was but one way."""
    run = gf.train("a.txt", out="run", settings=SMALL | {"data.split": "name"})
    text = (run.path / "config.yaml").read_text()
    assert "  split: name\n" in text
    (run.path / "config.yaml").write_text(text.replace("  split: name\n", ""))
    old = gf.load("run")
    assert old.config.data.split == "name" and old.evaluate().as_dict() == run.result["valid"]
    gf.train("a.txt", out="run", resume=True)
    with pytest.raises(UsageError, match=r"data\.split: name → content"):
        gf.train("a.txt", out="run", settings={"data.split": "content"}, resume=True)


def test_unknown_words_are_said_wherever_bits_are(folder: Path) -> None:
    words = [*SETTINGS, "--set", "tokenizer.kind=word", "--set", "tokenizer.vocab=6"]
    done = subprocess.run(
        [*GLASSFORMER, "train", "a.txt", "--out", "run", *words], capture_output=True, text=True, check=True
    )
    bits = [line for line in (done.stdout + done.stderr).splitlines() if "bits/byte" in line]
    assert bits and all("<unk>, not comparable" in line for line in bits)
    assert "of the tokens are <unk>" in done.stderr
    result = command("eval", "run")
    assert 0.3 < float(str(result["unknown_share"])) < 1
    shown = CliRunner().invoke(app, ["eval", "run"]).output
    assert "<unk>, not comparable" in shown
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    assert all("bits_per_byte" not in line or "unknown_share" in line for line in lines)


@pytest.mark.parametrize("linked", [True, False])
def test_standard_input_outlives_the_cache(
    folder: Path, linked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not linked:

        def refuse(*_: object) -> None:
            raise OSError("no links here")

        monkeypatch.setattr(os, "link", refuse)
    text = (folder / "a.txt").read_bytes()
    first = command("train", "-", "--out", "run", *SETTINGS, stdin=text)
    for evaluated in (False, True):
        shutil.rmtree(folder / "cache")
        if evaluated:
            assert command("eval", "run")["loss"] == first["valid"]["loss"]  # type: ignore[index]
        else:
            command("train", "-", "--out", "run", "--resume")
    moved = shutil.move(folder / "run", folder / "elsewhere")
    shutil.rmtree(folder / "cache")
    assert command("eval", str(moved))["loss"] == first["valid"]["loss"]  # type: ignore[index]
    shutil.rmtree(folder / "cache")
    shutil.rmtree(folder / "elsewhere" / "stdin")
    with pytest.raises(DataError, match=r"came through standard input .* Put the same text there again: cat"):
        gf.load(moved).evaluate()


def test_a_beginning_killed_inside_its_own_source(folder: Path) -> None:
    """Killed after its first file, the seal, a run is begun again on the texts alone."""
    texts = folder / "texts"
    texts.mkdir()
    for i in range(3):
        (texts / f"{i}.txt").write_text(prose(2000, seed=i))
    whole = gf.train(str(texts), out="elsewhere", settings=SMALL)
    begun = texts / "runs" / "x"
    begun.mkdir(parents=True)
    shutil.copy(whole.path / "seal.json", begun)
    (begun / ".lock").touch()
    again = gf.train(str(texts), out=begun, settings=SMALL)
    assert again.data["text_fingerprint"] == whole.data["text_fingerprint"]
    assert again.evaluate().loss == whole.evaluate().loss
