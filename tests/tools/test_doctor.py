"""`doctor` finds nothing on a healthy machine, and finds arithmetic that is a little wrong."""

import json

import pytest
import torch
from typer.testing import CliRunner

from glassformer.cli.main import app
from glassformer.models import attention
from glassformer.tools import doctor


@pytest.fixture(autouse=True)
def _without_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "which", lambda _: None)


def test_all_is_well_here() -> None:
    shown = CliRunner().invoke(app, ["doctor", "--device", "cpu", "--json"])
    found = json.loads(shown.stdout)
    assert shown.exit_code == 0 and found["well"], shown.output
    assert (
        found["facts"]["torch"] == torch.__version__.partition("+")[0]
        or found["facts"]["torch"] == torch.__version__
    )
    names = {check["name"] for check in found["checks"]}
    assert {"float32: forward", "float32: backward", "float32: a step", "float32: a generation"} <= names


@pytest.mark.parametrize("wrong", ["forward", "backward"])
def test_arithmetic_that_is_silently_wrong_is_found(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    """An attention kernel whose results, or whose gradients, are off by a thousandth, in float32 alone."""
    plain = attention.F.scaled_dot_product_attention

    def off(q: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
        z = plain(q, *args, **kwargs)  # pyright: ignore
        if q.dtype != torch.float32:
            return z
        return z * 1.01 if wrong == "forward" else z * 1.05 - z.detach() * 0.05

    monkeypatch.setattr(attention.F, "scaled_dot_product_attention", off)
    shown = CliRunner().invoke(app, ["doctor", "--device", "cpu"])
    assert shown.exit_code == 1
    assert any(line.startswith("BAD") and f"float32: {wrong}" in line for line in shown.output.splitlines())
