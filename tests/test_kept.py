"""What is on disk and on standard output stays as it is: held to what earlier code made.

kept/run is a small language model on `repeats`, stopped at step 30 of 60 (its weights and result are those of
step 60); answers.json is what was read from it, names.json what tensors and sites were called, draws.json how
large each tensor was when it was drawn with seed 0, json.json what keys the commands printed.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import glassformer as gf
from glassformer.cli.main import app
from glassformer.config.model import ModelConfig
from glassformer.models.tap import Record
from glassformer.tasks.registry import make_model

KEPT = Path(__file__).parent / "kept"
NAMES = json.loads((KEPT / "names.json").read_text(encoding="utf-8"))
DRAWS = json.loads((KEPT / "draws.json").read_text(encoding="utf-8"))
ANSWERS = json.loads((KEPT / "answers.json").read_text(encoding="utf-8"))
SHAPES = json.loads((KEPT / "json.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_tensors_and_sites_keep_their_names(name: str) -> None:
    kept = NAMES[name]
    sizes = {"layers": 2, "heads": 2, "width": 8, "context": 8, "vocab": 11, "labels": 3}
    model = make_model(kept["task"], ModelConfig.model_validate({**sizes, **kept["settings"]})).eval()
    assert {n: list(t.shape) for n, t in model.state_dict().items()} == kept["tensors"]
    ids = torch.arange(6)[None] % 11
    patches = (torch.zeros(1, 4, 5),)
    inputs = (ids, ids[:, :4]) if kept["task"] == "translate" else (ids,)
    record = Record()
    with torch.no_grad():
        model(*(patches if kept["settings"].get("patch") else inputs), tap=record)
    assert {site: list(shape) for site, shape in record.shown.items()} == kept["sites"]


@pytest.mark.parametrize("name", DRAWS)
def test_a_seed_draws_the_weights_it_always_drew(name: str) -> None:
    task, family = name.split()
    reads_all = task in ("classify", "tag")
    sizes = {"layers": 2, "heads": 2, "width": 8, "context": 8, "vocab": 11, "labels": 3 if reads_all else 0}
    directions = {"directions": 2} if reads_all and family != "transformer" else {}
    torch.manual_seed(0)
    model = make_model(task, ModelConfig.model_validate({"family": family, **sizes, **directions}))
    sums = {n: float(p.detach().double().abs().sum()) for n, p in model.named_parameters()}
    assert sums == pytest.approx(DRAWS[name], abs=1e-3)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept") / "run"
    shutil.copytree(KEPT / "run", folder)
    return folder


def command(*arguments: str) -> Any:
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def shape(value: Any, depth: int) -> Any:
    if isinstance(value, dict) and depth:
        return {k: shape(v, depth - 1) for k, v in sorted(value.items())}
    if isinstance(value, list) and value and depth and isinstance(value[0], dict):
        return [shape(value[0], depth - 1)]
    return type(value).__name__


def has(now: Any, kept: Any) -> bool:
    """Whether all that was there is there, as it was; keys may be added."""
    if isinstance(kept, dict):
        return isinstance(now, dict) and all(key in now and has(now[key], kept[key]) for key in kept)
    if isinstance(kept, list):
        return isinstance(now, list) and len(now) == len(kept) and all(map(has, now, kept))
    return now == kept


def test_a_run_made_before_gives_the_same_answers(run: Path) -> None:
    result = command("eval", str(run))
    assert has(shape(result, 3), SHAPES["eval"])
    for key, value in ANSWERS["eval"].items():
        assert result[key] == pytest.approx(value, rel=1e-5) if key != "split" else result[key] == value
    greedy = command("generate", str(run), "Xq3", "--greedy", "--tokens", "12")
    assert has(shape(greedy, 3), SHAPES["generate"]) and greedy["texts"] == [ANSWERS["greedy"]]
    drawn = command("generate", str(run), "Xq3", "--seed", "7", "--tokens", "12")
    assert drawn["texts"] == [ANSWERS["seed 7"]]
    assert has(shape(command("look", str(run), "XqzXq"), 2), SHAPES["look"])
    assert has(shape(command("compare", str(run)), 3), SHAPES["compare"])


def test_a_run_begun_before_is_trained_on_to_the_same_weights(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    (folder / "model.safetensors").unlink()
    (folder / "result.json").unlink()
    resumed = gf.train("repeats", out=folder, resume=True)
    assert resumed.result["steps"] == 60
    before = load_file(KEPT / "run" / "model.safetensors")
    after = load_file(folder / "model.safetensors")
    assert after.keys() == before.keys()
    for name, tensor in before.items():
        torch.testing.assert_close(after[name], tensor, rtol=1e-4, atol=1e-5)
    kept = json.loads((KEPT / "run" / "result.json").read_text(encoding="utf-8"))
    assert resumed.result.keys() == kept.keys()
