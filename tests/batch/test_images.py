"""Images as rows: what is decoded, and that no file stops the others."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fqfuse.batch.images import Reader, check
from fqfuse.batch.parts import Piece
from fqfuse.batch.reading import Pixels, Reading, Wanted
from fqfuse.batch.signature import RowType, Signature
from fqfuse.errors import InvalidInput

image = pytest.importorskip("PIL.Image")

SIDE = 16
ROW = RowType(np.dtype(np.uint8), (SIDE, SIDE, 3))
WANTED = Wanted(Signature({"x": ROW}, ("y",), 4, exactly=False), Reading())


def row_of(path: Path) -> np.ndarray | str:
    """The row that an image becomes, or why it is a bad one."""
    (found,) = Reader(WANTED).read(path, Piece(path.name, 0, 1, 0))
    return found.bad[0][1] if found.bad else found.feeds["x"][0]


def png(colour: int, content: bytes, *, bits: int, size: tuple[int, int] = (SIDE, SIDE)) -> bytes:
    """A PNG file of a colour type, its lines without filters."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    header = struct.pack(">IIBBBBB", *size, bits, colour, 0, 0, 0)
    step = len(content) // SIDE
    lines = b"".join(b"\0" + content[at * step : (at + 1) * step] for at in range(SIDE))
    data = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + data


def tiff(content: bytes) -> bytes:
    """A TIFF file of RGB of 16 bits, little-endian."""
    first = 8 + 2 + 12 * 10 + 4  # behind header and directory
    entries = [(256, 3, 1, SIDE), (257, 3, 1, SIDE), (258, 3, 3, first), (259, 3, 1, 1)]
    entries += [(262, 3, 1, 2), (273, 4, 1, first + 6), (277, 3, 1, 3), (278, 3, 1, SIDE)]
    entries += [(279, 4, 1, len(content)), (284, 3, 1, 1)]
    directory = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    header = b"II*\0" + struct.pack("<IH", 8, len(entries)) + directory + bytes(4)
    return header + struct.pack("<HHH", 16, 16, 16) + content


DEEP = {
    "grey.png": lambda a: png(0, a[..., 0].astype(">u2").tobytes(), bits=16),
    "grey and alpha.png": lambda a: png(4, a[..., :2].astype(">u2").tobytes(), bits=16),
    "rgb.png": lambda a: png(2, a[..., :3].astype(">u2").tobytes(), bits=16),
    "rgba.png": lambda a: png(6, a.astype(">u2").tobytes(), bits=16),
    "rgb.tif": lambda a: tiff(a[..., :3].astype("<u2").tobytes()),
    "rgb.ppm": lambda a: b"P6 16 16 65535\n" + a[..., :3].astype(">u2").tobytes(),
    "grey.ppm": lambda a: b"P5 16 16 1023\n" + (a[..., 0] % 1024).astype(">u2").tobytes(),
}


@pytest.mark.each_case
@pytest.mark.parametrize("name", DEEP)
def test_colours_of_more_than_8_bits_are_bad_rows(tmp_path: Path, name: str) -> None:
    """Of some Pillow tells a mode of 8 bits, and keeps the upper 8."""
    pixels = np.random.default_rng(0).integers(0, 1 << 16, (SIDE, SIDE, 4))
    (tmp_path / name).write_bytes(DEEP[name](pixels))
    assert "neither grey, RGB nor CMYK of 8 bits" in str(row_of(tmp_path / name))


@pytest.mark.parametrize("colour", [0, 2, 4, 6])
def test_colours_of_8_bits_are_what_the_file_holds(tmp_path: Path, colour: int) -> None:
    channels = {0: 1, 2: 3, 4: 2, 6: 4}[colour]
    pixels = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, channels), np.uint8)
    (tmp_path / "a.png").write_bytes(png(colour, pixels.tobytes(), bits=8))
    expected = pixels[..., :3] if channels > 2 else np.repeat(pixels[..., :1], 3, 2)
    np.testing.assert_array_equal(row_of(tmp_path / "a.png"), expected)


def test_an_image_beyond_what_memory_should_hold_is_a_bad_row(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(2, bytes(SIDE * 3), bits=8, size=(20_000, 20_000)))
    assert str(row_of(tmp_path / "a.png")).startswith("the image is too large: ")


def test_a_program_in_the_place_of_an_image_is_not_run(tmp_path: Path) -> None:
    """Pillow goes by the content, and has Ghostscript for PostScript."""
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"
    (tmp_path / "a.png").write_bytes(script)
    assert "cannot identify image file" in str(row_of(tmp_path / "a.png"))


def test_means_of_pixels_from_0_to_255_are_refused() -> None:
    """They would be taken from pixels of 0 to 1: numbers without any meaning."""
    row = RowType(np.dtype(np.float32), (3, SIDE, SIDE))
    pixels = Pixels(mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375))
    signature = Signature({"x": row}, ("y",), 4, exactly=False)
    with pytest.raises(InvalidInput, match=r"--mean has 123\.675, and is taken from pixels"):
        check(Path("a.png"), Wanted(signature, Reading(pixels=pixels)))


def encoded() -> Iterator[bytes]:
    """Images of each format, in several ways to write it."""
    rng = np.random.default_rng(0)
    ways = [("PNG", {}), ("JPEG", {}), ("JPEG", {"progressive": True}), ("GIF", {}), ("BMP", {})]
    ways += [("TIFF", {"compression": how}) for how in (None, "tiff_lzw", "jpeg", "packbits")]
    ways += [("WEBP", {}), ("WEBP", {"lossless": True}), ("PPM", {})]
    for shape in ((20, 23, 3), (19, 20)):
        drawn = image.fromarray(rng.integers(0, 256, shape, np.uint8))
        for name, options in ways:
            file = io.BytesIO()
            drawn.save(file, name, **options)
            yield file.getvalue()


def test_no_damaged_image_stops_the_others(tmp_path: Path) -> None:
    """Whatever bytes are wrong, cut off, left out or too many."""
    rng, path, bad = np.random.default_rng(0), tmp_path / "a.png", 0
    contents = list(encoded())
    for _ in range(600):
        broken = bytearray(contents[rng.integers(len(contents))])
        for _ in range(rng.integers(1, 5)):
            at = int(rng.integers(min(128, len(broken)) if rng.random() < 0.6 else len(broken)))
            match rng.integers(4):
                case 0:
                    broken[at] = rng.integers(256)
                case 1:
                    del broken[max(at, 1) :]
                case 2:
                    del broken[at : at + 3]
                case 3:
                    broken[at:at] = rng.bytes(3)
            broken = broken or bytearray(b"\0")
        path.write_bytes(broken)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            bad += isinstance(row_of(path), str)
    assert bad > 100
