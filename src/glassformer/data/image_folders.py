"""The user's own images: a folder for each label.

    photos/cat/a.jpg  photos/dog/b.png  …            the folder of an image is its label
    photos/train/cat/a.jpg  photos/valid/cat/…       … and above it, perhaps, its split

What is called like an image has to be one: files that cannot be read are named together, and nothing is
learned from the rest. Other files are left out, with a warning.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from glassformer.core.errors import DataError, UsageError
from glassformer.core.files import user_path, whole_path
from glassformer.data.examples import SPLIT_NAMES, Example, Examples, divide_examples
from glassformer.data.images import (
    UnreadableError,
    image_data,
    image_size,
    is_image,
    pixels_of,
    to_patches,
)
from glassformer.data.patches import Geometry
from glassformer.data.text_files import is_run_folder, visible_files

SIDE = 32  # pixels, unless the images have one of their own
LARGEST_SIDE = 64  # that is kept as it is
PATCHES = 8  # a side, about
FEWEST, MOST = 4, 16  # a side, of images that keep their own
NAMED = 5  # of many files that a message is about
T = TypeVar("T")


def own_images(source: str, wish: Geometry, valid: float, test: float) -> Examples | None:
    """The images below a folder with their labels; None where there are none."""
    folder = user_path(source)
    paths, names = visible_files(source)
    found = [(path, Path(name).parts) for path, name in zip(paths, names, strict=True) if is_image(path)]
    if not found:
        return None
    splits = _split_folders({parts[0] for _, parts in found if len(parts) > 1})
    depth = 2 if splits else 1  # folders above an image
    labelled = [(path, parts) for path, parts in found if len(parts) > depth]
    if not labelled:
        raise DataError(
            f"{source} holds images, but no folders of them: expected one for each label, as in "
            f"{folder / 'cat' / found[0][0].name}."
        )
    _refuse_empty([folder, *(folder / name for name in splits)], {path.parent for path, _ in labelled})
    geometry, pixels = _read_all([path for path, _ in labelled], folder, wish)

    rows: list[tuple[str, tuple[str, Example]]] = []  # hash of the file, its name, the example
    for (_, parts), (digest, colours) in zip(labelled, pixels, strict=True):
        rows.append((digest, (str(Path(*parts)), (to_patches(colours, geometry), parts[depth - 1]))))
    divided, rule = divide_examples(rows, valid, test, key=lambda row: row[0])
    if splits:
        divided, rule = {split: [] for split in dict.fromkeys(splits.values())}, "as the folders are named"
        for row, (_, parts) in zip(rows, labelled, strict=True):
            divided[splits[parts[0]]].append(row)
    others = [name for path, name in zip(paths, names, strict=True) if not is_image(path)]
    loose = [str(Path(*parts)) for _, parts in found if len(parts) <= depth]
    return Examples(
        source,
        {split: [example for _, (_, example) in rows] for split, rows in divided.items()},
        rule,
        [*_left_out(others, "not called like an image"), *_left_out(loose, "in no folder of a label")],
        whole_path(folder),
        geometry,
        {split: [name for _, (name, _) in rows] for split, rows in divided.items()},
        {split: [digest for digest, _ in rows] for split, rows in divided.items()},
    )


def choose_size(wish: Geometry, sizes: set[tuple[int, int]]) -> tuple[int, int]:
    """Pixels a side, of image and patch: as wished; else those of images that are small, square and alike."""
    own = next(iter(sizes))[0] if len(sizes) == 1 and len(set(next(iter(sizes)))) == 1 else 0
    if not wish.size and 0 < own <= LARGEST_SIDE:
        patch = wish.patch or _patch_of(own)
        if own % patch == 0 and FEWEST <= own // patch <= MOST:
            return own, patch
    if wish.patch:
        return wish.size or wish.patch * max(FEWEST, round(SIDE / wish.patch)), wish.patch
    size = wish.size or SIDE
    patch = _patch_of(size)
    if patch == size:
        raise UsageError(
            f"data.image_size {size} cannot be cut into smaller squares of more than a pixel: choose "
            f"another, such as {SIDE}, or set data.patch_size"
        )
    return size, patch


def _patch_of(size: int) -> int:
    """The patch of more than a pixel that makes the number of patches a side nearest to the usual."""
    counts = [n for n in range(1, size // 2 + 1) if size % n == 0] or [1]
    return size // min(counts, key=lambda n: (abs(n - PATCHES), n))


def _split_folders(names: set[str]) -> dict[str, str]:
    """The folders that are splits, each with its split; none unless all of them are."""
    known = {name: split for split, names in SPLIT_NAMES.items() for name in names}
    return {name: known[name] for name in sorted(names)} if "train" in names and names <= set(known) else {}


def _refuse_empty(parents: Sequence[Path], filled: set[Path]) -> None:
    """Folders in which images were to be expected and are not; those of runs are none of them."""
    above = {folder for path in filled for folder in (path, *path.parents)}
    below = [p for parent in parents for p in sorted(parent.iterdir()) if p.is_dir() and p not in above]
    empty = [p for p in below if not p.name.startswith(".") and not _holds_runs(p)]
    if empty:
        raise DataError(
            f"there is no image in {_some([str(f) for f in empty])}. Each folder is a label: put images "
            "there, or remove it."
        )


def _holds_runs(folder: Path) -> bool:
    return any(is_run_folder(Path(parent)) for parent, _, _ in os.walk(folder))


def _read_all(
    paths: Sequence[Path], folder: Path, wish: Geometry
) -> tuple[Geometry, list[tuple[str, np.ndarray]]]:
    """The geometry of all, and of each the hash of its file and its pixels (S, S, 3)."""
    sizes: set[tuple[int, int]] = set()
    if not wish.size:
        sizes |= set(_of_each(paths, folder, image_size))
    size, patch = choose_size(wish, sizes)

    def read(path: Path) -> tuple[str, np.ndarray]:
        data = image_data(path)
        return hashlib.sha256(data).hexdigest(), pixels_of(data, size)

    pixels = _of_each(paths, folder, read)
    grey = all(bool((colours == colours[..., :1]).all()) for _, colours in pixels)
    return Geometry(size, patch, wish.channels or (1 if grey else 3)), pixels


def _of_each(paths: Sequence[Path], folder: Path, read: Callable[[Path], T]) -> list[T]:
    """What `read` makes of each file; those that cannot be read are named together."""
    results: list[T] = []
    broken: list[str] = []
    for path in paths:
        try:
            results.append(read(path))
        except UnreadableError as error:
            broken.append(f"{path.relative_to(folder)} ({error})")
    if broken:
        count = f"{len(broken)} of {len(paths)} images"
        raise DataError(f"{folder}: {count} cannot be read: {_some(broken)}. Repair or remove them.")
    return results


def _left_out(names: list[str], why: str) -> list[str]:
    count = f"{len(names)} file{'s' * (len(names) != 1)}"
    return [f"left out, since {why}: {count}, {_some(names)}"] if names else []


def _some(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")
