"""Compiled for a CPU with several threads, equal runs give equal bits, and a break changes none of them."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import glassformer as gf
from tests.training.test_resume import SMALL, broken_off, everything


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.skipif(not shutil.which("c++"), reason="there is no C++ compiler to compile with")
@pytest.mark.usefixtures("two_threads")
def test_compiled_runs_are_equal_and_a_break_changes_nothing(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(
        "".join(random.Random(0).choices("abc ", k=20_000))
    )  # few tokens, each often: they collide
    settings: dict[str, Any] = {**SMALL, "training.compile": "on", "training.batch": 64, "model.layers": 1}
    settings["model.context"] = 64
    runs = [tmp_path / "one", tmp_path / "two"]
    for run in runs:
        gf.train(text, out=run, settings=settings)
    runs.append(broken_off(runs[0], tmp_path / "three"))
    gf.train(text, out=runs[2], settings=settings, resume=True)
    one, two, three = (everything(run) for run in runs)
    assert one.keys() == two.keys() == three.keys()
    assert [key for key in one if not torch.equal(one[key], two[key])] == []
    assert [key for key in one if not torch.equal(one[key], three[key])] == []
