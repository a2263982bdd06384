"""Depthwise convolution: a loop over the positions of the kernel, in tiles that stay in cache."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...ir.ops.spec import Array
from ...ir.types import DType
from ..windows import window_of
from .base import Binding, Layout, Recorder, Tile, cells, extent, nbytes, share, tiles
from .epilogue import Epilogue, Tiled
from .exact_gemm import split_for_weights
from .gemm import anchor_of, bias_operand, integer_codes, kernel_matrix
from .pairs import halved, sums_of_step
from .windows import record_slab, slab_bytes

_TILE = (
    1 << 15
    # elements of the destination: input, accumulator and products of a tile fit the second-level
    # cache
)
_SMALL_TILE = 1 << 12
# channels below which the weights are repeated along the last spatial dimension: NumPy's inner loop
# gets longer
_SHORT_LOOP = 256


class DepthwiseConvolution(Tiled):
    """`convolution` whose groups have one input channel each (and OC/groups outputs).

    Args:
        binding: the step; the weights must be constant.
    """

    def __init__(self, binding: Binding) -> None:
        src, weights = binding.need("src"), binding.constant("weights")
        matrix = halved(sums_of_step(binding), kernel_matrix(weights))
        result = binding.result(Layout.CHANNELS_LAST)
        self._channels = result.shape[1]
        self._multiplier = self._channels // src.shape[1] if src.shape[1] else 1
        self._window = window_of(binding.step, src.shape[2:], weights.shape[2:])
        codes, self._shift = integer_codes(binding, "src")
        split = split_for_weights(matrix.T, codes, exact=result.dtype is DType.S32)
        dtype = np.dtype(np.float32 if len(split.cuts) == 2 else np.float64)
        epilogue = Epilogue(binding, result, anchor_of(binding, 1, split, bias_operand(binding, 1)))
        limit = share(math.prod(result.shape), binding.threads, _TILE, _SMALL_TILE)
        leading = (result.shape[0], *self._window.out)
        channels = slice(0, self._channels)
        boxes = [(*t, channels) for t in tiles(leading, max(1, limit // max(1, self._channels)))]
        self._weights = self._per_tap(matrix.astype(dtype), boxes)
        # where no weight is positive, all products of a window of zeros are -0, and their sum is
        self._below = bool(np.less_equal(matrix, 0).all(axis=0).any())
        super().__init__(epilogue, [src], boxes, dtype, self._tile_bytes)

    def _per_tap(self, columns: Array, boxes: Sequence[Tile]) -> list[Array]:
        """For each tap the weights of all channels, repeated along the last spatial dimension where
        channels are few.

        Args:
            columns: [taps, OC].
            boxes: the tiles.
        """
        if self._channels >= _SHORT_LOOP or self._window.strides[-1] != 1:
            return list(columns)
        width = max((extent(tile)[-2] for tile in boxes), default=1)
        return [
            np.ascontiguousarray(np.broadcast_to(column, (width, column.size)))
            for column in columns
        ]

    def _tile_bytes(self, tile: Tile) -> int:
        slab = slab_bytes(self._window, tile[:-1], self._channels, self._dtype)
        return 2 * slab + nbytes((cells(tile),), self._dtype)

    def _fill(self, acc: Array, sources: Sequence[Array], tile: Tile, record: Recorder) -> None:
        win, dtype = self._window, self._dtype
        term = record.take(acc.shape, dtype)
        slab = record_slab(win, sources[0], tile[:-1], dtype, self._shift, 0.0, record)
        if self._multiplier > 1:
            grid = record.take((*slab.shape, self._multiplier), dtype)
            record(np.copyto, grid, slab[..., None])
            slab = grid.reshape(*slab.shape[:-1], -1)
        *sizes, _ = acc.shape[1:]
        taps = zip(np.ndindex(*win.kernel), self._weights, strict=True)
        for position, (tap, weights) in enumerate(taps):
            factor = weights[: sizes[-1]] if weights.ndim == 2 else weights
            cuts = (
                slice(t * d, t * d + (size - 1) * s + 1, s)
                for t, d, size, s in zip(tap, win.dilations, sizes, win.strides, strict=True)
            )
            part = slab[(slice(None), *cuts)]
            record(np.multiply, part, factor, term if position else acc)
            if position:
                record(np.add, acc, term, acc)
        if self._below:
            record(np.add, acc, dtype.type(0), acc)
