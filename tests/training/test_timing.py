"""A stopwatch for steps: it leaves nothing behind, whatever happens."""

from pathlib import Path

import pytest
import torch

from glassformer.core.errors import DivergedError
from glassformer.models.build import Decoder
from glassformer.training.timing import seconds_per_step
from tests.training.small import CPU, configure, make_objective


def test_a_step_is_timed_without_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = configure()
    model = Decoder(config.model)
    before = torch.random.get_rng_state()
    seconds = seconds_per_step(model, make_objective(config), config.training, CPU, width=16, repeats=2)
    assert 0 < seconds < 10
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not any(p.grad is not None for p in model.parameters())
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_number_while_timing_is_said_and_written_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = configure()
    model = Decoder(config.model)
    with torch.no_grad():
        model.stack.embedding.weight.fill_(float("nan"))  # type: ignore[union-attr]
    before = torch.random.get_rng_state()
    with pytest.raises(DivergedError, match=r"step 1: .*the weight stack\.embedding\.weight holds NaN"):
        seconds_per_step(model, make_objective(config), config.training, CPU, width=16)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert list(tmp_path.iterdir()) == []
