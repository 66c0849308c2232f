"""docs/curves.md and its picture are what benchmarks/curves.json says, and that is what runs wrote down."""

import json
from pathlib import Path
from statistics import mean

import numpy as np
import pytest
from PIL import Image

import glassformer as gf
from glassformer.training.log import read_metrics
from tests.explained import assert_explained
from tests.scripts import load_script

curves = load_script("benchmarks/curves.py")
KEPT = json.loads(curves.KEPT.read_text(encoding="utf-8"))


def test_the_page_is_current() -> None:
    assert curves.PAGE.read_text(encoding="utf-8") == curves.page(KEPT), "run `make docs`"


def test_the_picture_is_current_and_shows_every_curve() -> None:
    drawing = curves.drawing(KEPT)
    with Image.open(curves.PICTURE) as picture:  # the caption names every run and its lowest loss
        assert picture.info["Description"] == drawing.caption, "run `make docs`"
    assert_explained("curves", drawing)
    panels = drawing.figure.axes
    assert [axes.get_title() for axes in panels] == sorted(KEPT)
    for axes, name in zip(panels, sorted(KEPT), strict=True):
        for line, what in zip(axes.lines, ("train", "valid"), strict=True):
            np.testing.assert_allclose(line.get_xydata(), KEPT[name][what])


def test_what_is_kept_of_a_run_is_what_it_wrote(text_file: Path, tmp_path: Path) -> None:
    settings = {"training.steps": 250, "training.batch": 1, "training.eval_every": 100, "model.width": 8}
    settings |= {"model.layers": 1, "model.heads": 1, "model.context": 8, "training.compile": "off"}
    run = gf.train(text_file, out=tmp_path / "mine", settings=settings)
    path = tmp_path / "kept.json"
    path.write_text('{"another": {"train": []}}')
    curves.keep([run.path], path)
    kept = json.loads(path.read_text())
    assert set(kept) == {"another", "mine"}
    mine, losses = (
        kept["mine"],
        [r for r in read_metrics(run.path / "metrics.jsonl") if r["split"] == "train"],
    )
    assert len(losses) == 250 and len(mine["train"]) == curves.POINTS
    assert [step for step, _ in mine["valid"]] == [100, 200, 250] and mine["train"][-1][0] == 250
    before = 0
    for step, loss in mine["train"]:
        assert loss == pytest.approx(mean(r["loss"] for r in losses[before:step]), rel=1e-4)
        before = step
    assert (mine["steps"], mine["seed"], mine["device"]) == (250, 0, "cpu")
    assert mine["score"]["value"] == run.result["score"]["value"]
