"""Images from end to end: a folder is learned, measured, resumed and used, and what is wrong is said."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import glassformer as gf
from glassformer.core.errors import DataError, RunError, UsageError
from glassformer.data.patches import Geometry
from tests.forked import run_forked
from tests.pictures import LABELS, stripes, write_pictures

SETTINGS = {
    "data.valid": 0.2,
    "data.test": 0.2,
    "model.layers": 1,
    "model.width": 32,
    "model.heads": 2,
    "training.steps": 60,
    "training.batch": 16,
    "training.eval_every": 30,
    "training.checkpoint_every": 30,
    "training.compile": "off",
}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pictures(tmp_path_factory.mktemp("images") / "photos", 80)


@pytest.fixture(scope="module")
def run(photos: Path) -> gf.Run:
    return gf.train(photos, task="classify", out=photos.parent / "run", settings=SETTINGS)


def test_images_are_learned_better_than_by_what_knows_nothing(run: gf.Run) -> None:
    """Stripes of any phase: no single pixel tells them apart, and so neither does logistic regression."""
    floors = run.result["floor_scores"]
    accuracy = run.evaluate("test").score[1]
    assert accuracy > 0.9 and accuracy > max(floors.values()) + 0.1, (accuracy, floors)


def test_the_geometry_is_in_the_settings_of_the_run(run: gf.Run, photos: Path) -> None:
    data = gf.load(run.path).config.data
    assert (data.image_size, data.patch_size, data.channels) == (16, 2, 1)
    assert run.config.model.patch == 4 and not (run.path / "tokenizer.json").exists()
    other = gf.train(
        photos,
        task="classify",
        out=photos.parent / "other",
        settings={**SETTINGS, "training.steps": 2, "data.image_size": 12, "data.channels": 3},
    )
    assert (other.config.data.patch_size, other.config.model.patch) == (2, 12)
    assert set(other.classify([photos / "lying" / "0.png"])[0]) == set(LABELS)


def test_a_new_image_is_prepared_as_those_of_the_run(run: gf.Run, tmp_path: Path) -> None:
    """Larger, in colour and as another format, it gets what the model gives to the example itself."""
    held_out = run.task().source
    (patches, label), name = held_out.splits["test"][0], held_out.names["test"][0]
    with torch.no_grad():
        expected = run.model(torch.from_numpy(patches)[None].to(run.device))[0].softmax(-1)
    pixels = Image.open(Path(run.config.data.source) / name)
    pixels.convert("RGB").resize((48, 48), Image.Resampling.NEAREST).save(tmp_path / "large.bmp")
    shares = run.classify([tmp_path / "large.bmp"])[0]
    labels = run.config.data.labels
    assert [shares[name] for name in labels] == pytest.approx(expected.tolist(), abs=1e-6)
    assert run.label([str(tmp_path / "large.bmp")])[0].show().startswith(f"{tmp_path / 'large.bmp'}: ")
    assert label in labels


def test_what_a_run_on_images_cannot_be_given_is_said(run: gf.Run, tmp_path: Path) -> None:
    for text in ("seven", "x" * 5000, "a\0b"):
        with pytest.raises(UsageError, match="is no file: this model reads images"):
            run.classify([text])
    (tmp_path / "torn.png").write_bytes(b"\x89PNG\r\n")
    with pytest.raises(DataError, match=r"torn\.png cannot be read as an image"):
        run.classify([tmp_path / "torn.png"])
    with pytest.raises(UsageError, match="sentences mean nothing"):
        run.bare_task.preference(run.model, run.config, "he", "she")


def test_an_image_for_a_run_on_text_is_refused(run: gf.Run, tmp_path: Path, text_file: Path) -> None:
    (tmp_path / "r.tsv").write_text("\n".join(f"text {i}\t{i % 2}" for i in range(80)))
    reader = gf.train(
        tmp_path / "r.tsv",
        task="classify",
        out=tmp_path / "r",
        settings={**SETTINGS, "training.steps": 2, "model.context": 16},
    )
    image = Path(run.config.data.source) / "lying" / "0.png"
    for use in (lambda: reader.classify([image]), lambda: reader.look(str(image))):
        with pytest.raises(UsageError, match=r"0\.png is an image, and .* reads text"):
            use()
    assert reader.classify(["the file nowhere.png"])
    with pytest.raises(UsageError, match="holds images; this model reads text"):
        reader.evaluate(data=run.config.data.source)
    with pytest.raises(UsageError, match="holds texts"):
        run.evaluate(data=str(tmp_path / "r.tsv"))


def test_images_are_measured_and_resumed_as_they_were(run: gf.Run, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    shutil.copytree(run.config.data.source, folder)
    settings = {**SETTINGS, "training.steps": 4, "training.checkpoint_every": 2}
    begun = gf.train(folder, task="classify", out=tmp_path / "r", settings=settings)
    again = gf.train(folder, task="classify", out=tmp_path / "r", resume=True)
    assert again.evaluate().as_dict() == begun.evaluate().as_dict()
    whole = begun.evaluate(data=str(folder))
    assert whole.as_dict()["n"] == 160
    mistakes = begun.mistakes(data=str(folder)).as_dict()["the surest mistakes"]
    assert all((folder / row["text"]).is_file() for row in mistakes) and mistakes
    Image.fromarray(stripes("lying", 999)).save(folder / "lying" / "0.png")
    for use in (
        lambda: gf.load(tmp_path / "r").evaluate(),
        lambda: gf.train(folder, task="classify", out=tmp_path / "r", resume=True),
    ):
        with pytest.raises(RunError, match=r"the images of .* are not those"):
            use()


def test_another_run_gives_its_geometry(run: gf.Run, tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "large", 20, size=40)
    settings = {"training.steps": 2, "data.valid": 0.2, "training.compile": "off"}
    tuned = gf.train(folder, task="classify", out=tmp_path / "t", init=run.path, settings=settings)
    assert (tuned.config.data.image_size, tuned.config.data.patch_size) == (16, 2)


def test_what_folders_cannot_teach_is_said(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "p", 30)
    out = tmp_path / "r"
    shutil.rmtree(folder / "standing")
    with pytest.raises(DataError, match="one label, 'lying', is nothing to tell apart"):
        gf.train(folder, task="classify", out=out, settings=SETTINGS)
    few = write_pictures(tmp_path / "few", 3)
    with pytest.raises(DataError, match="at least 8 are needed"):
        gf.train(few, task="classify", out=out, settings=SETTINGS)
    with pytest.raises(UsageError, match=r"data\.image_size 16 is not a multiple of data\.patch_size 5"):
        gf.train(
            few, task="classify", out=out, settings={**SETTINGS, "data.image_size": 16, "data.patch_size": 5}
        )
    with pytest.raises(UsageError, match="of images, for classify, not for language"):
        gf.train(out=out, settings={"data.image_size": 16})
    assert not out.exists()


def test_a_run_from_before_geometry_was_recorded_says_so(run: gf.Run) -> None:
    old = run.config.model_copy(update={"data": run.config.data.model_copy(update={"image_size": 0})})
    with pytest.raises(RunError, match="before the size of its images was written down"):
        run.bare_task.inputs(run.model, old, "picture.png")


def test_images_from_the_command_line(run: gf.Run, tmp_path: Path) -> None:
    images = [str(Path(run.config.data.source) / label / "3.png") for label in LABELS]
    found = run_forked("classify", str(run.path), *images, "--json", cwd=tmp_path)
    texts = json.loads(found.stdout)["texts"]
    assert [t["text"] for t in texts] == images and set(texts[0]["probabilities"]) == set(LABELS)
    shown = run_forked("classify", str(run.path), cwd=tmp_path, input="\n".join(images) + "\n")
    assert [line.split(": ")[0] for line in shown.stdout.splitlines()] == images
    wrong = run_forked("classify", str(run.path), "seven", cwd=tmp_path)
    assert wrong.returncode == 2 and "reads images" in wrong.stderr
    looked = run_forked(
        "look", str(run.path), images[0], "--html", "l.html", "--plots", "plots", cwd=tmp_path
    )
    assert looked.returncode == 0 and "16 × 16 pixels in grey, 8 rows and 8 columns" in looked.stdout
    assert (tmp_path / "l.html").is_file() and (tmp_path / "plots" / "picture-attention.png").is_file()


def test_digits_are_classified_from_files(tmp_path: Path) -> None:
    sklearn = pytest.importorskip("sklearn.datasets")
    run = gf.train("digits", out=tmp_path / "d", settings={**SETTINGS, "training.steps": 2})
    assert run.task().source.geometry == Geometry(8, 2, 1)
    image = (sklearn.load_digits().images[17] * 255 / 16).astype(np.uint8)
    Image.fromarray(image).save(tmp_path / "digit.png")
    assert set(run.classify([tmp_path / "digit.png"])[0]) == set("0123456789")
