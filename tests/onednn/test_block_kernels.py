"""The kernels for codes in blocks: they give exact integers, write what they should and read
nothing beyond.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from support.guarded import Guarded

from fqfuse.ir.ops.blocks import middle, unpacked
from fqfuse.onednn.block_kernels import PADDING, PANEL_BYTES, block_kernels
from fqfuse.onednn.coded_kernels import in_panels
from fqfuse.onednn.kernels import Kernels, Work
from fqfuse.onednn.library import Library

LANES = 64


@pytest.fixture(params=[4, 8])
def bits(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def kernels(library: Library, bits: int, level: str) -> Kernels:
    found = block_kernels(library, bits)
    if found is None:
        pytest.skip(f"not called at the level {level}")
    return found


def test_other_widths_have_no_kernels(library: Library) -> None:
    assert block_kernels(library, 2) is None


def drawn(
    rows: int, blocks: int, block: int, bits: int, seed: int
) -> tuple[Guarded, Guarded, Guarded]:
    """Codes, scales and zero points: integers small enough for exact sums."""
    rng = np.random.default_rng(seed)
    zeros = np.zeros(rows * blocks + PADDING, np.uint8)
    zeros[: rows * blocks] = rng.integers(0, 1 << bits, rows * blocks)
    return (
        Guarded(rng.integers(0, 256, (rows, blocks * block * bits // 8), np.uint8)),
        Guarded(rng.integers(-4, 5, (rows, blocks)).astype(np.float32)),
        Guarded(zeros),
    )


def decoded(codes: np.ndarray, scales: np.ndarray, zeros: np.ndarray, bits: int) -> np.ndarray:
    rows, blocks = scales.shape
    apart = unpacked(codes, bits).reshape(rows, blocks, -1).astype(np.int64)
    apart -= zeros[: rows * blocks].reshape(rows, blocks, 1)
    return (apart * scales.astype(np.int64)[..., None]).reshape(rows, -1)


def work_of(kernels: Kernels, codes, scales, zeros, block: int) -> Work:
    rows, blocks = scales.array.shape
    return kernels.work(
        "decode_columns",  # the others take the same
        codes=codes.array.ctypes.data,
        scales=scales.array.ctypes.data,
        zeros=zeros.array.ctypes.data,
        stride=codes.array.shape[1],
        blocks=blocks,
        block=block,
        rows=rows,
    )


def columns_in_panels(work: Work, codes, scales, zeros) -> list[Guarded]:
    """What `multiply_row` reads of the columns, in the work."""
    rows, blocks = scales.array.shape
    points = zeros.array[: rows * blocks].reshape(rows, blocks)
    parts = codes.array.view(np.uint32), scales.array, points
    found = [Guarded(in_panels(part)) for part in parts]
    work.codes, work.scales, work.zeros = (part.array.ctypes.data for part in found)
    return found


def panels_for(work: Work, threads: int) -> Guarded:
    """Room for so many threads, which ends where nobody may touch, in the work."""
    panels = Guarded(np.full(threads * PANEL_BYTES, 255, np.uint8))
    work.panels = panels.array.ctypes.data
    return panels


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 63, 64, 65, 130])
@pytest.mark.parametrize(("blocks", "block"), [(1, 8), (3, 16), (5, 32), (2, 128)])
def test_columns_are_exact(kernels, bits, rows, blocks, block) -> None:
    for threads in (1, 2):
        hold_columns(kernels, bits, rows, blocks, block, threads)


def hold_columns(kernels, bits, rows, blocks, block, threads) -> None:
    given = drawn(rows, blocks, block, bits, rows + blocks)
    ld = -(-rows // LANES) * LANES
    out = Guarded(np.full((blocks * block, ld), np.nan, np.float32))
    work = work_of(kernels, *given, block)
    work.out, work.ld = out.array.ctypes.data, ld
    call = kernels.call("decode_columns", work, threads)
    wanted = decoded(*(part.array for part in given), bits).T
    for _ in range(2):
        out.array[...] = np.nan
        call()
        np.testing.assert_array_equal(out.array[:, :rows], wanted)


@pytest.mark.parametrize("rows", [1, 16, 17, 48, 49, 64, 70, 130])
@pytest.mark.parametrize(("blocks", "block"), [(1, 8), (5, 24), (5, 32), (3, 64), (2, 128)])
def test_products_are_exact(kernels, bits, rows, blocks, block) -> None:
    for threads, many in itertools.product((1, 2), (1, 2, 5)):
        hold_products(kernels, bits, rows, many, blocks, block, threads)


def hold_products(kernels, bits, rows, many, blocks, block, threads) -> None:
    given = drawn(rows, blocks, block, bits, rows + blocks)
    x = Guarded(np.random.default_rng(7).integers(-8, 9, (many, blocks * block)).astype(np.float32))
    out = Guarded(np.full((many, rows), np.nan, np.float32))
    work = work_of(kernels, *given, block)
    work.x, work.out = x.array.ctypes.data, out.array.ctypes.data
    work.many, work.ld = many, rows
    call = kernels.call("multiply_row", work, threads, columns_in_panels(work, *given))
    # integers below 2^24: every order of the sum is exact
    wanted = x.array.astype(np.int64) @ decoded(*(part.array for part in given), bits).T
    for _ in range(2):
        out.array[...] = np.nan
        call()
        np.testing.assert_array_equal(out.array, wanted)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 31, 32, 33, 98])
@pytest.mark.parametrize(("blocks", "block"), [(1, 32), (3, 64)])
def test_products_of_several_rows_are_exact(kernels, bits, rows, blocks, block) -> None:
    for threads, many in itertools.product((1, 2), (1, 3, 4, 5, 6, 8, 11)):
        hold_several_rows(kernels, bits, rows, many, blocks, block, threads)


def hold_several_rows(kernels, bits, rows, many, blocks, block, threads) -> None:
    given = drawn(rows, blocks, block, bits, rows + many)
    x = np.random.default_rng(7).integers(-8, 9, (many, blocks * block)).astype(np.float32)
    apart = Guarded(np.ascontiguousarray(x.reshape(many, -1, 16, 2).swapaxes(2, 3)))
    out = Guarded(np.full((many, rows), np.nan, np.float32))
    work = work_of(kernels, *given, block)
    work.x, work.out = apart.array.ctypes.data, out.array.ctypes.data
    work.many, work.ld = many, rows
    call = kernels.call("multiply_rows", work, threads)
    wanted = x.astype(np.int64) @ decoded(*(part.array for part in given), bits).T
    for _ in range(2):
        out.array[...] = np.nan
        call()
        np.testing.assert_array_equal(out.array, wanted)


@pytest.mark.parametrize("rows", [1, 16, 17, 63, 64, 65, 130])
@pytest.mark.parametrize(
    ("blocks", "block"), [(1, 8), (3, 16), (5, 24), (5, 32), (2, 64), (3, 72), (2, 128)]
)
def test_products_of_many_rows_are_exact(kernels, bits, rows, blocks, block) -> None:
    """Blocks that end within what is decoded at once, at its end, and behind it."""
    for threads, many in itertools.product((1, 2), (1, 3, 4, 6, 33)):
        hold_many_rows(kernels, bits, rows, many, blocks, block, threads)


def hold_many_rows(kernels, bits, rows, many, blocks, block, threads) -> None:
    given = drawn(rows, blocks, block, bits, rows + many)
    x = Guarded(np.random.default_rng(7).integers(-8, 9, (many, blocks * block)).astype(np.float32))
    out = Guarded(np.full((many, rows), np.nan, np.float32))
    work = work_of(kernels, *given, block)
    work.x, work.out = x.array.ctypes.data, out.array.ctypes.data
    work.many, work.ld = many, rows
    call = kernels.call("multiply_columns", work, threads, panels_for(work, threads))
    wanted = x.array.astype(np.int64) @ decoded(*(part.array for part in given), bits).T
    for _ in range(2):
        out.array[...] = np.nan
        call()
        np.testing.assert_array_equal(out.array, wanted)


def test_absent_zero_points_are_the_middle(kernels, bits) -> None:
    given = drawn(70, 3, 32, bits, 1)
    given[2].array[...] = middle(bits)
    x = Guarded(np.random.default_rng(7).integers(-8, 9, (1, 96)).astype(np.float32))
    out = Guarded(np.full((1, 70), np.nan, np.float32))
    work = work_of(kernels, *given, 32)
    work.x, work.out, work.many, work.ld = x.array.ctypes.data, out.array.ctypes.data, 1, 70
    held = columns_in_panels(work, *given)
    work.zeros = 0
    kernels.call("multiply_row", work, 1, held)()
    wanted = x.array.astype(np.int64) @ decoded(*(part.array for part in given), bits).T
    np.testing.assert_array_equal(out.array, wanted)


@pytest.mark.parametrize("name", ["multiply_row", "multiply_rows", "multiply_columns"])
def test_nothing_beside_the_columns_is_written(kernels, bits, name) -> None:
    """Rows of the result that lie apart: what is between them stays."""
    given = drawn(37, 2, 32, bits, 1)
    x = Guarded(np.ones((6, 64), np.float32))
    out = np.full((6, 50), 7, np.float32)
    work = work_of(kernels, *given, 32)
    work.x, work.out, work.many, work.ld = x.array.ctypes.data, out.ctypes.data, 6, 50
    held = columns_in_panels(work, *given) if name == "multiply_row" else panels_for(work, 1)
    kernels.call(name, work, 1, held)()
    assert (out[:, 37:] == 7).all()
    np.testing.assert_array_equal(
        out[:, :37], np.broadcast_to(decoded(*(part.array for part in given), bits).sum(1), (6, 37))
    )
