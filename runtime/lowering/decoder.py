"""Packed weights of one step as the oneDNN runtime reads them, and the two actions that do."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...aligned import aligned, aligned_bytes
from ...ir.ops.blocks import middle
from ...onednn.block_kernels import PADDING, PANEL_BYTES
from ...onednn.enums import DataType
from ...onednn.kernels import Kernels, Work
from ...onednn.library import Library
from ...onednn.memory import Memory, MemoryDesc
from ...onednn.primitive import Primitive
from ...onednn.primitive_desc import PrimitiveDesc
from ..kernels.base import Recorder, Scratch
from ..kernels.block_gemm import Blocks
from .constants import Arranged, panels_of
from .program import Tensor
from .rows import RowsProduct

LANES = 64
"""Columns that are decoded at once."""

_MANY = 20
"""Rows from which on decoding columns costs less than looking codes up again for each four rows.
"""
_ADDRESSED = 1 << 31  # bytes that the kernels' offsets reach
_SEVERAL = 3  # rows from which on four at a time take less time than one after the other


class Decoder:
    """The packed weights of a step, as columns of an f32 matrix or as factors of a row.

    Args:
        blocks: the weights.
        kernels: our functions for codes of that width; None: NumPy decodes.
        threads: how many the kernels may use.
        arranged: keeps panels of columns.
    """

    def __init__(
        self, blocks: Blocks, kernels: Kernels | None, threads: int, arranged: Arranged
    ) -> None:
        self.blocks, self._threads, self._arranged = blocks, threads, arranged
        zeros = blocks.zero_points
        fits = (
            blocks.block * blocks.bits % 32 == 0
            and blocks.codes.nbytes < _ADDRESSED
            and (zeros is None or zeros.dtype == np.uint8)
        )
        self._kernels = kernels if fits else None

    def multiplies(self, rows: int) -> bool:
        """True where so many rows are multiplied by packed weights."""
        whole = self.blocks.block % 32 == 0
        return self._kernels is not None and (whole or not self.reads_halves(rows))

    @staticmethod
    def reads_halves(rows: int) -> bool:
        """True where the kernel for so many rows reads the even ones of each 32 elements first."""
        return _SEVERAL <= rows < _MANY

    def copies(self, rows: int) -> int:
        """How often the rows are copied in front of the product: to fill them up to whole blocks,
        and in the order that the kernel reads them in.
        """
        return 2 if self.reads_halves(rows) else int(self.blocks.size != self.blocks.width)

    def panel_bytes(self, rows: int) -> int:
        """Bytes that the threads decode into in the product of so many rows; few need none."""
        return 0 if rows < _MANY else self._threads * PANEL_BYTES

    @property
    def name(self) -> str:
        """What decodes, for the placement."""
        return "decoded by NumPy" if self._kernels is None else f"decoded by {self._kernels.level}"

    @property
    def multiplier(self) -> str:
        """What multiplies rows, for the placement."""
        assert self._kernels is not None
        return f"packed rows by {self._kernels.level}"

    @cached_property
    def _codes(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Codes and scales as they lie, where they lie as the kernels take them."""
        return np.ascontiguousarray(self.blocks.codes), np.require(
            self.blocks.scales, np.float32, ("C", "ALIGNED")
        )

    @cached_property
    def _zeros(self) -> NDArray[np.uint8]:
        zeros = self.blocks.zero_points
        if zeros is None:
            return _middles(self.blocks.rows * self.blocks.blocks, self.blocks.bits)
        return np.ascontiguousarray(zeros, np.uint8).reshape(-1)

    def _zeros_of(self, start: int, count: int) -> NDArray[np.uint8]:
        """The zero points of some rows, with bytes behind them that may be read, too."""
        blocks = self.blocks.blocks
        found = self._zeros[start * blocks :]
        if found.size >= count * blocks + PADDING:
            return found
        last = np.zeros(found.size + PADDING, np.uint8)
        last[: found.size] = found
        return last

    def desc(self, library: Library, columns: int) -> tuple[MemoryDesc, int]:
        """How so many decoded columns lie, [K, columns], and the bytes that they take."""
        blocks = self.blocks
        if self._kernels is None:
            strides, size = (1, blocks.width), columns * blocks.width
        else:
            ld = -(-columns // LANES) * LANES
            strides, size = (ld, 1), ld * blocks.width
        desc = MemoryDesc.with_strides(library, (blocks.size, columns), DataType.f32, strides)
        return desc, size * 4

    def columns(self, start: int, count: int, scratch: NDArray[np.uint8]) -> Callable[[], None]:
        """What decodes columns from `start` on into the scratch."""
        blocks = self.blocks
        if self._kernels is None:
            real = scratch.view(np.float32)[: count * blocks.width].reshape(count, blocks.width)
            record = Recorder(Scratch(0))
            blocks.record(slice(start, start + count), real, record)
            calls = record.calls

            def decode() -> None:
                for call in calls:
                    call()

            return decode
        zeros = self._zeros_of(start, count)
        work = self._work(self._kernels, start, count, zeros)
        work.out, work.ld = scratch.ctypes.data, -(-count // LANES) * LANES
        return self._kernels.call("decode_columns", work, self._threads, zeros)

    def halves_product(
        self, sources: NDArray[np.float32], out: NDArray[np.float32]
    ) -> Callable[[], None]:
        """What multiplies several rows [rows, width], halves of each 32 elements apart, into
        [rows, N].
        """
        kernels = self._kernels
        assert kernels is not None
        work = self._product(kernels, len(sources), out, self._zeros)
        work.x = sources.ctypes.data
        return kernels.call("multiply_rows", work, self._threads)

    def product(
        self, rows: int, out: NDArray[np.float32], panels: NDArray[np.uint8] | None
    ) -> RowsProduct:
        """What multiplies few or many rows [rows, width], C-contiguous, into [rows, N].

        Args:
            rows: how many, so that the kernel reads them as they are.
            out: f32 [rows, N].
            panels: `panel_bytes`, on a cache line; None: it needs none.
        """
        kernels, shape = self._kernels, (rows, self.blocks.width)
        assert kernels is not None
        if panels is None:
            return self._few(kernels, shape, out)
        return self._many(kernels, shape, out, panels)

    def _many(
        self,
        kernels: Kernels,
        shape: tuple[int, int],
        out: NDArray[np.float32],
        panels: NDArray[np.uint8],
    ) -> RowsProduct:
        zeros = self._zeros_of(0, self.blocks.rows)
        work = self._product(kernels, shape[0], out, zeros)
        work.panels = panels.ctypes.data
        if panels.size < self._threads * PANEL_BYTES or work.panels != aligned(work.panels):
            raise ValueError("no place for panels, or none on a cache line")
        steps = [("multiply_columns", self._threads)]
        return RowsProduct(kernels, work, steps, shape, (self._codes, zeros, panels))

    def _few(
        self, kernels: Kernels, shape: tuple[int, int], out: NDArray[np.float32]
    ) -> RowsProduct:
        codes, scales, zeros = held = panels_of(self.blocks, self._arranged)
        work = self._product(kernels, shape[0], out, self._zeros)
        work.codes, work.scales = codes.ctypes.data, scales.ctypes.data
        work.zeros = 0 if zeros is None else zeros.ctypes.data

        def decoded(sources: NDArray[np.float32]) -> None:
            panels = aligned_bytes(self._threads * PANEL_BYTES)
            self._many(kernels, shape, out, panels)(sources)

        # Of each block it sums codes, and scales the sum, which may be larger than f32 where the
        # weights times the row are not.
        steps = [("multiply_row", self._threads)]
        return RowsProduct(kernels, work, steps, shape, held, decoded)

    def _product(
        self, kernels: Kernels, rows: int, out: NDArray[np.float32], zeros: NDArray[np.uint8]
    ) -> Work:
        work = self._work(kernels, 0, self.blocks.rows, zeros)
        work.out, work.many, work.ld = out.ctypes.data, rows, self.blocks.rows
        return work

    def _work(self, kernels: Kernels, start: int, count: int, zeros: NDArray[np.uint8]) -> Work:
        blocks, (codes, scales) = self.blocks, self._codes
        return kernels.work(
            "decode_columns",  # the others take the same
            codes=codes[start:].ctypes.data,
            scales=scales[start:].ctypes.data,
            zeros=zeros.ctypes.data,
            stride=codes.shape[1],
            blocks=blocks.blocks,
            block=blocks.block,
            rows=count,
        )


@functools.cache
def _middles(count: int, bits: int) -> NDArray[np.uint8]:
    """Zero points of weights that have none of their own."""
    found = np.full(count, middle(bits), np.uint8)
    found.setflags(write=False)
    return found


@dataclass(frozen=True, eq=False)
class PartsAction:
    """A step, part by part of its columns.

    Attributes:
        parts: the primitive of each, and its first column.
        args: execution argument -> what the whole step reads or writes.
        weights: the scratch that all parts decode their weights into.
        decoder: decodes them.
    """

    parts: Sequence[tuple[Primitive, int]]
    args: Mapping[int, Tensor | Memory]
    weights: Tensor
    decoder: Decoder

    @property
    def tensors(self) -> list[Tensor]:
        """Everything that it touches."""
        return [*self.placed, *(arg for arg in self.args.values() if isinstance(arg, Tensor))]

    @property
    def placed(self) -> list[Tensor]:
        """The scratch."""
        return [self.weights]


@dataclass(frozen=True, eq=False)
class RowsAction:
    """Rows times packed weights, by our functions in C.

    Attributes:
        source: the value that holds the rows.
        src: f32, row-major, [rows, K].
        dst: f32, row-major, [rows, N].
        scratch: f32, [copies, rows, codes of a row]: rows that are filled up, and rows in the order
            that the kernels read them in; None: they are read as they are.
        panels: what the threads decode many rows' weights into; None: rows are few.
        decoder: has the weights.
    """

    source: str
    src: Tensor
    dst: Tensor
    scratch: Tensor | None
    panels: Tensor | None
    decoder: Decoder

    @property
    def tensors(self) -> list[Tensor]:
        """Everything that it touches."""
        return [self.src, *self.placed]

    @property
    def placed(self) -> list[Tensor]:
        """What it writes."""
        rooms = (self.scratch, self.panels)
        return [self.dst, *(room for room in rooms if room is not None)]


def part_of(desc: PrimitiveDesc, arg: int, whole: MemoryDesc) -> MemoryDesc | None:
    """How the primitive of a part sees an argument; None where it reads the whole."""
    wanted = desc.exec_arg_md(arg)
    return wanted if wanted.dims and whole.dims and wanted.dims != whole.dims else None
