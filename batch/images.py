"""Folders of images: one row each, decoded by Pillow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidInput
from ..ir.ops.spec import Array
from .libraries import library
from .parts import Piece
from .reading import Found, Pixels, Reading, Wanted, damage, is_damage
from .signature import RowShape, RowType

_CHANNELS = {1: "L", 3: "RGB", 4: "RGBA"}
_MODES = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "HSV")
"""Of 8 bits or fewer: Pillow cuts other numbers off at 255, in silence."""
_MOST = 255
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""Those of the names that a data set takes, whatever the content: Pillow would hand an EPS file to
Ghostscript, a program of its own."""
FITS = ("cover", "stretch", "exact")


def count(path: Path, ranks: Mapping[str, int], reading: Reading) -> int:  # noqa: ARG001  (of a table)
    """One.

    Raises:
        InvalidInput: an image cannot be the rows of several inputs.
    """
    if len(ranks) != 1:
        raise InvalidInput(
            f"the model has {len(ranks)} inputs, and an image is one",
            where=str(path),
            hint="write .npz or Parquet files with all inputs",
        )
    return 1


def first_shape(path: Path, name: str, rank: int, reading: Reading) -> RowShape | None:  # noqa: ARG001
    """Images are resized, and tell no size."""
    return None


def check(path: Path, wanted: Wanted) -> None:
    """Refuses an input that no image can be.

    Raises:
        InvalidInput: its rows are no pixels.
    """
    library("PIL.Image", "images are decoded with Pillow")
    ((name, row),) = wanted.signature.inputs.items()
    if _layout(row) is None or row.dtype not in (np.uint8, np.float32, np.float16, np.float64):
        raise InvalidInput(
            f"the input {name} takes {row} for a row, which is no image",
            where=str(path),
            hint="images go into [channels, height, width] or [height, width, channels] with 1, 3 or 4 channels, u8 or float",
        )
    pixels = wanted.reading.pixels
    channels = min(row.shape[0], row.shape[2]) if len(row.shape) == 3 else 1
    for option, values in (("--mean", pixels.mean), ("--std", pixels.std)):
        if len(values) not in (1, channels):
            raise InvalidInput(
                f"{option} has {len(values)} numbers, and the images have {channels} channels",
                where=f"input {name}",
                hint="give one number, or one for each channel",
            )
    if max(pixels.mean) > 1:
        raise InvalidInput(
            f"--mean has {max(pixels.mean):g}, and is taken from pixels divided by 255, which are 0 to 1",
            where=f"input {name}",
            hint="divide the numbers of --mean and --std by 255",
        )
    given = pixels.mean != (0.0,) or pixels.std != (1.0,)
    if given and row.dtype == np.uint8:
        raise InvalidInput(
            f"the input {name} takes pixels as they are, and --mean and --std make floats of them",
            where=f"input {name}",
            hint="leave --mean and --std out",
        )


class Reader:
    """Reads pieces."""

    def __init__(self, wanted: Wanted) -> None:
        ((self._name, self._row),) = wanted.signature.inputs.items()
        self._pixels = wanted.reading.pixels

    def read(self, path: Path, piece: Piece) -> Iterator[Found]:  # noqa: ARG002  (the image is one row)
        """The image as a row."""
        nothing: Array = np.zeros(0, np.int64)
        try:
            array = _decoded(path, self._row, self._pixels)
        except Exception as error:
            if not is_damage(error):
                raise
            yield Found(1, nothing, {}, ((0, damage(error)),))
            return
        if isinstance(array, str):
            yield Found(1, nothing, {}, ((0, array),))
            return
        yield Found(1, np.zeros(1, np.int64), {self._name: array[np.newaxis]})

    def close(self) -> None:
        """Nothing is held open between pieces."""


def _layout(row: RowType) -> tuple[int, int, int, bool] | None:
    """Height, width, channels, and whether the channels stand first; None for no image."""
    if len(row.shape) == 2:
        return (*row.shape, 1, True)
    if len(row.shape) == 3 and row.shape[0] in _CHANNELS:
        return row.shape[1], row.shape[2], row.shape[0], True
    if len(row.shape) == 3 and row.shape[2] in _CHANNELS:
        return (*row.shape, False)
    return None


def _decoded(path: Path, row: RowType, pixels: Pixels) -> Array | str:
    """The row, or the reason why it cannot be one."""
    layout = _layout(row)
    assert layout is not None
    height, width, channels, first = layout
    pillow = library("PIL.Image", "images are decoded with Pillow")
    try:
        opened = pillow.open(path, formats=_FORMATS)
    except pillow.DecompressionBombError as error:
        return f"the image is too large: {error}"
    except pillow.UnidentifiedImageError as error:  # its own words depend on where the data lie
        raise ValueError("cannot identify image file") from error
    with opened:
        if opened.mode not in _MODES or _is_deep(opened):
            return (
                f"the image's pixels are neither grey, RGB nor CMYK of 8 bits (mode {opened.mode})"
            )
        image = opened.convert(_CHANNELS[channels])
    if image.size != (width, height):
        if pixels.fit == "exact":
            return (
                f"the image has {image.height} x {image.width} pixels, expected {height} x {width}"
            )
        image = _resized(pillow, image, (width, height), cover=pixels.fit == "cover")
    array: Array = np.asarray(image).reshape(height, width, channels)
    if row.dtype != np.uint8:
        scaled = array.astype(np.float32) / np.float32(255)
        mean, std = (np.array(values, np.float32) for values in (pixels.mean, pixels.std))
        array = ((scaled - mean) / std).astype(row.dtype)
    return np.ascontiguousarray(array.transpose(2, 0, 1) if first else array).reshape(row.shape)


def _is_deep(opened: Any) -> bool:
    """True where the file has more bits than the mode says, of which Pillow would keep the upper 8:
    of colours of 16 bits it tells only how the bytes lie, such as `RGB;16B`.
    """
    for codec, _, _, told in opened.tile:
        args = told if isinstance(told, tuple) else (told,)
        if any(isinstance(word, str) and ";16" in word for word in args):
            return True
        if codec.startswith("ppm") and args[-1] > _MOST:
            return True
    return False


def _resized(pillow: Any, image: Any, size: tuple[int, int], *, cover: bool) -> Any:
    box = None
    if cover:  # the middle of the image with the shape of the input
        scale = min(image.width / size[0], image.height / size[1])
        across, down = size[0] * scale, size[1] * scale
        left, top = (image.width - across) / 2, (image.height - down) / 2
        box = (left, top, min(left + across, image.width), min(top + down, image.height))
    return image.resize(size, pillow.Resampling.BILINEAR, box=box)
