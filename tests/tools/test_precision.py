"""`bench precision`: the same training in each number type; only the arithmetic differs."""

import json
import math

import pytest
import torch
from typer.testing import CliRunner

from glassformer.cli.main import app
from glassformer.tools.bench.precision import Size, measure, report


def test_every_type_learns_the_same_and_is_told_beside_the_first() -> None:
    figures = measure((Size("tiny", 1, 32, 2, 32, 4),), seconds=0.2)
    rows = [f for f in figures if f.device == "cpu"]
    assert [f.precision for f in rows] == ["float32", "bf16"]
    assert rows[0].times == 1.0 and rows[0].milliseconds > 0
    assert len({f.steps for f in figures}) == 1 and figures[0].steps >= 5
    assert rows[0].loss != rows[1].loss and abs(rows[0].loss - rows[1].loss) < 0.02
    assert max(f.loss for f in figures) < math.log(128)  # where it starts
    assert rows[1].tokens_per_second == pytest.approx(4 * 32 / rows[1].milliseconds * 1e3)
    assert "bf16" in report(figures) and torch.__version__ in report(figures)


def test_the_command_prints_json() -> None:
    shown = CliRunner().invoke(app, ["bench", "precision", "--quick", "--seconds", "0", "--json"])
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.stdout)["figures"]
    assert {f["size"] for f in found} == {"small"} and all(f["tokens_per_second"] > 0 for f in found)
