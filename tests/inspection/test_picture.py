"""A look at an image: what is said of its patches is what the formulas say, in every form of the report."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import glassformer as gf
from glassformer.core.errors import UsageError
from glassformer.inspection.html import as_html
from glassformer.inspection.picture import patch_attribution, picture, pooled_attention
from glassformer.inspection.picture_text import FINEST, as_picture
from glassformer.inspection.plots import draw_all
from glassformer.inspection.report_text import as_text
from tests.pictures import stripes, write_pictures

SMALL: dict[str, Any] = {"training.steps": 2, "training.batch": 8, "model.width": 16, "model.layers": 2}
SMALL |= {"model.heads": 2, "data.valid": 0.2, "training.compile": "off"}
VARIANTS: dict[str, dict[str, Any]] = {
    "mean": {},
    "attention": {"model.pooling": "attention", "model.placement": "post", "model.bias": True},
    "first": {"model.pooling": "first", "data.channels": 3},
    "lstm": {"model.family": "lstm", "model.pooling": "last"},
}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_pictures(tmp_path_factory.mktemp("pictures") / "p", 30)
    return folder / "lying" / "0.png"


@pytest.fixture(scope="module", params=VARIANTS)
def look(request: pytest.FixtureRequest, image: Path) -> Any:
    out = image.parents[2] / request.param
    settings = {**SMALL, **VARIANTS[request.param]}
    return gf.train(image.parents[1], task="classify", out=out, settings=settings).look(image)


def test_the_report_has_the_picture_that_the_model_was_given(look: Any, image: Path) -> None:
    report = json.loads(json.dumps(look.report()))
    section = report["image"]
    pixels = np.array(section["pixels"])
    assert pixels.shape == (16, 16, section["channels"])
    assert (pixels == stripes("lying", 0)[..., None]).all()
    names = report["tokens"][""]
    assert names[:2] == ["0,0", "0,1"] and names[8] == "1,0" and len(names) == 64
    assert report["text"] == str(image) and report["position"] is None
    assert "vocab" not in report["model"] and report["model"]["patch"] == 4 * section["channels"]
    if look.is_transformer:
        assert max(report["errors"].values()) < 1e-5
        parts = report["attribution"]["parts"]
        assert sum(parts.values()) == pytest.approx(report["attribution"]["logit"], abs=1e-3)


def test_attention_is_what_the_pooled_positions_take(look: Any) -> None:
    if not look.is_transformer:
        assert "attention" not in picture(look, 0)
        return
    for layer in range(2):
        maps, weights = look.pattern(layer), look["pool"][0]
        expected = sum(w * maps[:, t] for t, w in enumerate(weights.tolist()))
        assert torch.allclose(pooled_attention(look, layer), expected, atol=1e-6)
        assert torch.allclose(pooled_attention(look, layer).sum(-1), torch.ones(2), atol=1e-5)


def test_patches_account_for_the_whole_rise_of_the_logit(look: Any) -> None:
    for output in range(2):
        section = patch_attribution(look, output)
        rise = section["logit"] - section["nothing"]
        assert sum(section["patches"]) == pytest.approx(rise, abs=1e-4) and section["gap"] < 1e-4
        assert section["logit"] == pytest.approx(float(look.trace.logits[0, output]), abs=1e-6)


def test_a_picture_of_one_colour_has_nothing_that_accounts_for_it(image: Path, tmp_path: Path) -> None:
    run = gf.train(image.parents[1], task="classify", out=tmp_path / "r", settings=SMALL)
    Image.new("L", (16, 16), 77).save(tmp_path / "plain.png")
    section = run.look(tmp_path / "plain.png").report()["image"]["attribution"]
    assert section["logit"] == pytest.approx(section["nothing"])
    assert np.allclose(section["patches"], 0, atol=1e-6)


def test_edits_are_made_in_what_is_derived_too(image: Path, tmp_path: Path) -> None:
    run = gf.train(image.parents[1], task="classify", out=tmp_path / "r", settings=SMALL)
    edits = [gf.edit.zero("0.z", heads=1), gf.edit.zero("1.z", heads=0)]
    look = run.look(image, edits=edits)
    section = patch_attribution(look, 0)
    assert section["logit"] == pytest.approx(float(look.trace.logits[0, 0]), abs=1e-6)
    assert section["logit"] != pytest.approx(float(run.look(image).trace.logits[0, 0]), abs=1e-6)
    assert section["gap"] < 1e-4


def test_every_form_of_the_report_shows_it(look: Any, tmp_path: Path) -> None:
    report = look.report()
    text, html = as_text(report), as_html(report)
    assert "16 × 16 pixels in" in text and "by row,column" in text and "nan" not in text
    assert ("layer 1" in text) == look.is_transformer
    assert not re.search(r"""(?:src|href)=|https?://(?!www\.w3\.org/2000/svg)""", html)
    drawn = {path.name for path in draw_all(report, tmp_path)}
    assert {"picture.svg", "picture.png"} <= drawn
    assert ("picture-attention.png" in drawn) == look.is_transformer
    with Image.open(tmp_path / "picture.png") as plot:
        assert plot.size[0] > 400


def test_a_picture_that_is_too_fine_for_a_terminal_says_so(look: Any) -> None:
    section = picture(look, 0)
    fine = {**section, "size": FINEST + 1, "patch": 1}
    assert "too fine for a terminal: --html" in as_picture(fine, "lying")


def test_options_that_mean_nothing_to_an_image_are_refused(image: Path, tmp_path: Path) -> None:
    run = gf.train(image.parents[1], task="classify", out=tmp_path / "r", settings=SMALL)
    with pytest.raises(UsageError, match="no tokens to write"):
        run.look(image, tokens=3)
    with pytest.raises(UsageError, match="belongs to a translation"):
        run.look(image, target="x")
