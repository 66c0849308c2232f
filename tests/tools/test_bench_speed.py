"""`bench train` and `bench generate`: measured in processes of their own, told beside the best peer."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from glassformer.cli.main import app
from glassformer.core.errors import GlassformerError, UsageError
from glassformer.tools.bench import generate, train, train_worker

SMALL = {"layers": 1, "heads": 1, "width": 16, "context": 16, "vocab": 32}


def test_a_step_is_measured_and_profiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(train.SIZES, "tiny", SMALL)
    monkeypatch.setitem(train.BATCHES, "tiny", 2)
    monkeypatch.setattr(train, "tools", lambda nanogpt, fused: iter(list(train.OURS)[:1]))
    options = {"device": "cpu", "batch": None, "precision": "float32", "compiled": False, "nanogpt": None}
    found = train.measure("tiny", **options, seconds=0, rounds=1, profile=str(tmp_path), say=lambda _: None)
    (one,) = found
    assert 0 < one.seconds_per_step < one.first_step_seconds < 60 and one.peak_bytes > 1e7
    assert one.tokens_per_second == pytest.approx(2 * 16 / one.seconds_per_step)
    assert json.loads((tmp_path / "gpt2" / "trace.json").read_text())["traceEvents"]
    assert "aten::" in (tmp_path / "gpt2" / "top.txt").read_text()


def test_ours_is_told_beside_the_best_other() -> None:
    ours, default, *_ = train.OURS
    rows = [
        train.Measured("char", tool, 2, "float32", False, seconds, 1.0, 1.0, 10**6)
        for tool, seconds in ((ours, 0.2), (default, 0.4), ("nanoGPT", 0.3), ("transformers", 0.5))
    ]
    table = train.report(rows).splitlines()
    assert table[1].endswith("1.50 ×") and table[2].endswith("0.75 ×") and "×" not in table[3] + table[4]


def test_tokens_are_measured_and_told_beside_the_best_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(generate.SIZES, "tiny", SMALL)
    monkeypatch.setattr(
        generate,
        "jobs",
        lambda *_: [job for job in JOBS("cpu", ["tiny"], [2], None) if job["weights"] == "open"],
    )
    monkeypatch.setattr(generate, "PROMPT", 3)
    monkeypatch.setattr(generate, "TOKENS", 8)
    (one,) = generate.measure("cpu", ["tiny"], [2], 1, 1, 5, None, lambda _: None)
    assert one.tokens_per_second > 10 and one.weights == "f32" and one.streams == 2
    rows = [
        generate.Measured("124M", tool, weights, 1, 0, rate)
        for tool, weights, rate in (
            ("glassformer", "f32", 60.0),
            ("transformers", "f32", 20.0),
            ("llama.cpp", "f32", 50.0),
            ("glassformer", "int8", 60.0),
            ("llama.cpp", "int8", 120.0),
        )
    ]
    table = generate.report(rows).splitlines()
    assert table[1].endswith("1.20 ×") and table[4].endswith("0.50 ×")


JOBS = generate.jobs


def test_mistakes_are_told(tmp_path: Path) -> None:
    for arguments in (
        ["train", "--size", "big"],
        ["train", "--nanogpt", str(tmp_path)],
        ["generate", "--size", "x"],
    ):
        done = CliRunner().invoke(app, ["bench", *arguments])
        assert done.exit_code == 2 and "expected" in done.output
    with pytest.raises(UsageError):
        train.check_nanogpt(str(tmp_path))
    with pytest.raises(GlassformerError, match="has no llama"):
        generate.llama_python("/usr/bin/false")


def test_every_tool_has_one_worker() -> None:
    """Ours by our own loop, the others by a plain one."""
    assert not set(train.OURS) & set(train_worker.PEERS)
    assert set(train.MODULES) | {"nanoGPT"} == set(train_worker.PEERS)


def test_only_some_rows_are_measured() -> None:
    known = list(train.tools(None, train.ON_GPU))
    assert known == [*train.OURS, *(name for name in known if name in train.MODULES)]
    assert set(train.tools(None)) & set(train.OURS) == set(list(train.OURS)[:2])
    assert train.choose_tools(known, []) == known
    assert train.choose_tools(known, ["8 BITS", "muon"]) == [
        name for name in train.OURS if "8 bits" in name or "Muon" in name
    ]
    with pytest.raises(UsageError, match="nothing such"):
        train.choose_tools(known, ["muon", "nothing such"])


def test_a_peer_that_fails_is_left_out_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured before is said at once, and is not lost."""
    said: list[str] = []

    def run(task: dict[str, Any], *_: object) -> Any:
        if task["tool"] == "transformers":
            raise GlassformerError("transformers failed: no room")
        rates = {"seconds_per_step": 0.5, "first_step_seconds": 1.0, "peak_bytes": 1}
        return rates if "optimizer" in task else 42.0

    for module in (train, generate):
        monkeypatch.setattr(module, "_run", run)
    ours = next(iter(train.OURS))
    monkeypatch.setattr(train, "tools", lambda nanogpt, fused: iter([ours, "transformers"]))
    options = {"device": "cpu", "batch": None, "precision": "float32", "compiled": False, "nanogpt": None}
    (one,) = train.measure("char", **options, seconds=0, rounds=1, profile=None, say=said.append)
    assert one.tool == ours and said[1].strip() == "500.0 ms a step" and "no room; left out" in said[-1]
    found = generate.measure("cpu", ["4 × 128"], [1], 1, 1, 0, None, said.append)
    assert found and all(each.tool.startswith("glassformer") for each in found)
    assert "    42.0 tokens/s" in said and "no room; left out" in "".join(said[3:])
    monkeypatch.setattr(train, "tools", lambda nanogpt, fused: iter([ours]))
    monkeypatch.setattr(train, "_run", lambda task: run({"tool": "transformers"}))
    with pytest.raises(GlassformerError, match="no room"):
        train.measure("char", **options, seconds=0, rounds=1, profile=None, say=said.append)
