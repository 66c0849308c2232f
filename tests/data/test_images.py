"""Folders of images: what becomes of a picture, its split, and what is wrong with a folder."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from glassformer.core.errors import DataError, UsageError
from glassformer.data.datasets import load_dataset, open_examples
from glassformer.data.examples import Examples
from glassformer.data.image_folders import choose_size
from glassformer.data.images import read_image
from glassformer.data.patches import NO_WISH, Geometry, cut, join
from tests.pictures import write_pictures


def opened(folder: Path, wish: Geometry = NO_WISH, valid: float = 0.2, test: float = 0.2) -> Examples:
    return open_examples(str(folder), "classify", None, valid, test, wish)


@given(
    side=st.integers(1, 6), patch=st.integers(1, 5), channels=st.sampled_from([1, 3]), seed=st.integers(0, 99)
)
def test_patches_go_row_by_row_and_together_again(side: int, patch: int, channels: int, seed: int) -> None:
    geometry = Geometry(side * patch, patch, channels)
    pixels = np.random.default_rng(seed).integers(0, 256, (geometry.size, geometry.size, channels))
    patches = cut(pixels, patch)
    assert patches.shape == (side * side, geometry.numbers)
    for name, row in zip(geometry.names(), patches, strict=True):  # the formula, one patch at a time
        r, c = (patch * int(n) for n in name.split(","))
        assert (row == pixels[r : r + patch, c : c + patch].ravel()).all()
    assert (join(patches, geometry) == pixels).all()


def test_a_folder_is_a_label_and_a_file_is_an_example(tmp_path: Path) -> None:
    examples = opened(write_pictures(tmp_path / "p"))
    assert examples.geometry == Geometry(16, 2, 1)  # their own size, and grey, since all are
    assert sum(len(e) for e in examples.splits.values()) == 80 and all(examples.splits.values())
    for split, rows in examples.splits.items():
        for (patches, label), name in zip(rows, examples.names[split], strict=True):
            assert patches.dtype == np.float32 and patches.shape == (64, 4)
            assert Path(name).parts[0] == label
            pixels = np.asarray(Image.open(tmp_path / "p" / name))
            assert np.allclose(join(patches, examples.geometry)[..., 0], pixels / 255, atol=1e-6)
            assert (read_image(tmp_path / "p" / name, examples.geometry) == patches).all()


def test_the_recorded_geometry_gives_the_same_examples(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "p", size=21)
    for wish in (NO_WISH, Geometry(size=12), Geometry(patch=4), Geometry(channels=3)):
        first = opened(folder, wish)
        assert first.geometry is not None
        assert opened(folder, first.geometry).fingerprint == first.fingerprint
    assert opened(folder).geometry == Geometry(21, 3, 1)


def test_copies_are_on_one_side_whatever_the_size_and_the_name(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "p", 20)
    for path in (folder / "lying").iterdir():
        (path.parent / f"copy-{path.name}").write_bytes(path.read_bytes())
    for wish in (NO_WISH, Geometry(size=8)):
        examples = opened(folder, wish)
        where = {name: split for split, names in examples.names.items() for name in names}
        assert len(set(where.values())) == 3
        assert all(where[str(Path("lying") / f"copy-{i}.png")] == where[f"lying/{i}.png"] for i in range(20))
    assert examples.names == opened(folder).names


def test_folders_can_be_splits(tmp_path: Path) -> None:
    for split, count in (("train", 10), ("val", 4), ("test", 3)):
        write_pictures(tmp_path / "p" / split, count)
    examples = opened(tmp_path / "p")
    assert {split: len(e) for split, e in examples.splits.items()} == {"train": 20, "valid": 8, "test": 6}
    assert examples.rule == "as the folders are named"
    assert {label for _, label in examples.splits["train"]} == {"lying", "standing"}
    (tmp_path / "p" / "val" / "other").mkdir()
    with pytest.raises(DataError, match=r"there is no image in .*other"):
        opened(tmp_path / "p")


def test_sizes_are_the_images_own_or_the_usual() -> None:
    assert choose_size(Geometry(), {(8, 8)}) == (8, 2)
    assert choose_size(Geometry(), {(28, 28)}) == (28, 4)
    assert choose_size(Geometry(), {(31, 31)}) == (32, 4)  # no patches in it
    assert choose_size(Geometry(), {(640, 480), (32, 32)}) == (32, 4)
    assert choose_size(Geometry(), {(48, 32)}) == (32, 4)
    assert choose_size(Geometry(patch=7), {(28, 28)}) == (28, 7)
    assert choose_size(Geometry(patch=5), {(28, 28)}) == (30, 5)
    assert choose_size(Geometry(size=64), set()) == (64, 8)
    with pytest.raises(UsageError, match=r"data\.image_size 31 cannot be cut"):
        choose_size(Geometry(size=31), set())


def saved(image: Image.Image, path: Path, **options: object) -> np.ndarray:
    image.save(path, **options)  # type: ignore[arg-type]
    return join(read_image(path, Geometry(2, 1, 3)), Geometry(2, 1, 3))


def test_kinds_of_images_become_the_same_numbers(tmp_path: Path) -> None:
    levels = np.array([[0, 51], [204, 255]], np.uint8)
    grey = np.repeat(levels[..., None] / 255, 3, axis=2)
    assert np.allclose(saved(Image.fromarray(levels), tmp_path / "8.png"), grey)
    assert np.allclose(saved(Image.fromarray(levels.astype(np.uint16) * 257), tmp_path / "16.png"), grey)
    assert np.allclose(saved(Image.fromarray(levels).convert("P"), tmp_path / "p.gif"), grey)
    assert np.allclose(saved(Image.fromarray(levels).resize((10, 10), 0), tmp_path / "big.bmp"), grey)
    clear = Image.merge("LA", [Image.fromarray(levels), Image.new("L", (2, 2), 0)])
    assert (saved(clear, tmp_path / "clear.png") == 1).all()  # what is transparent lies on white
    frames = [Image.fromarray(levels), Image.new("L", (2, 2), 128)]
    moving = saved(frames[0], tmp_path / "m.gif", save_all=True, append_images=frames[1:])
    assert np.allclose(moving, grey)  # the first picture
    turned = Image.Exif()
    turned[0x0112] = 6  # a camera that was held upright
    pixels = saved(Image.fromarray(levels), tmp_path / "t.png", exif=turned)
    assert np.allclose(pixels, np.rot90(grey, -1))
    with pytest.raises(DataError, match="fractions"):
        saved(Image.fromarray(levels.astype(np.float32)), tmp_path / "f.tiff")


def test_colour_is_kept_where_there_is_some(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "p", 10)
    Image.new("RGB", (16, 16), (250, 10, 10)).save(folder / "lying" / "red.png")
    assert opened(folder).geometry == Geometry(16, 2, 3)
    assert opened(folder, Geometry(channels=1)).geometry == Geometry(16, 2, 1)


def test_damaged_images_are_named_together(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "p", 10)
    (folder / "lying" / "0.png").write_bytes((folder / "lying" / "0.png").read_bytes()[:100])
    (folder / "lying" / "1.png").write_bytes(b"")
    (folder / "standing" / "2.jpg").write_text("no picture at all")
    for wish in (NO_WISH, Geometry(size=8)):
        with pytest.raises(DataError, match=r"of 21 images cannot be read: lying") as error:
            opened(folder, wish)
        assert "1.png (it is empty)" in str(error.value) and "standing/2.jpg" in str(error.value)
        assert "Repair or remove" in str(error.value)


def test_what_is_no_image_is_left_out_and_said(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "p", 10)
    (folder / "lying" / "notes.txt").write_text("of these")
    (folder / ".hidden.txt").write_text("not of these")
    Image.new("L", (16, 16)).save(folder / "cover.png")
    assert opened(folder).warnings == [
        "left out, since not called like an image: 1 file, lying/notes.txt",
        "left out, since in no folder of a label: 1 file, cover.png",
    ]


def test_too_many_pixels_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_pictures(tmp_path / "p", 10)
    for limit in (200, 50):  # Pillow warns above the limit, and refuses twice as many
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with pytest.raises(DataError, match=rf"20 of 20 .*more than {limit} pixels"):
            opened(folder)
        with pytest.raises(DataError, match=rf"0\.png cannot be read .*more than {limit} pixels"):
            read_image(folder / "lying" / "0.png", Geometry(8, 2, 1))


def test_a_folder_that_holds_no_labels_says_what_is_expected(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "p", 10)
    (folder / "empty").mkdir()
    with pytest.raises(DataError, match=r"there is no image in .*empty\. Each folder is a label"):
        opened(folder)
    (folder / "empty").rmdir()
    with pytest.raises(DataError, match="no folders of them: expected one for each label"):
        opened(folder / "lying")
    with pytest.raises(DataError, match=r"holds no text.* say task=.classify"):
        load_dataset(folder, "language")
    (tmp_path / "nothing").mkdir()
    with pytest.raises(DataError, match="or a folder of images for each label"):
        opened(tmp_path / "nothing")


def test_runs_among_the_images_are_no_labels(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "p", 10)
    before = opened(folder).fingerprint
    for run in (folder / "runs" / "one", folder / "two", folder / "sweeps" / "s" / "layers=1"):
        run.mkdir(parents=True)
        (run / "config.yaml").write_text("format_version: 2\n")
        Image.new("L", (16, 16)).save(run / "loss.png")
    assert opened(folder).fingerprint == before


def test_a_table_beside_a_picture_is_still_a_table(tmp_path: Path) -> None:
    for split in ("train", "valid"):
        (tmp_path / f"{split}.tsv").write_text("\n".join(f"text {i}\t{i % 2}" for i in range(20)))
    Image.new("L", (16, 16)).save(tmp_path / "plot.png")
    assert opened(tmp_path).geometry is None


def test_wishes_that_the_data_cannot_serve_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("\n".join(f"text {i}\t{i % 2}" for i in range(20)))
    with pytest.raises(UsageError, match=r"holds texts: leave out what data\.image_size"):
        opened(tmp_path / "t.tsv", Geometry(size=16))
    pytest.importorskip("sklearn")
    with pytest.raises(UsageError, match="digits holds images of 8 × 8 in grey, 16 patches of 2 × 2"):
        open_examples("digits", "classify", None, 0.1, 0.1, Geometry(size=16))
    assert load_dataset("digits", "classify").geometry == Geometry(8, 2, 1)
