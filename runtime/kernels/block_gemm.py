"""Products of f32 rows with packed weights: a block of columns at a time is decoded into scratch,
multiplied and finished, so that no f32 copy of all weights exists. Where the rows become codes, too,
so is a block of codes of each column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ...ir.ops import OPS
from ...ir.ops.blocks import middle, source_codes, unpacked
from ...ir.ops.rows import integer
from ...ir.ops.spec import Array
from ...ir.types import DType
from ...plan.arguments import BLOCKS_OF_WEIGHTS
from ...plan.types import Step
from ..numerics import F32Array
from .base import Binding, Kernel, Recorder, Tasks, Values, cells, extent, nbytes, tiles
from .epilogue import Epilogue
from .exact_gemm import KSplit
from .gemm import anchor_of, bias_operand

_BLOCK_BYTES = 512 * 1024  # of weights in f32: half of the second-level cache
_TILE_BYTES = 512 * 1024  # of accumulators
_CODED_TILE_BYTES = 1 << 20  # of accumulators, and of codes of rows
_LEAST_COLUMNS = 16
_MOST_COLUMNS = 2048  # whose codes of a block are decoded at once


def code_table(bits: int) -> npt.NDArray[np.float32]:
    """[256, codes in a byte]: the codes that lie in each byte, in f32."""
    return unpacked(np.arange(256, dtype=np.uint8)[:, None], bits).astype(np.float32)


class Blocks:
    """Packed weights of a step: [N, K], N rows of K codes, one row for each column of the result.

    Args:
        step: the step.
        constant: gives the data of a constant of the plan.

    Attributes:
        rows, size: N and K.
        block, bits: of the codes.
        blocks: how many a row has.
        codes: [N, bytes].
        scales: f32 [N, blocks].
        zero_points: [N, blocks] or None.
    """

    def __init__(self, step: Step, constant: Callable[[str], Array]) -> None:
        attrs = OPS[step.op].known(step.params)
        self.bits, self.block, self.size = (
            integer(attrs, name) for name in ("bits", "block", "size")
        )
        codes, scales, zeros = (step.arg(role) for role in ("weights", *BLOCKS_OF_WEIGHTS))
        self.codes, self.scales = constant(codes or ""), constant(scales or "")
        self.zero_points = None if zeros is None else constant(zeros)
        self.rows, self.blocks = self.scales.shape
        self._table = code_table(self.bits)

    @property
    def width(self) -> int:
        """Codes of a row, those that fill up its last block counted."""
        return int(self.blocks * self.block)

    def record(self, part: slice, real: F32Array, record: Recorder) -> None:
        """Takes down the decoding of some rows into a contiguous [rows, width]."""
        self.record_codes(part, slice(0, self.blocks), real, record)
        apart = real.reshape(part.stop - part.start, self.blocks, self.block)
        record(np.multiply, apart, self.scales[part][..., None], apart)

    def record_codes(self, part: slice, blocks: slice, real: F32Array, record: Recorder) -> None:
        """Takes down what brings codes less zero points of some blocks of some rows into a
        contiguous [rows, codes of the blocks].
        """
        stored = self.block * self.bits // 8
        codes = self.codes[part, blocks.start * stored : blocks.stop * stored]
        several = self._table.shape[1]
        if several == 1:
            record.copy(real.reshape(codes.shape), codes)
        else:
            # all codes of a byte at once: an entry of the table is one element of 8 or 16 bytes
            wide = np.dtype((np.void, 4 * several))
            record(
                np.take,
                self._table.view(wide)[:, 0],
                codes,
                None,
                real.view(wide).reshape(codes.shape),
                "clip",
            )
        apart = real.reshape(part.stop - part.start, blocks.stop - blocks.start, self.block)
        zero: Array | np.float32 = np.float32(middle(self.bits))
        if self.zero_points is not None:
            zero = self.zero_points[part, blocks].astype(np.float32)[..., None]
        record(np.subtract, apart, zero, apart)


class BlockGemm(Kernel):
    """`matmul` of f32 rows with packed weights."""

    def __init__(self, binding: Binding) -> None:
        self._src, result = binding.need("src"), binding.result()
        if self._src.dtype is not DType.F32:
            raise binding.refuse(f"packed weights times {self._src.dtype.value}")
        self._weights = weights = Blocks(binding.step, lambda name: _data(binding, name))
        split = KSplit((0, weights.size), math.inf, False, False)
        channel = len(result.shape) - 1
        anchor = anchor_of(binding, channel, split, bias_operand(binding, channel))
        self._epilogue = Epilogue(binding, result, anchor)
        self.results = (result,)
        width = max(_LEAST_COLUMNS, _BLOCK_BYTES // (4 * weights.width))
        count = max(-(-weights.rows // width), min(binding.threads, weights.rows // _LEAST_COLUMNS))
        cuts = [weights.rows * i // max(count, 1) for i in range(max(count, 1) + 1)]
        self._parts = [slice(a, b) for a, b in pairwise(cuts) if a < b]
        widest = max((part.stop - part.start for part in self._parts), default=1)
        self._tiles = tiles(result.shape[:-1], max(1, _TILE_BYTES // (4 * widest)))
        self.local_bytes = max(
            (self._bytes(cells(tile), widest) for tile in self._tiles), default=0
        )

    def _bytes(self, rows: int, columns: int) -> int:
        acc = nbytes((rows, columns), np.float32)
        finish = self._epilogue.scratch_bytes(rows * columns)
        decoded = nbytes((columns, self._weights.width), np.float32)
        return decoded + acc + finish

    def tasks(self, values: Values, outputs: Sequence[Array]) -> Tasks:
        """One for each block of columns."""
        source, out = self._src.read(values), outputs[0]
        operands = self._epilogue.operands(values)

        def task(index: int, record: Recorder) -> None:
            part = self._parts[index]
            real = record.take((part.stop - part.start, self._weights.width), np.float32)
            self._weights.record(part, real, record)
            weights = real[:, : self._weights.size]
            for tile in self._tiles:
                mark = record.scratch.mark()
                acc = record.take((cells(tile), part.stop - part.start), np.float32)
                rows = source[tile].reshape(cells(tile), self._weights.size)
                record(np.matmul, rows, weights.T, acc)
                place = (*tile, part)
                self._epilogue.record(acc.reshape(extent(place)), out, place, operands, record)
                record.scratch.release(mark)

        return Tasks(len(self._parts) if self._tiles else 0, task)


class CodedBlockGemm(Kernel):
    """`matmul` of f32 rows, which become codes of their blocks, with packed weights: the numbers of
    `ir/ops/blocks.py`, `coded_product`.
    """

    def __init__(self, binding: Binding) -> None:
        self._src, result = binding.need("src"), binding.result()
        if self._src.dtype is not DType.F32:
            raise binding.refuse(f"codes are made of f32, and not of {self._src.dtype.value}")
        self._weights = weights = Blocks(binding.step, lambda name: _data(binding, name))
        split = KSplit((0, weights.size), math.inf, False, False)
        channel = len(result.shape) - 1
        anchor = anchor_of(binding, channel, split, bias_operand(binding, channel))
        self._epilogue = Epilogue(binding, result, anchor)
        self.results = (result,)
        count = max(1, min(binding.threads, weights.rows // _LEAST_COLUMNS))
        count = max(count, -(-weights.rows // _MOST_COLUMNS))
        cuts = [weights.rows * i // count for i in range(count + 1)]
        self._parts = [slice(a, b) for a, b in pairwise(cuts) if a < b]
        widest = max((part.stop - part.start for part in self._parts), default=1)
        row = 4 * max(widest, weights.width)
        self._tiles = tiles(result.shape[:-1], max(1, _CODED_TILE_BYTES // row))
        self.local_bytes = max(
            (self._bytes(cells(tile), widest) for tile in self._tiles), default=0
        )

    def _bytes(self, rows: int, columns: int) -> int:
        weights = self._weights
        codes = nbytes((weights.blocks, rows, weights.block), np.float32)
        scales = nbytes((weights.blocks, rows, 1), np.float32)
        sums = 3 * nbytes((rows, columns), np.float32)
        block = nbytes((columns, weights.block), np.float32)
        return codes + scales + sums + block + self._epilogue.scratch_bytes(rows * columns)

    def tasks(self, values: Values, outputs: Sequence[Array]) -> Tasks:
        """One for each part of the columns."""
        source, out = self._src.read(values), outputs[0]
        operands = self._epilogue.operands(values)
        size = self._weights.size

        def task(index: int, record: Recorder) -> None:
            part = self._parts[index]
            for tile in self._tiles:
                mark = record.scratch.mark()
                acc = record.take((cells(tile), part.stop - part.start), np.float32)
                self._record_product(source[tile].reshape(cells(tile), size), part, acc, record)
                place = (*tile, part)
                self._epilogue.record(acc.reshape(extent(place)), out, place, operands, record)
                record.scratch.release(mark)

        return Tasks(len(self._parts) if self._tiles else 0, task)

    def _record_product(self, rows: Array, part: slice, acc: F32Array, record: Recorder) -> None:
        weights, many = self._weights, len(rows)
        codes = record.take((weights.blocks, many, weights.block), np.float32)
        scales = record.take((weights.blocks, many, 1), np.float32)
        exact, factors = (record.take(acc.shape, np.float32) for _ in range(2))
        real = record.take((acc.shape[1], weights.block), np.float32)
        record(_made_codes, rows, codes, scales)
        record.copy(acc, np.zeros((), np.float32))
        for index in range(weights.blocks):
            weights.record_codes(part, slice(index, index + 1), real, record)
            # integers below 2^24: exact in whatever order they are added
            record(np.matmul, codes[index], real.T, exact)
            record(np.multiply, scales[index], weights.scales[part, index], factors)
            record(np.multiply, exact, factors, exact)
            record(np.add, acc, exact, acc)


def _made_codes(rows: Array, codes: F32Array, scales: F32Array) -> None:
    """Codes [blocks, rows, block] and scales [blocks, rows, 1] of rows."""
    found, factors = source_codes(rows, codes.shape[2])
    codes[...] = found.swapaxes(0, 1)
    scales[..., 0] = factors.T


def _data(binding: Binding, name: str) -> Array:
    data = binding.operands[name].data
    if data is None:
        raise binding.refuse("packed weights that are no constants")
    return data
