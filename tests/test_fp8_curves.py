"""The picture of what fp8 costs is what benchmarks/fp8.json says, and docs/training.md says the same."""

import json
from pathlib import Path

import pytest
from PIL import Image

from tests.explained import assert_explained
from tests.scripts import ROOT, load_script

fp8 = load_script("benchmarks/fp8.py")
KEPT = json.loads(fp8.KEPT.read_text(encoding="utf-8"))


def test_the_picture_is_current() -> None:
    drawing = fp8.drawing(KEPT)
    with Image.open(fp8.PICTURE) as picture:
        assert picture.info["Description"] == drawing.caption, "run `make docs`"
    assert_explained("fp8", drawing)


def test_the_table_is_what_was_kept() -> None:
    page = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    for precision in fp8.PRECISIONS:
        cells = [", ".join(f"{loss:.3f}" for loss in seeds) for seeds in fp8.alike(KEPT, precision).values()]
        assert f"| {precision} | {' | '.join(cells)} |" in page


def test_a_point_is_the_mean_of_the_steps_before(tmp_path: Path) -> None:
    for name in KEPT:
        rows = [{"split": "train", "step": s, "loss": float(s)} for s in range(1, 61)]
        rows.append({"split": "valid", "step": 40, "loss": 1.23456})
        (tmp_path / name).mkdir()
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / name / "metrics.jsonl").write_text(text if name != "bf16-0" else text.splitlines()[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fp8, "KEPT", tmp_path / "kept.json")
        fp8.keep(tmp_path)
    kept = json.loads((tmp_path / "kept.json").read_text())
    assert set(kept) == set(KEPT)
    assert kept["bf16-0"] == {"train": [], "valid": []}  # kept as far as it went
    assert kept["fp8-0"] == {"train": [[20, 10.5], [40, 30.5], [60, 50.5]], "valid": [[40, 1.2346]]}
