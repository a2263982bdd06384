"""Rows of codes times constant weights, tile by tile, with the epilogue on each tile while it is in cache.

The weights stay in int8 and are converted while the step runs: an f32 copy of them would be four times the plan.
Two ways to share the work:

* `rows`: the weights are converted once into shared scratch, then each tile of rows is gathered, multiplied and finished;
* `columns` (few rows, wide weights: the last stages of a network): the rows are gathered once, then each block of columns converts its own
  weights, so that every weight is converted and packed by BLAS once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from ...ir.ops.spec import Array
from ..numerics import F32Array
from .base import Scratch, Tile, Workspace, nbytes, tiles
from .epilogue import Epilogue
from .exact_gemm import KSplit, accumulate, scratch_bytes

__all__ = ["Fill", "TiledGemm"]

Fill = Callable[[Array, Tile, F32Array, Scratch], None]
"""(source, tile of the destination without its channels, [rows, groups * K] to be filled with f32 codes, scratch)."""

_TILE_BYTES = 768 * 1024  # of gathered rows and accumulators: within the second-level cache
_FEWEST_ROWS = 96  # below, packing the weights anew for each tile costs BLAS more than the cache saves
_FEW_ROWS = 256
_COLUMN_BLOCK = 128


class TiledGemm:
    """The product of [rows, groups * K] codes with constant weights, and what follows it.

    Args:
        weights: [N, K] (`transposed` False) or [K, N] (True); N counts the columns of all groups, K is a group's depth.
        transposed: the order of `weights`.
        groups: N/groups columns read K of the groups * K entries of a row.
        split: how K is cut.
        epilogue: what follows.
        shape: physical shape of the destination; rows are its leading dimensions, columns its last one.
        fill_bytes: scratch that `fill` takes for a tile.
        threads: how many workers share the tiles.
    """

    def __init__(
        self,
        weights: Array,
        transposed: bool,
        groups: int,
        split: KSplit,
        epilogue: Epilogue,
        shape: Sequence[int],
        fill_bytes: Callable[[Tile], int],
        threads: int,
    ) -> None:
        self._weights, self._transposed, self._groups = weights, transposed, groups
        self._split, self._epilogue, self._shape = split, epilogue, tuple(shape)
        self._columns = shape[-1]
        self._rows = math.prod(shape[:-1])
        self._depth = weights.shape[0 if transposed else 1]
        self._convert = weights.dtype != np.float32
        self._by_columns = groups == 1 and self._rows <= _FEW_ROWS and self._columns >= max(self._rows, 2 * 64)
        self._tiles = self._row_tiles(threads)
        self._blocks = self._column_blocks(threads)
        self.local_bytes = max(
            [self._tile_bytes(t) + fill_bytes(t) for t in self._tiles] + [self._block_bytes(b) for b in self._blocks], default=0
        )
        shared = (self._rows, self._depth) if self._by_columns else (self._columns, self._depth)
        self.shared_bytes = nbytes(shared, np.float32) if self._by_columns or self._convert else 0

    def run(self, source: Array, fill: Fill, out: Array, operands: Sequence[Array], work: Workspace) -> None:
        """Computes the destination.

        Args:
            source: handed to `fill`.
            fill: gathers rows.
            out: the destination, physical view.
            operands: of the epilogue.
            work: pool and scratch.
        """
        work.shared.reset()
        if self._by_columns:
            self._run_columns(source, fill, out, operands, work)
        else:
            self._run_rows(source, fill, out, operands, work)

    # -- by rows ---------------------------------------------------------------------------------------------------------------

    def _row_tiles(self, threads: int) -> list[Tile]:
        # The gathered rows of all groups and the accumulators stay in cache; every worker gets a tile where there are enough rows.
        fit = _TILE_BYTES // (4 * (self._groups * self._depth + self._columns) + 1)
        limit = max(_FEWEST_ROWS, fit)
        if self._by_columns:
            limit = -(-self._rows // threads)
        elif self._rows > threads * _FEWEST_ROWS // 2:
            count = -(-self._rows // limit)
            limit = -(-self._rows // (-(-count // threads) * threads))
        return tiles(self._shape[:-1], limit)

    def _tile_rows(self, tile: Tile) -> int:
        return math.prod(cut.stop - cut.start for cut in tile)

    def _tile_bytes(self, tile: Tile) -> int:
        rows = self._tile_rows(tile)
        if self._by_columns:
            return 0
        gathered = nbytes((rows, self._groups * self._depth), np.float32)
        merged = nbytes((rows, self._columns), np.float64) if self._groups > 1 else 0
        sums = scratch_bytes(self._split, rows, self._columns // self._groups)
        return gathered + merged + sums + self._epilogue.scratch_bytes(rows * self._columns)

    def _run_rows(self, source: Array, fill: Fill, out: Array, operands: Sequence[Array], work: Workspace) -> None:
        weights = self._f32_weights(work)

        def body(index: int, slot: int) -> None:
            tile = self._tiles[index]
            scratch = work.local[slot]
            scratch.reset()
            rows = self._tile_rows(tile)
            gathered: F32Array = scratch.take((rows, self._groups * self._depth), np.float32)  # type: ignore[assignment]
            mark = scratch.mark()
            fill(source, tile, gathered, scratch)
            scratch.release(mark)
            acc = self._product(gathered, weights, scratch)
            place = (*tile, slice(0, self._columns))
            self._epilogue.apply(acc.reshape([cut.stop - cut.start for cut in place]), out, place, operands, scratch)

        work.pool.run(len(self._tiles), body)

    def _f32_weights(self, work: Workspace) -> F32Array:
        """[K, N] f32 view of the weights, converted into shared scratch."""
        if not self._convert:
            return self._weights if self._transposed else self._weights.T  # type: ignore[return-value]
        converted: F32Array = work.shared.take(self._weights.shape, np.float32)  # type: ignore[assignment]
        blocks = tiles(converted.shape, max(1 << 16, converted.size // (4 * work.pool.threads)))
        work.pool.run(len(blocks), lambda index, _: np.copyto(converted[blocks[index]], self._weights[blocks[index]]))
        return converted if self._transposed else converted.T

    def _product(self, gathered: F32Array, weights: F32Array, scratch: Scratch) -> Array:
        if self._groups == 1:
            return accumulate(self._split, gathered, weights, scratch)
        width = self._columns // self._groups
        merged = scratch.take((gathered.shape[0], self._columns), np.float64 if self._split.wide else np.float32)
        for group in range(self._groups):
            mark = scratch.mark()
            columns = slice(group * width, (group + 1) * width)
            part = accumulate(self._split, gathered[:, group * self._depth : (group + 1) * self._depth], weights[:, columns], scratch)
            np.copyto(merged[:, columns], part)
            scratch.release(mark)
        return merged

    # -- by columns ------------------------------------------------------------------------------------------------------------

    def _column_blocks(self, threads: int) -> list[slice]:
        if not self._by_columns:
            return []
        count = max(1, -(-self._columns // _COLUMN_BLOCK))
        count = -(-count // threads) * threads
        cuts = [self._columns * i // count // 16 * 16 for i in range(count)] + [self._columns]
        return [slice(a, b) for a, b in pairwise(cuts) if a < b]

    def _block_bytes(self, block: slice) -> int:
        width = block.stop - block.start
        own = nbytes((width, self._depth), np.float32) if self._convert else 0
        return own + scratch_bytes(self._split, self._rows, width) + self._epilogue.scratch_bytes(self._rows * width)

    def _run_columns(self, source: Array, fill: Fill, out: Array, operands: Sequence[Array], work: Workspace) -> None:
        gathered: F32Array = work.shared.take((self._rows, self._depth), np.float32)  # type: ignore[assignment]
        starts = np.cumsum([0] + [self._tile_rows(t) for t in self._tiles]).tolist()

        def gather(index: int, slot: int) -> None:
            scratch = work.local[slot]
            scratch.reset()
            fill(source, self._tiles[index], gathered[starts[index] : starts[index + 1]], scratch)

        work.pool.run(len(self._tiles), gather)
        leading = tuple(slice(0, d) for d in self._shape[:-1])

        def body(index: int, slot: int) -> None:
            block = self._blocks[index]
            scratch = work.local[slot]
            scratch.reset()
            part = self._weights[:, block] if self._transposed else self._weights[block]
            if self._convert:
                converted = scratch.take(part.shape, np.float32)
                np.copyto(converted, part)
                part = converted
            acc = accumulate(self._split, gathered, part if self._transposed else part.T, scratch)  # type: ignore[arg-type]
            width = block.stop - block.start
            self._epilogue.apply(acc.reshape(*self._shape[:-1], width), out, (*leading, block), operands, scratch)

        work.pool.run(len(self._blocks), body)
