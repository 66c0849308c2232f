"""Small files that unfold, never end or are none: refused with one line, within bounds."""

import json
import os
import resource
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

import glassformer as gf
from glassformer.cli.main import app
from glassformer.config.recipes import parse_overrides, parse_yaml, read_yaml
from glassformer.core.errors import DataError, RunError, UsageError
from glassformer.data.records import Parquet
from glassformer.interop.huggingface import read_gpt2
from tests.faults.test_malicious import laughs


def refused(*arguments: str) -> str:
    """What a command says that ends as a user's error does, in one line."""
    shown = CliRunner().invoke(app, list(arguments))
    assert isinstance(shown.exception, SystemExit) and shown.exit_code in (1, 2), shown.exception
    assert shown.output.startswith("Error: ") and len(shown.output) < 1000, shown.output[:2000]
    return shown.output


def test_an_alias_bomb_is_not_unfolded(tmp_path: Path) -> None:
    bomb = tmp_path / "recipe.yaml"
    bomb.write_text(laughs(9))
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    with pytest.raises(UsageError, match="aliases"):
        read_yaml(bomb)
    assert time.perf_counter() - began < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # kilobytes
    assert "aliases" in refused("train", "--recipe", str(bomb))
    with pytest.raises(UsageError):
        parse_overrides([f"model.layers={{{', '.join(laughs(9).splitlines()[:-2])}}}"])
    assert parse_yaml("a: &x [1, 2]\nb: *x") == {"a": [1, 2], "b": [1, 2]}  # a few are fine


def test_yaml_that_holds_itself_and_devices_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("a: &a [*a]")
    with pytest.raises(UsageError, match="aliases"):
        read_yaml(path)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(UsageError, match="no regular file"):
        read_yaml(path)
    (tmp_path / "long.yaml").touch()
    os.truncate(tmp_path / "long.yaml", 1 << 30)
    with pytest.raises(UsageError, match="more than"):
        read_yaml(tmp_path / "long.yaml")


def test_a_parquet_that_repeats_one_value_is_refused(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "bomb.parquet"
    values = arrow.DictionaryArray.from_arrays(arrow.array([0] * 6000, arrow.int32()), ["x" * 1_000_000])
    parquet.write_table(arrow.table({"text": values}), path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 100_000
    began, read = time.perf_counter(), 0
    with pytest.raises(DataError, match="unpacks to more than"):
        for part in Parquet(path, "bomb.parquet", "text").documents():
            read += len(part)
    assert read < 200_000_000 and time.perf_counter() - began < 30


def test_parquet_text_that_is_not_utf8_is_said(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "latin.parquet"
    raw = arrow.array([b"good", b"na\xefve"], arrow.binary())
    text = arrow.StringArray.from_buffers(2, *raw.buffers()[1:])
    parquet.write_table(arrow.table({"text": text}), path)
    with pytest.raises(DataError, match=r"row 2 is not UTF-8|UTF8"):
        list(Parquet(path, "latin.parquet", "text").documents())


@pytest.fixture
def gpt2(tmp_path: Path) -> Path:
    """A folder to import that lacks nothing but weights."""
    folder = tmp_path / "hf"
    folder.mkdir()
    tokenizer = gf.BPE.train(["a few words of text"] * 3, 260, pattern="gpt2")
    tokenizer.save(folder / "tokenizer.json")
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 1, "n_positions": 8, "vocab_size": len(tokenizer)}
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", **sizes}))
    save_file({"wpe.weight": torch.zeros(8, 8)}, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
@pytest.mark.parametrize("kind", ["device", "pipe"])
def test_only_regular_files_are_imported(name: str, kind: str, gpt2: Path, tmp_path: Path) -> None:
    (gpt2 / name).unlink()
    (gpt2 / name).symlink_to("/dev/zero") if kind == "device" else os.mkfifo(gpt2 / name)
    began = time.perf_counter()
    said = refused("import", str(gpt2), str(tmp_path / "run"))
    assert name in said and time.perf_counter() - began < 5
    assert not (tmp_path / "run").exists()


def test_types_without_their_scales_are_not_imported(gpt2: Path) -> None:
    tensors = {"wpe.weight": torch.zeros(8, 8).to(torch.float8_e4m3fn)}
    save_file(tensors, gpt2 / "model.safetensors")
    with pytest.raises(RunError, match="of type float8_e4m3fn; only float64, float32"):
        read_gpt2(gpt2)


def test_a_tensor_in_two_shards_is_refused(gpt2: Path) -> None:
    save_file({"wpe.weight": torch.ones(8, 8)}, gpt2 / "model-00002.safetensors")
    with pytest.raises(RunError, match=r"wpe\.weight is both in model-00002.safetensors and in model"):
        read_gpt2(gpt2)
