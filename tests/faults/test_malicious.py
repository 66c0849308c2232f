"""Files made to harm: none of them runs anything, writes anywhere, hangs or ends in a traceback."""

import gzip
import json
import os
import pickle
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import glassformer as gf
from glassformer.cli.main import app
from glassformer.interop.huggingface import read_gpt2  # noqa: F401  (loaded before anything is timed)

SMALL = {"model.layers": 1, "model.heads": 2, "model.width": 16, "model.context": 16, "training.steps": 2}
SMALL |= {"training.batch": 2, "training.compile": "off", "training.device": "cpu", "tokenizer.kind": "bpe"}
SMALL |= {"tokenizer.vocab": 300}
CANARY = "canary"


class Payload:
    """What a pickle would run."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {CANARY}",)


def header(content: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(shape: list[int], offsets: list[int], dtype: str = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def laughs(depth: int = 12) -> str:
    """Ten times ten times ten …: small on the disk, endless when written out."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, depth)]
    return "\n".join([*lines, f"model: {{layers: *a{depth - 1}}}", "format_version: 1"])


def yaml_with(text: str) -> Callable[[Path], None]:
    return lambda run: (run / "config.yaml").write_text(text) and None


def setting(key: str, value: object) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        import yaml

        content = yaml.safe_load((run / "config.yaml").read_text())
        section, name = key.split(".")
        content[section][name] = value
        (run / "config.yaml").write_text(yaml.safe_dump(content))

    return change


def put_file(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda run: (run / name).write_bytes(data) and None


def tokenizer_with(change: Callable[[dict], object]) -> Callable[[Path], None]:
    def edit(run: Path) -> None:
        content = json.loads((run / "tokenizer.json").read_text())
        change(content)
        (run / "tokenizer.json").write_text(json.dumps(content))

    return edit


def linked(name: str, to: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        (run / name).unlink()
        (run / name).symlink_to(to)

    return change


def pipe(name: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        (run / name).unlink()
        os.mkfifo(run / name)

    return change


PICKLE = pickle.dumps(Payload())
DEEP = b"[" * 100_000 + b"]" * 100_000
SAFETENSORS: dict[str, bytes] = {
    "a pickle": PICKLE,
    "empty": b"",
    "one byte": b"\0",
    "a header of 2^63 bytes": header({}, length=1 << 63),
    "a header longer than the file": header({}, length=10_000),
    "a header that is no JSON": header(b"{" * 50),
    "a deep header": header(DEEP),
    "a header that is a list": header([1, 2, 3]),
    "shapes that lie": header({"a": tensor([1000, 1000], [0, 4])}, b"\0" * 4),
    "a shape of 10^18": header({"a": tensor([10**9, 10**9], [0, 4])}, b"\0" * 4),
    "negative shapes": header({"a": tensor([-1], [0, 4])}, b"\0" * 4),
    "offsets beyond the end": header({"a": tensor([1], [0, 1 << 40])}, b"\0" * 4),
    "offsets backwards": header({"a": tensor([1], [4, 0])}, b"\0" * 4),
    "overlapping tensors": header({"a": tensor([2], [0, 8]), "b": tensor([2], [4, 12])}, b"\0" * 12),
    "a hole between tensors": header({"a": tensor([1], [0, 4]), "b": tensor([1], [8, 12])}, b"\0" * 12),
    "an unknown type": header({"a": tensor([1], [0, 4], "PYOBJ")}, b"\0" * 4),
    "tensors of another model": header({"a": tensor([1], [0, 4])}, b"\0" * 4),
    "a bomb of zeros": gzip.compress(bytes(50_000_000)),
}
RUNS: dict[str, Callable[[Path], object]] = {
    **{f"weights: {name}": put_file("model.safetensors", data) for name, data in SAFETENSORS.items()},
    "weights: a pipe": pipe("model.safetensors"),
    "weights: a link to a device": linked("model.safetensors", "/dev/zero"),
    "weights: a link to itself": linked("model.safetensors", "model.safetensors"),
    "config: runs a command": yaml_with(f"!!python/object/apply:os.system ['touch {CANARY}']"),
    "config: makes an object": yaml_with("model: !!python/name:os.system"),
    "config: a billion laughs": yaml_with(laughs()),
    "config: deep": put_file("config.yaml", b"{a: " * 5000 + b"1" + b"}" * 5000),
    "config: a pickle": put_file("config.yaml", PICKLE),
    "config: empty": put_file("config.yaml", b""),
    "config: a list": yaml_with("- 1\n- 2"),
    "config: another format": yaml_with("format_version: 99999999999999999999"),
    "config: a billion layers": setting("model.layers", 10**9),
    "config: a trillion wide": setting("model.width", 10**12),
    "config: a trillion words": setting("model.vocab", 10**12),
    "config: a trillion positions": setting("model.context", 10**12),
    "config: minus one head": setting("model.heads", -1),
    "config: not a number": setting("model.width", float("nan")),
    "config: a path for a name": setting("model.family", "../../etc/passwd"),
    "config: a pipe": pipe("config.yaml"),
    "tokenizer: a pickle": put_file("tokenizer.json", PICKLE),
    "tokenizer: deep": put_file("tokenizer.json", DEEP),
    "tokenizer: a number": put_file("tokenizer.json", b"1e999"),
    "tokenizer: ids of 10^12": tokenizer_with(lambda c: c["model"]["vocab"].update(zz=10**12)),
    "tokenizer: ids twice": tokenizer_with(lambda c: c["model"]["vocab"].update(zz=3)),
    "tokenizer: a merge of nothing": tokenizer_with(lambda c: c["model"].update(merges=[["q", "nowhere"]])),
    "tokenizer: merges as numbers": tokenizer_with(lambda c: c["model"].update(merges=[1, 2])),
    "tokenizer: no vocabulary": tokenizer_with(lambda c: c["model"].update(vocab={})),
    "tokenizer: another kind": tokenizer_with(lambda c: c["model"].update(type="Unigram")),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory, text_file: Path) -> Path:
    """An unsealed run, as older versions made them: a seal would refuse these files before they are read."""
    run = gf.train(text_file, out=tmp_path_factory.mktemp("good") / "run", settings=SMALL)
    run.generate("item", 2)
    run.look("item")
    (run.path / "seal.json").unlink()
    config = run.path / "config.yaml"
    config.write_text(config.read_text().replace("format_version: 2", "format_version: 1"))
    return run.path


@pytest.mark.parametrize("name", RUNS)
def test_a_run_made_to_harm_gets_a_clear_error(
    name: str, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shutil.copytree(good, tmp_path / "run")
    RUNS[name](run)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    began = time.perf_counter()
    shown = CliRunner().invoke(app, ["generate", "run", "a" * 40, "--tokens", "2"])
    seconds = time.perf_counter() - began
    assert isinstance(shown.exception, SystemExit) and shown.exit_code in (1, 2), (
        shown.output,
        shown.exception,
    )
    assert "Error" in shown.output and len(shown.output) < 2000
    assert sorted(tmp_path.rglob("*")) == before  # no canary, nothing written anywhere
    assert seconds < 3, seconds  # well below one, on a machine that does nothing else


@pytest.mark.parametrize("pattern", ["(a|aa|a?)+$", "(a+)+b", "(x+x+)+y", r"(.*)*\1{9}"])
def test_a_hostile_pattern_does_not_hang(pattern: str, good: Path, tmp_path: Path) -> None:
    """It may do its harmless work, or be refused; both at once."""
    run = shutil.copytree(good, tmp_path / "run")
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    tokenizer_with(lambda c: c["pre_tokenizer"]["pretokenizers"].__setitem__(0, split))(run)
    began = time.perf_counter()
    shown = CliRunner().invoke(app, ["generate", str(run), "a" * 30 + "x" * 30, "--tokens", "2"])
    assert shown.exception is None or isinstance(shown.exception, SystemExit), shown.exception
    assert time.perf_counter() - began < 15  # what a pattern of the user's own may take


@pytest.mark.parametrize("name", SAFETENSORS)
def test_a_folder_to_import_made_to_harm(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "hf"
    folder.mkdir()
    tokenizer = gf.BPE.train(["a few words of text"] * 3, 260, pattern="gpt2")
    tokenizer.save(folder / "tokenizer.json")
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 1, "n_positions": 8, "vocab_size": len(tokenizer)}
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", **sizes}))
    (folder / "model.safetensors").write_bytes(SAFETENSORS[name])
    (folder / "pytorch_model.bin").write_bytes(PICKLE)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    shown = CliRunner().invoke(app, ["import", "hf", "run"])
    assert isinstance(shown.exception, SystemExit) and shown.exit_code == 1, (shown.output, shown.exception)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["/etc/passwd", "../../../etc/passwd", "a/b"])
def test_a_seal_reads_only_its_own_folder(name: str, good: Path, tmp_path: Path) -> None:
    from glassformer.training.checkpoint.seal import _text, find_damage

    run = shutil.copytree(good, tmp_path / "run")
    (checkpoint,) = (run / "checkpoints").glob("step-*")
    (checkpoint / "seal.json").write_text(_text({name: "0" * 64}))
    assert "outside" in (find_damage(checkpoint) or "")


def test_the_payload_would_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the tests above could not fail."""
    monkeypatch.chdir(tmp_path)
    pickle.loads(PICKLE)
    assert (tmp_path / CANARY).exists()
    assert torch.load is not None
