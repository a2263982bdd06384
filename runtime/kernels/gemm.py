"""Rows of codes times constant weights, tile by tile, with the epilogue on each tile while it is in
cache.

The weights stay in int8 and are converted while the step runs: an f32 copy of them would be four
times the plan. Two ways to share the work:

* by rows: each worker converts the weights, then takes tiles of rows: gathers, multiplies and
  finishes them;
* by columns (few rows, wide weights: the last stages of a network): each worker gathers all rows,
  then takes blocks of columns and converts their weights, so that every weight is converted and
  packed by BLAS once.

Either way there is one set of tasks without an order among them, and what is done twice is small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from ...ir.ops.spec import Array
from ...ir.types import DType
from ..numerics import F32Array
from ..padding import bias_by_position, has_fraction
from .base import (
    Binding,
    Kernel,
    Operand,
    Recorder,
    Tasks,
    Tile,
    Values,
    cells,
    extent,
    nbytes,
    tiles,
)
from .epilogue import Anchor, Epilogue, along
from .exact_gemm import Codes, KSplit, record_product, scratch_bytes
from .pairs import PairSums

_TILE_BYTES = 768 * 1024  # of gathered rows and accumulators: within the second-level cache
_FEWEST_ROWS = (
    96  # below, packing the weights anew for each tile costs BLAS more than the cache saves
)
_FEW_ROWS = 256
_COLUMN_BLOCK = 128  # columns: the fewest that BLAS is fast with
_BLOCK_BYTES = 512 * 1024  # of weights in f32: half of the second-level cache
_BLOCK_ELEMENTS = 1 << 16  # results: the epilogue takes them at once
_LEAST_WORK = 1 << 20  # multiply-adds: about 20 microseconds
_PER_ELEMENT = 16


def integer_codes(binding: Binding, role: str) -> tuple[Codes | None, int]:
    """The range of an integer argument minus its zero point, and the zero point; (None, 0) for an
    f32 argument.

    Raises:
        InternalError: an element type, or a zero point per channel, that the kernels do not take;
            the other factor is no code, or this one is none.
    """
    operand = binding.need(role)
    zero = binding.step.attr.zero_points.get(role)
    src, weights = binding.need("src").dtype, binding.need("weights").dtype
    if src.is_integer != weights.is_integer:
        raise binding.refuse(f"{src.value} times {weights.value}")
    if operand.dtype is DType.F32:
        if zero is not None and np.any(zero.array):
            raise binding.refuse(f"a zero point on f32 {role}")
        return None, 0
    if operand.dtype not in (DType.U8, DType.S8):
        raise binding.refuse(f"{role} of type {operand.dtype.value}")
    if zero is None:
        return Codes.of(operand.dtype.range), 0
    if len(set(zero.values)) > 1:
        raise binding.refuse(f"zero points per channel on {role}")
    nearest = int(zero.array[0])
    return Codes.of(operand.dtype.range, nearest), nearest


def bias_operand(binding: Binding, channel: int) -> Operand | None:
    """The bias, placed on dst's dimensions, with what a fraction of the source's zero point adds
    to it.

    Args:
        binding: the step.
        channel: the dimension of dst that the bias runs along.
    """
    rank, bias = len(binding.shapes[0]), binding.arg("bias")
    if has_fraction(binding.step):
        data = None if bias is None else binding.constant("bias")
        spatial = binding.need("src").shape[2:]
        return Operand.of(
            bias_by_position(binding.step, binding.constant("weights"), data, spatial)
        )
    if bias is not None and channel != rank - 1:
        return Operand.of(along(binding.constant("bias"), channel, rank))
    return bias


def anchor_of(binding: Binding, channel: int, split: KSplit, bias: Operand | None) -> Anchor:
    """Scales of src and weights, and the bias, placed on dst's dimensions.

    Args:
        binding: the step.
        channel: the dimension of dst that per-channel weights scales run along.
        split: of the product.
        bias: see `bias_operand`.
    """
    rank, scales = len(binding.shapes[0]), binding.step.attr.scales
    factors = tuple(
        along(scales[role].array, channel, rank) for role in ("src", "weights") if role in scales
    )
    return Anchor(split.bound, split.bound < math.inf, factors, bias)


def kernel_matrix(weights: Array) -> Array:
    """[OC, IC/groups, kernel...] as a contiguous [kernel... * IC/groups, OC]."""
    turned = np.moveaxis(weights, (0, 1), (-1, -2))
    return np.ascontiguousarray(turned).reshape(math.prod(weights.shape[1:]), weights.shape[0])


class TiledGemm(Kernel):
    """The product of [rows, groups * K] codes with constant weights, and what follows it.

    Args:
        binding: the step.
        weights: [K, N]; N counts the columns of all groups, K is a group's depth.
        groups: N/groups columns read K of the groups * K entries of a row.
        split: how K is cut.
        epilogue: what follows.
        shape: physical shape of the destination; rows are its leading dimensions, columns its last
            one.
        by_position: `_fill` gets the transpose of a contiguous [groups * K, rows] array.
        pairs: whose sums saturate on the CPU that is emulated; None: exact products.
    """

    def __init__(
        self,
        binding: Binding,
        weights: Array,
        groups: int,
        split: KSplit,
        epilogue: Epilogue,
        shape: Sequence[int],
        *,
        by_position: bool = False,
        pairs: PairSums | None = None,
    ) -> None:
        self._pairs = pairs
        self.results = (epilogue.result,)
        self._src, (_, self._shift) = binding.need("src"), integer_codes(binding, "src")
        self._groups, self._split, self._epilogue = groups, split, epilogue
        self._shape = tuple(shape)
        self._columns, self._rows = int(shape[-1]), math.prod(shape[:-1])
        self._depth = int(weights.shape[0])
        self._by_position = by_position
        self._convert = weights.dtype != np.float32
        by_columns = (
            groups == 1
            and not by_position
            and self._rows <= _FEW_ROWS
            and self._columns >= max(self._rows, 2 * 64)
        )
        self._by_columns = by_columns
        whole = tuple(slice(0, d) for d in self._shape[:-1])
        self._tiles = [whole] if by_columns else self._row_tiles(binding.threads)
        self._blocks = (
            self._column_blocks(binding.threads) if by_columns else [slice(0, self._columns)]
        )
        packed = [weights[:, block] for block in self._blocks] if by_columns else [weights]
        self._weights = (
            packed if not self._convert else [np.ascontiguousarray(part) for part in packed]
        )
        self.local_bytes = max(
            (self._bytes(tile, block) for tile in self._tiles for block in self._blocks), default=0
        )

    def _bytes(self, tile: Tile, block: slice) -> int:
        """Scratch for a tile of rows times a block of columns."""
        rows, width = cells(tile), block.stop - block.start
        gathered = nbytes((rows, self._groups * self._depth), np.float32)
        converted = nbytes((self._depth, width), np.float32) if self._convert else 0
        merged = nbytes((rows, width), np.float64) if self._groups > 1 else 0
        sums = scratch_bytes(self._split, rows, width // self._groups)
        finish = self._epilogue.scratch_bytes(rows * width)
        if self._pairs is not None and self._pairs.apart is not None:
            gathered *= 2
        return gathered + self._fill_bytes(tile) + converted + merged + sums + finish

    def tasks(self, values: Values, outputs: Sequence[Array]) -> Tasks:
        """Tiles of rows, or blocks of columns; every worker prepares what they share."""
        source = self._source(values)
        out = self.results[0].layout.physical(outputs[0])
        operands = self._epilogue.operands(values)
        shared: dict[int, F32Array] = {}  # scratch of a worker -> gathered rows, or weights in f32

        def prepare(record: Recorder) -> None:
            shared[id(record.scratch)] = (
                self._gathered(source, self._tiles[0], record)
                if self._by_columns
                else self._f32(0, record)
            )

        def task(index: int, record: Recorder) -> None:
            kept = shared[id(record.scratch)]
            if self._by_columns:
                tile, block = self._tiles[0], self._blocks[index]
                rows, weights = kept, self._f32(index, record)
            else:
                tile, block = self._tiles[index], self._blocks[0]
                rows, weights = self._gathered(source, tile, record), kept
            paired = self._paired_rows(source, tile, rows, record)
            acc = self._product(rows, weights, record, paired, block)
            place = (*tile, block)
            self._epilogue.record(acc.reshape(extent(place)), out, place, operands, record)

        return Tasks(max(len(self._tiles), len(self._blocks)) if self._tiles else 0, task, prepare)

    def _source(self, values: Values) -> Array:
        """What `_fill` reads: as it is where rows are rows of the source."""
        return self._src.read(values).reshape(*self._shape[:-1], self._depth)

    def _fill_bytes(self, tile: Tile) -> int:
        """Scratch that `_fill` takes for a tile."""
        return 0

    def _fill(
        self, source: Array, tile: Tile, gathered: F32Array, record: Recorder, shift: int
    ) -> None:
        """Takes down `gathered` = the rows of a tile (of the destination without its channels), as
        f32 codes minus `shift`: [rows, groups * K].
        """
        part = source[tile]
        record.copy(gathered.reshape(part.shape), part)
        if shift:
            record(np.subtract, gathered, np.float32(shift), gathered)

    def _row_tiles(self, threads: int) -> list[Tile]:
        # The gathered rows of all groups and the accumulators stay in cache; every worker gets a
        # tile where there are enough rows.
        fit = _TILE_BYTES // (4 * (self._groups * self._depth + self._columns) + 1)
        limit = max(_FEWEST_ROWS, fit)
        workers = self._workers(threads)
        if workers > 1 or self._rows > limit:
            count = -(-self._rows // limit)
            limit = -(-self._rows // (-(-count // workers) * workers))
        return tiles(self._shape[:-1], limit, workers)

    def _workers(self, threads: int) -> int:
        """How many workers have enough to do: products, and for each weight and each result about
        as much as for so many products.
        """
        if not self._rows:
            return 1
        work = self._rows * self._depth * self._columns + _PER_ELEMENT * self._columns * (
            self._depth + self._rows
        )
        return max(1, min(threads, work // _LEAST_WORK))

    def _paired_rows(
        self, source: Array, tile: Tile, rows: F32Array, record: Recorder
    ) -> F32Array | None:
        """The rows as pairs of products are made of them; None where no pair saturates."""
        if self._pairs is None or self._pairs.apart is None:
            return None if self._pairs is None else rows
        return self._gathered(source, tile, record, self._pairs.apart)

    def _gathered(
        self, source: Array, tile: Tile, record: Recorder, shift: int | None = None
    ) -> F32Array:
        """The rows of a tile, [rows, groups * K], gathered in scratch: codes minus `shift` (None:
        the zero point).
        """
        rows, width = cells(tile), self._groups * self._depth
        gathered: F32Array = (
            record.take((width, rows), np.float32).T
            if self._by_position
            else record.take((rows, width), np.float32)
        )
        mark = record.scratch.mark()
        self._fill(source, tile, gathered, record, self._shift if shift is None else shift)
        record.scratch.release(mark)
        return gathered

    def _f32(self, part: int, record: Recorder) -> F32Array:
        """A part of the weights as f32, converted into scratch."""
        weights = self._weights[part]
        if not self._convert:
            return weights  # type: ignore[return-value]
        converted = record.take(weights.shape, np.float32)
        record.copy(converted, weights)
        return converted

    def _product(
        self,
        gathered: F32Array,
        weights: F32Array,
        record: Recorder,
        paired: F32Array | None,
        block: slice,
    ) -> Array:
        """The sums of a tile: [rows, columns of `block`]; `paired` see `_paired_rows`."""
        acc = record.take((gathered.shape[0], weights.shape[1]), self._split.dtype)
        if self._groups == 1:
            correct = self._correction(paired, block)
            record_product(self._split, gathered, weights, acc, record, correct)
            return acc
        width = self._columns // self._groups
        for group in range(self._groups):
            mark = record.scratch.mark()
            columns = slice(group * width, (group + 1) * width)
            depth = slice(group * self._depth, (group + 1) * self._depth)
            part = record.take((gathered.shape[0], width), self._split.dtype)
            correct = self._correction(None if paired is None else paired[:, depth], columns)
            record_product(
                self._split, gathered[:, depth], weights[:, columns], part, record, correct
            )
            record(np.copyto, acc[:, columns], part)
            record.scratch.release(mark)
        return acc

    def _correction(
        self, paired: F32Array | None, columns: slice
    ) -> Callable[[Array], None] | None:
        if paired is None or self._pairs is None:
            return None
        return self._pairs.on(paired, columns)

    def _column_blocks(self, threads: int) -> list[slice]:
        workers = self._workers(threads)
        width = max(
            _COLUMN_BLOCK,
            min(_BLOCK_BYTES // (4 * max(1, self._depth)), _BLOCK_ELEMENTS // max(1, self._rows)),
        )
        count = max(1, -(-self._columns // width))
        count = -(-count // workers) * workers
        cuts = [self._columns * i // count // 16 * 16 for i in range(count)] + [self._columns]
        return [slice(a, b) for a, b in pairwise(cuts) if a < b]
