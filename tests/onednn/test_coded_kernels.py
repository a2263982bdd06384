"""The kernels for codes by codes in blocks: they give NumPy's numbers, write what they should and
read nothing beyond.
"""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.guarded import Guarded

from fqfuse.ir.ops.blocks import coded_product, middle, packed, source_codes
from fqfuse.onednn.coded_kernels import PANEL_BYTES, coded_kernels, in_panels, takes_tiles
from fqfuse.onednn.kernels import Kernels
from fqfuse.onednn.library import Library


@pytest.fixture(params=[4, 8])
def bits(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def kernels(library: Library, bits: int, level: str) -> Kernels:  # noqa: ARG001
    found = coded_kernels(library, bits)
    assert found is not None
    return found


def test_other_widths_have_no_kernels(library: Library) -> None:
    assert coded_kernels(library, 2) is None


@pytest.mark.parametrize(
    ("block", "taken"),
    [(16, True), (24, True), (32, True), (40, True), (64, True), (96, False), (256, True)],
)
def test_tiles_take_whole_rows_of_64_codes(kernels, bits, level, block, taken) -> None:
    tiles = bits == 4 and level == "avx512_core_amx"
    assert takes_tiles(kernels, block) == (taken and tiles)


class Product:
    """One product in memory that ends where nobody may touch."""

    def __init__(self, kernels: Kernels, bits: int, many: int, size: int, rows: int, **how):
        self.kernels, self.bits, self.block = kernels, bits, how.pop("block")
        self.ways = ["multiply_codes", "multiply_row"]
        if takes_tiles(kernels, self.block):
            self.ways.append("multiply_by_tiles")
        self.blocks = blocks = -(-size // self.block)
        rng = np.random.default_rng(rows + many)
        codes = rng.integers(0, 1 << bits, (rows, blocks * self.block)).astype(np.uint8)
        zeros = rng.integers(0, 1 << bits, (rows, blocks)).astype(np.uint8)
        self.columns = packed(codes, bits), rng.uniform(-2, 2, zeros.shape).astype(np.float32)
        self.points = zeros if how.pop("zeros", True) else None
        self.x = Guarded(rng.standard_normal((many, size)).astype(np.float32))
        self.xcodes = Guarded(np.full((many, blocks * self.block), 77, np.int8))
        self.xscales = Guarded(np.full((many, blocks), np.nan, np.float32))
        self.xsums = Guarded(np.full((many, blocks), -1, np.int32))
        self.ld = how.pop("ld", rows)
        self.out = Guarded(np.full(many * self.ld, 7, np.float32))
        self.place()

    def place(self) -> None:
        """Gives the kernels what they read of the weights as they are now."""
        codes, scales = self.columns
        self.codes = Guarded(in_panels(codes.view(np.uint32)))
        self.scales = Guarded(in_panels(scales))
        self.zeros = None if self.points is None else Guarded(in_panels(self.points))
        many, size = self.x.array.shape
        self.work = self.kernels.work(
            "quantize_rows",  # the others take the same
            **{name: getattr(self, name).array.ctypes.data for name in ("codes", "scales", "x")},
            **{name: getattr(self, name).array.ctypes.data for name in ("xcodes", "xscales")},
            xsums=self.xsums.array.ctypes.data,
            out=self.out.array.ctypes.data,
            zeros=0 if self.zeros is None else self.zeros.array.ctypes.data,
            blocks=self.blocks,
            block=self.block,
            rows=len(codes),
            ld=self.ld,
            many=many,
            size=size,
        )

    def run(self, threads: int = 1) -> np.ndarray:
        """The result, [many, ld], of all ways to multiply."""
        out = self.out.array.reshape(-1, self.ld)
        panels = Guarded(np.full(threads * PANEL_BYTES, 255, np.uint8))
        self.work.panels = panels.array.ctypes.data
        before, results = out.copy(), []
        self.kernels.call("quantize_rows", self.work, threads)()
        for way in self.ways:
            out[...] = before
            self.kernels.call(way, self.work, threads)()
            results.append(out.copy())
        for other in results[1:]:
            np.testing.assert_array_equal(other, results[0])
        return out

    def wanted(self) -> np.ndarray:
        attrs = {"bits": self.bits, "block": self.block, "size": self.x.array.shape[1]}
        return coded_product(self.x.array, *self.columns, self.points, attrs)


@pytest.mark.parametrize(
    ("size", "block"),
    [(16, 16), (32, 32), (33, 32), (200, 24), (260, 64), (700, 128), (2100, 32), (2600, 256)],
)
@pytest.mark.parametrize("rows", [1, 16, 17, 48, 70, 96])
def test_products_are_numpys(kernels, bits, rows, size, block) -> None:
    """More codes than are kept at a time, too; bit for bit, twice."""
    for zeros, many in itertools.product((False, True), (1, 2, 7, 15, 16, 39, 64)):
        hold_product(kernels, bits, rows, size, block, many, zeros)


def hold_product(kernels, bits, rows, size, block, many, zeros) -> None:
    product = Product(kernels, bits, many, size, rows, block=block, zeros=zeros)
    wanted = product.wanted()
    for threads in (1, 2):
        product.out.array[...] = np.nan
        np.testing.assert_array_equal(product.run(threads), wanted)


def test_codes_are_numpys(kernels, bits) -> None:
    """The largest magnitude is 127, and ties go to the even code."""
    product = Product(kernels, bits, 3, 64, 16, block=32)
    product.x.array[0] = np.arange(64) - 31.5
    product.x.array[1, :32] = np.linspace(-127, 127, 32).round() / 2
    product.run()
    codes, scales = source_codes(product.x.array, 32)
    found = product.xcodes.array.reshape(3, 2, 4, 8)
    if bits == 4:  # even places in front, and 128 more
        found = (found ^ -128).reshape(3, 2, 4, 2, 4).swapaxes(3, 4)
    np.testing.assert_array_equal(found.reshape(3, 2, 32), codes)
    np.testing.assert_array_equal(product.xscales.array, scales)
    np.testing.assert_array_equal(product.xsums.array, codes.sum(-1))
    assert abs(codes).max() == 127


@pytest.mark.parametrize("many", [3, 35])
@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan, 1e-40, 1.5e-36, 3e38, 0.0])
def test_blocks_without_a_normal_scale(kernels, bits, special, many) -> None:
    product = Product(kernels, bits, many, 96, 20, block=32)
    product.x.array[1, 32:64] = 0
    product.x.array[1, 40] = special
    found = product.run()
    with np.errstate(over="ignore", invalid="ignore"):
        np.testing.assert_array_equal(found, product.wanted())
    assert np.isfinite(np.delete(found, 1, 0)).all()
    assert np.isnan(found[1]).all() == (not np.isfinite(special))


@pytest.mark.parametrize("many", [6, 22])
def test_the_largest_sums_are_exact(kernels, bits, many) -> None:
    """All codes at their ends."""
    product = Product(kernels, bits, many, 512, 33, block=256)
    codes, scales = product.columns
    codes[...] = 255
    scales[...] = 1
    product.points[...] = 0
    product.place()
    signs = np.resize([1, -1], many)
    product.x.array[...] = np.float32(127) * signs[:, None]
    largest = 127 * ((1 << bits) - 1) * 512
    np.testing.assert_array_equal(product.run(), product.wanted())
    np.testing.assert_array_equal(product.run()[:, 0], signs * largest)


@pytest.mark.parametrize("many", [7, 23])
def test_nothing_beside_the_columns_is_written(kernels, bits, many) -> None:
    product = Product(kernels, bits, many, 64, 37, block=32, ld=50)
    found = product.run()
    assert (found[:, 37:] == 7).all()
    np.testing.assert_array_equal(found[:, :37], product.wanted())


def tile_configuration(folder: Path) -> tuple[Any, Any]:
    """Functions that load and store how the thread's tiles are set."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("not installed: gcc")
    made, source = folder / "tiles.so", folder / "tiles.c"
    source.write_text(
        "#include <immintrin.h>\n"
        "void load(const void *config) { _tile_loadconfig(config); }\n"
        "void store(void *config) { _tile_storeconfig(config); }\n"
    )
    subprocess.run([gcc, "-mamx-tile", "-shared", "-fPIC", source, "-o", made], check=True)
    found = ctypes.CDLL(str(made))
    for function in (found.load, found.store):
        function.argtypes, function.restype = [ctypes.c_void_p], None
    return found.load, found.store


@pytest.mark.parametrize("set_before", [False, True])
def test_the_thread_s_tiles_are_set_as_they_were(library, set_before, tmp_path) -> None:
    """A kernel of the library may have set them, and rely on it."""
    kernels = coded_kernels(library, 4)
    if kernels is None or not takes_tiles(kernels, 32):
        pytest.skip("no AMX here")
    load_config, store_config = tile_configuration(tmp_path)
    config = np.zeros(64, np.uint8)
    if set_before:  # tile 7: 5 rows of 12 bytes
        config[[0, 16 + 2 * 7, 48 + 7]] = 1, 12, 5
    found, none = np.full(64, 255, np.uint8), np.zeros(64, np.uint8)
    product = Product(kernels, 4, 20, 64, 40, block=32)
    load_config(config.ctypes.data)
    try:
        np.testing.assert_array_equal(product.run(), product.wanted())
        store_config(found.ctypes.data)
    finally:
        load_config(none.ctypes.data)
    np.testing.assert_array_equal(found, config)


def test_absent_zero_points_are_the_middle(kernels, bits) -> None:
    product = Product(kernels, bits, 2, 64, 5, block=32)
    product.points[...] = middle(bits)
    product.place()
    with_zeros = product.run().copy()
    product.work.zeros = 0
    np.testing.assert_array_equal(product.run(), with_zeros)
