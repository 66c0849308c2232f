"""JSON that every reader takes: one writer, and no NaN or Infinity in what it writes."""

import ast
import json
import math
from pathlib import Path

import pytest

import glassformer
from glassformer.core.strict_json import dump_json
from glassformer.training.log import MetricsLog, read_metrics
from glassformer.training.plot import plot_losses

PACKAGE = Path(glassformer.__file__).parent


def test_there_is_one_writer() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.name in ("strict_json.py", "llama_worker.py"):  # the latter imports nothing of ours
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            is_writer = isinstance(node, ast.Attribute) and node.attr in ("dump", "dumps")
            if is_writer and isinstance(node.value, ast.Name):
                assert node.value.id != "json", f"{path.relative_to(PACKAGE)}:{node.lineno}"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_null(value: float) -> None:
    nested = {"a": [1, 2.5, value, (value, "NaN")], "b": {"c": value}, "d": True, "e": None}
    expected = {"a": [1, 2.5, None, [None, "NaN"]], "b": {"c": None}, "d": True, "e": None}
    assert json.loads(dump_json(nested), parse_constant=lambda name: pytest.fail(name)) == expected


def test_finite_values_are_as_python_writes_them() -> None:
    value = {"b": [1, 2.5, "ä"], "a": None}
    assert dump_json(value) == json.dumps(value)
    assert dump_json(value, indent=1, sort_keys=True, ensure_ascii=False) == json.dumps(
        value, indent=1, sort_keys=True, ensure_ascii=False
    )


def test_a_log_with_a_broken_step_is_read_and_drawn(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "split": "train", "loss": NaN}\n')  # as it was written before
    log = MetricsLog(path, step=1)
    for step in range(2, 6):
        loss = math.inf if step == 3 else 1.0 / step
        log.write({"step": step, "split": "train", "loss": loss})
    log.close()
    assert [r["loss"] for r in read_metrics(path)] == [None, 0.5, None, 0.25, 0.2]
    assert len(plot_losses(path, "a title")) == 3  # svg, png and the caption
