"""Depthwise convolution: a loop over the positions of the kernel, in tiles that stay in cache."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...ir.ops.spec import Array
from ...ir.types import DType
from .base import (
    Binding,
    Kernel,
    Layout,
    Recorder,
    Result,
    Tasks,
    Tile,
    Values,
    nbytes,
    share,
    tiles,
)
from .convolution import anchor_of, check_types, integer_codes, kernel_matrix
from .epilogue import Epilogue
from .exact_gemm import split_for_weights
from .windows import record_slab, resolve_window, slab_bytes

__all__ = ["DepthwiseConvolution", "is_depthwise"]

_TILE = (
    1 << 15
    # elements of the destination: input, accumulator and products of a tile fit the second-level
    # cache
)
_SMALL_TILE = 1 << 12
# channels below which the weights are repeated along the last spatial dimension: NumPy's inner loop
# gets longer
_SHORT_LOOP = 256


def is_depthwise(binding: Binding) -> bool:
    """True when every group has one input channel, and there are groups."""
    groups = int(binding.number("group", 1))
    return (
        groups > 1
        and binding.need("weights").shape[1] == 1
        and binding.need("weights").data is not None
    )


class DepthwiseConvolution(Kernel):
    """`convolution` whose groups have one input channel each (and OC/groups outputs).

    Args:
        binding: the step; the weights must be constant.
    """

    def __init__(self, binding: Binding) -> None:
        src, weights = binding.need("src"), binding.need("weights")
        if weights.data is None:
            raise binding.refuse("weights that are no constant")
        shape = binding.shapes[0]
        result = Result(binding.dtypes[0], shape, Layout.CHANNELS_LAST)
        self.results = (result,)
        self._src = src.name
        self._multiplier = shape[1] // src.shape[1] if src.shape[1] else 1
        check_types(binding)
        codes, self._shift = integer_codes(binding, "src")
        matrix = kernel_matrix(weights.data)
        self._window = resolve_window(binding, src.shape[2:], weights.shape[2:], shape[2:])
        magnitude, exact_f32 = math.inf, True
        if codes is not None:
            split = split_for_weights(matrix.T, codes, exact=result.dtype is DType.S32)
            magnitude, exact_f32 = float(split.bound), len(split.cuts) == 2
        self._dtype = np.dtype(np.float32 if exact_f32 else np.float64)
        self._epilogue = Epilogue(
            binding, result, anchor_of(binding, 1, len(shape), magnitude, codes is not None)
        )
        self._taps = list(np.ndindex(*self._window.kernel))
        self._physical = Layout.CHANNELS_LAST.physical_shape(shape)
        limit = share(math.prod(shape), binding.threads, _TILE, _SMALL_TILE)
        self._tiles = tiles(self._physical[:-1], max(1, limit // max(1, shape[1])))
        self._weights = self._per_tap(matrix)
        self.local_bytes = max((self._tile_bytes(t) for t in self._tiles), default=0)

    def _per_tap(self, matrix: Array) -> list[Array]:
        """For each tap the weights of all channels, repeated along the last spatial dimension where
        channels are few.
        """
        columns = matrix.astype(self._dtype)  # [taps, OC]
        if self._physical[-1] >= _SHORT_LOOP or self._window.strides[-1] != 1:
            return list(columns)
        width = max((t[-1].stop - t[-1].start for t in self._tiles), default=1)
        return [
            np.ascontiguousarray(np.broadcast_to(column, (width, column.size)))
            for column in columns
        ]

    def _tile_bytes(self, tile: Tile) -> int:
        cells = math.prod(cut.stop - cut.start for cut in tile) * self._physical[-1]
        slab = slab_bytes(
            self._window, tile[0].stop - tile[0].start, tile[1:], self._physical[-1], self._dtype
        )
        return 2 * slab + 2 * nbytes((cells,), self._dtype) + self._epilogue.scratch_bytes(cells)

    def tasks(self, values: Values, outputs: Sequence[Array]) -> Tasks:
        """Tiles of the destination."""
        x = Layout.CHANNELS_LAST.physical(values[self._src])
        out = Layout.CHANNELS_LAST.physical(outputs[0])
        operands = self._epilogue.operands(values)

        def task(index: int, record: Recorder) -> None:
            tile = self._tiles[index]
            acc = self._accumulate(x, tile, record)
            self._epilogue.record(acc, out, (*tile, slice(0, self._physical[-1])), operands, record)

        return Tasks(len(self._tiles), task)

    def _accumulate(self, x: Array, tile: Tile, record: Recorder) -> Array:
        sizes = tuple(cut.stop - cut.start for cut in tile)
        acc = record.take((*sizes, self._physical[-1]), self._dtype)
        term = record.take(acc.shape, self._dtype)
        slab = record_slab(self._window, x, tile, self._dtype, self._shift, 0.0, record)
        if self._multiplier > 1:
            repeated = record.take(
                (*slab.shape[:-1], slab.shape[-1] * self._multiplier), self._dtype
            )
            grid = repeated.reshape(*slab.shape, self._multiplier)
            record(np.copyto, grid, slab[..., None])
            slab = repeated
        for position, (tap, weights) in enumerate(zip(self._taps, self._weights, strict=True)):
            factor = weights[: sizes[-1]] if weights.ndim == 2 else weights
            part = slab[self._tap_cut(tap, sizes[1:])]
            if position == 0:
                record(np.multiply, part, factor, acc)
            else:
                record(np.multiply, part, factor, term)
                record(np.add, acc, term, acc)
        return acc

    def _tap_cut(self, tap: Sequence[int], sizes: Sequence[int]) -> tuple[slice, ...]:
        window = self._window
        cuts = [slice(None)]
        for axis, size in enumerate(sizes):
            start = tap[axis] * window.dilations[axis]
            cuts.append(
                slice(start, start + (size - 1) * window.strides[axis] + 1, window.strides[axis])
            )
        return tuple(cuts)
