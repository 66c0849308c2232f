"""Resuming is exact: k steps, a break and the rest give the bits of an unbroken run, whatever is trained."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import glassformer as gf
from glassformer.core.errors import RunError, UsageError

SMALL = {
    "model.layers": 2,
    "model.heads": 2,
    "model.width": 16,
    "model.context": 16,
    "model.dropout": 0.1,
    "training.steps": 12,
    "training.batch": 4,
    "training.checkpoint_every": 5,
    "training.keep": 9,
    "training.eval_every": 6,
    "training.compile": "off",
    "training.device": "cpu",
}
# What the loop alone answers for (optimizers, growing batches, precisions) is in test_loop.py, and every task
# with a transformer and an LSTM in tests/tasks; here is what only a whole run has.
CASES: dict[str, dict[str, Any]] = {
    "transformer": {},
    "lstm in parts": {"model.family": "lstm", "training.accumulate": 2},
    "lstm without some weights and features": {
        "model.family": "lstm",
        "model.recurrent_dropout": 0.5,
        "model.dropout_over": "sequence",
        "training.change_penalty": 1.0,
        "training.accumulate": 2,
    },
    "many epochs": {"model.context": 8, "training.batch": 64},
    "masked gru": {"task": "masked", "model.family": "gru"},
    "batch norm": {"model.norm": "batch"},
    "compiled attention": {"model.width": 64, "model.context": 64, "training.batch": 2},
    "patience": {
        "training.patience": 1,
        "training.eval_every": 2,
        "training.lr": 1e-9,
        "training.muon_lr": 1e-9,
    },
    "tag rnn": {"task": "tag", "model.family": "rnn"},
    "tag by spelling": {"task": "tag", "model.spelling": 100, "tokenizer.kind": "word"},
    "translate gru": {"task": "translate", "model.family": "gru"},
    "translate twice": {"task": "translate", "training.consistency": 5.0, "training.token_dropout": 0.1},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, chance = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    words = ["sun", "moon", "tree", "river", "stone", "bird", "cloud", "wind"]
    sentences = [" ".join(chance.choice(words, chance.integers(3, 9))) for _ in range(200)]
    files = {
        "language": "\n".join(sentences),
        "tag": "\n\n".join("\n".join(f"{w}\t{w[0].upper()}" for w in s.split()) for s in sentences),
        "translate": "\n".join(f"{s}\t{s[::-1]}" for s in sentences),
    }
    paths = {name: folder / f"{name}.{'txt' if name == 'language' else 'tsv'}" for name in files}
    for name, path in paths.items():
        path.write_text(files[name] + "\n")
    return {**paths, "masked": paths["language"]}


def broken_off(run: Path, to: Path) -> Path:
    """A copy of a finished run as it was after its first checkpoint, with traces of later steps."""
    shutil.copytree(run, to)
    _, *later = sorted((to / "checkpoints").glob("step-*"))
    for path in later:
        shutil.rmtree(path)
    (to / "result.json").unlink()
    return to


def everything(run: Path) -> dict[str, torch.Tensor]:
    last = json.loads((run / "checkpoints" / "latest.json").read_text())["checkpoint"]
    files = [run / "model.safetensors", *sorted((run / "checkpoints" / last).glob("*.safetensors"))]
    return {f"{path.name} {key}": t for path in files for key, t in load_file(path).items()}


@pytest.mark.parametrize("name", CASES)
def test_a_break_changes_nothing(name: str, data: dict[str, Path], tmp_path: Path) -> None:
    changes = dict(CASES[name])
    task = str(changes.pop("task", "language"))
    settings = {**SMALL, **changes}
    whole = gf.train(data[task], task=task, out=tmp_path / "whole", settings=settings)
    again = broken_off(tmp_path / "whole", tmp_path / "again")
    resumed = gf.train(data[task], task=task, out=again, settings=settings, resume=True)
    expected, got = everything(tmp_path / "whole"), everything(again)
    assert expected.keys() == got.keys()
    assert all(torch.equal(expected[key], got[key]) for key in expected)
    assert resumed.result["valid"] == whole.result["valid"]
    logs = [(p / "metrics.jsonl").read_text().splitlines() for p in (tmp_path / "whole", again)]
    losses = [[(r["step"], r["loss"]) for r in map(json.loads, lines)] for lines in logs]
    assert losses[0] == losses[1]


def test_other_settings_text_or_tokenizer_are_refused_with_the_difference(
    data: dict[str, Path], tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    shutil.copy(data["language"], text)
    gf.train(text, out=tmp_path / "run", settings=SMALL)
    run = broken_off(tmp_path / "run", tmp_path / "again")
    with pytest.raises(UsageError, match=r"training\.lr: 0\.003 → 0\.5"):
        gf.train(text, out=run, settings={**SMALL, "training.lr": 0.5}, resume=True)
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("warmup: ", "warmup: 9"))
    with pytest.raises(RunError, match=r"training\.warmup: 1 → 91"):  # edited by hand
        gf.train(text, out=run, resume=True)
    (run / "config.yaml").write_text(config)
    tokenizer = (run / "tokenizer.json").read_text()
    content = json.loads(tokenizer)
    vocab = content["model"]["vocab"]
    first, second = list(vocab)[:2]
    vocab[first], vocab[second] = vocab[second], vocab[first]
    (run / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(RunError, match=r"tokenizer\.json is not what was written"):
        gf.train(text, out=run, resume=True)
    (run / "tokenizer.json").write_text(tokenizer)
    text.write_text(text.read_text() + "more\n")
    with pytest.raises(RunError, match=r"is not the one .* was begun with"):
        gf.train(text, out=run, resume=True)
    shutil.copy(data["language"], text)
    assert gf.train(text, out=run, settings={"training.keep": 1}, resume=True).result["steps"] == 12
