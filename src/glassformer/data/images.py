"""Image files: opened, brought to one square and one number of colours, cut into patches.

Every image is stretched to the square; each pixel there is the mean of those it stands for. A photograph is
turned as its camera says, of an animation the first picture is taken, what is transparent lies on white.
Nothing but the formats below is opened, and nothing larger than Pillow takes to be safe.

Letters: S pixels a side, T patches, P numbers in a patch.
"""

import warnings
from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from glassformer.core.errors import DataError, UsageError
from glassformer.core.files import open_regular, read_bytes, user_path
from glassformer.data.patches import Geometry, cut

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm")


class UnreadableError(DataError):
    """Why a file is no image that can be used, without its name."""


def is_image(path: Path) -> bool:
    """Whether a file is called like an image."""
    return path.suffix.lower() in ENDINGS


def is_image_file(name: str) -> bool:
    """Whether this names an image on this machine."""
    try:
        path = user_path(name)
        return is_image(path) and path.is_file()
    except (OSError, ValueError):  # what can be no path: a long text, one with NUL
        return False


def read_image(name: str | Path, geometry: Geometry) -> np.ndarray:
    """The patches (T, P) of one image, prepared as those of a run were."""
    path = user_path(name)
    try:
        is_file = path.is_file()
    except (OSError, ValueError):  # what can be no path: a long text, one with NUL
        is_file = False
    if not is_file:
        raise UsageError(
            f"'{str(name)[:60]}' is no file: this model reads images, so expected the path of one "
            f"({', '.join(FORMATS)})"
        )
    try:
        return to_patches(pixels_of(image_data(path), geometry.size), geometry)
    except UnreadableError as error:
        raise DataError(f"{path} cannot be read as an image: {error}.") from None


def to_patches(colours: np.ndarray, geometry: Geometry) -> np.ndarray:
    """Pixels in colour (S, S, 3), of 0 … 255, as patches (T, P) of 0 … 1, grey if the geometry is."""
    if geometry.channels == 1:
        colours = np.asarray(Image.fromarray(colours).convert("L"))[..., None]
    return cut(colours, geometry.patch).astype(np.float32) / 255


def image_data(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:
        raise UnreadableError(error.strerror or str(error)) from None


def image_size(path: Path) -> tuple[int, int]:
    """Width and height, without reading more of a file than says so."""
    try:
        with open_regular(path) as file:
            return _open(file).size
    except OSError as error:
        raise UnreadableError(error.strerror or str(error)) from None


def _open(file: IO[bytes]) -> Image.Image:
    """An image before its pixels are unpacked, if it is one."""
    if not file.read(1):
        raise UnreadableError("it is empty")
    file.seek(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            return Image.open(file, formats=FORMATS)
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise UnreadableError(f"it has more than {Image.MAX_IMAGE_PIXELS:,} pixels") from None
    except UnidentifiedImageError:
        raise UnreadableError(f"it is none of {', '.join(FORMATS)}, or cut off") from None
    except Exception as error:  # whatever the readers of the formats come upon
        raise UnreadableError(f"it is damaged: {error}") from None


def pixels_of(data: bytes, size: int) -> np.ndarray:
    """The pixels of an image in colour, (S, S, 3) of 0 … 255."""
    image = _open(BytesIO(data))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image.draft(None, (4 * size, 4 * size))  # a large photograph is unpacked at a part of its size
            colours = _in_colour(ImageOps.exif_transpose(image))
            return np.asarray(colours.resize((size, size), Image.Resampling.BOX))
    except UnreadableError:
        raise
    except Exception as error:  # whatever the readers of the formats come upon
        raise UnreadableError(f"it is damaged: {error}") from None


def _in_colour(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # grey of 16 bits
        levels = np.asarray(image).astype(np.float64) / 65535
        if levels.min() < 0 or levels.max() > 1:
            raise UnreadableError("it has more than 16 bits a pixel")
        image = Image.fromarray((255 * levels).round().astype(np.uint8))
    if image.mode == "F":
        raise UnreadableError("its pixels are fractions: expected whole numbers of 8 or 16 bits")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")
