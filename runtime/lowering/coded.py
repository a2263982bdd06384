"""Products with packed weights whose rows become codes in each run: functions in C of our own
(`onednn/coded_kernels.py`), as oneDNN 3.2 has neither 4 bits nor scales in groups.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...aligned import aligned
from ...onednn.coded_kernels import LARGEST_BLOCK, LEAST_BLOCK, PANEL_BYTES
from ...onednn.kernels import Kernels
from ..kernels.block_gemm import Blocks
from .constants import Arranged, panels_of
from .program import Tensor
from .rows import RowsProduct

_FEW = 6  # rows that take less time one by one than together
_TALL = 16  # rows of a tile
_ALONE = 1 << 15  # elements whose codes one thread makes before a second one is awake


class CodedRows:
    """The packed weights of a step, and rows of codes that are multiplied by them.

    Args:
        blocks: the weights.
        kernels: our functions for codes of that width.
        threads: how many the kernels may use.
        arranged: keeps panels of columns.
        tiles: whether many rows are multiplied by AMX.
    """

    def __init__(
        self, blocks: Blocks, kernels: Kernels, threads: int, arranged: Arranged, *, tiles: bool
    ) -> None:
        self.blocks, self._kernels, self._threads, self._tiles = blocks, kernels, threads, tiles
        self._codes, self._scales, self._zeros = panels_of(blocks, arranged)

    @staticmethod
    def refusal(blocks: Blocks) -> str | None:
        """Why the kernels do not take such weights; None where they do."""
        if not LEAST_BLOCK <= blocks.block <= LARGEST_BLOCK or blocks.block * blocks.bits % 32:
            reach = f"{LEAST_BLOCK} to {LARGEST_BLOCK}, whole words of 32 bits"
            return f"blocks of {blocks.block} codes of {blocks.bits} bits: the kernel takes {reach}"
        zeros = blocks.zero_points
        if zeros is not None and zeros.size and int(zeros.max()) >= 1 << blocks.bits:
            return f"zero points beyond the codes of {blocks.bits} bits"
        return None

    def name(self, rows: int) -> str:
        """What multiplies so many rows, for the placement."""
        return f"packed codes by {self._kernels.functions[self._function(rows)].level}"

    def _function(self, rows: int) -> str:
        if rows <= _FEW:
            return "multiply_row"
        return "multiply_by_tiles" if self._tiles and rows >= _TALL else "multiply_codes"

    def _places(self, rows: int) -> tuple[int, int, int, int]:
        """Where scales and sums of the rows' codes and the threads' panels begin behind them, and
        where they end.
        """
        codes = aligned(rows * self.blocks.width)
        each = aligned(4 * rows * self.blocks.blocks)
        panels = codes + 2 * each
        room = 0 if rows <= _FEW else self._threads * PANEL_BYTES
        return codes, codes + each, panels, panels + room

    def scratch_bytes(self, rows: int) -> int:
        """Bytes for codes, scales and sums of so many rows, and for a panel of each thread."""
        return self._places(rows)[-1]

    def product(
        self, rows: int, out: NDArray[np.float32], scratch: NDArray[np.uint8]
    ) -> RowsProduct:
        """What multiplies rows [rows, K], C-contiguous, into [rows, N].

        Args:
            rows: how many.
            out: f32 [rows, N], C-contiguous.
            scratch: `scratch_bytes`, on a cache line.
        """
        blocks, kernels, shape = self.blocks, self._kernels, (rows, self.blocks.size)
        scales, sums, panels, end = self._places(rows)
        if out.shape != (rows, blocks.rows) or not out.flags.c_contiguous or scratch.size < end:
            raise ValueError(f"no place for {rows} rows of {blocks.rows}")
        place = scratch.ctypes.data
        if place != aligned(place):
            raise ValueError("the scratch does not begin on a cache line")
        work = kernels.work(
            "quantize_rows",  # the others take the same
            codes=self._codes.ctypes.data,
            scales=self._scales.ctypes.data,
            zeros=0 if self._zeros is None else self._zeros.ctypes.data,
            xcodes=place,
            xscales=place + scales,
            xsums=place + sums,
            out=out.ctypes.data,
            blocks=blocks.blocks,
            block=blocks.block,
            rows=blocks.rows,
            ld=blocks.rows,
            many=rows,
            size=blocks.size,
            panels=place + panels,
        )
        held = (self._codes, self._scales, self._zeros)
        many = self._threads if rows * blocks.width >= _ALONE else 1
        steps = [("quantize_rows", many), (self._function(rows), self._threads)]
        return RowsProduct(kernels, work, steps, shape, held)


@dataclass(frozen=True, eq=False)
class CodedAction:
    """Rows that become codes times packed weights, by our functions in C.

    Attributes:
        source: the value that holds the rows.
        src: f32, row-major, [rows, K].
        dst: f32, row-major, [rows, N].
        scratch: bytes for the codes of the rows and the panels of the threads.
        weights: what multiplies.
    """

    source: str
    src: Tensor
    dst: Tensor
    scratch: Tensor
    weights: CodedRows

    @property
    def tensors(self) -> list[Tensor]:
        """Everything that it touches."""
        return [self.src, *self.placed]

    @property
    def placed(self) -> list[Tensor]:
        """What it writes."""
        return [self.dst, self.scratch]
