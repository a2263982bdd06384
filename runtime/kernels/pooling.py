"""Pooling: maximum and average of windows, by a loop over the positions of the kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...ir.ops.spec import Array
from ...ir.ops.windows import lowest, taps_within
from ...ir.types import DType
from ..windows import window_of
from .base import Binding, Layout, Operand, Recorder, Tile, extent, share, tiles
from .epilogue import Anchor, Binary, Epilogue, Tiled, magnitude
from .windows import record_slab, slab_bytes, window_view

_TILE = 1 << 15
_EXACT = 2**24
_MANY_TAPS = 32
_WINDOWS = 1 << 16  # elements of windows that a task looks at, at least


class Pooling(Tiled):
    """`pooling`: MaxPool, AveragePool, GlobalMaxPool, GlobalAveragePool of u8, s8, s32 or f32.

    An average is the exact sum of the codes, converted to f32 and multiplied by f32(1/n), or where the
    parameter `divides` is 1, divided by n; the maximum stays an integer.
    """

    def __init__(self, binding: Binding) -> None:
        src, result = binding.need("src"), binding.result(Layout.CHANNELS_LAST)
        self._max = "Max" in binding.step.op
        self._window = window_of(binding.step, src.shape[2:])
        taps = max(1, math.prod(self._window.kernel))
        first = () if self._max else (self._by_counts(binding),)
        # An average is no larger than what it is of.
        bound = magnitude(src) if src.dtype.is_integer else math.inf
        epilogue = Epilogue(binding, result, Anchor(bound, first=first))
        size, shape = math.prod(result.shape), result.layout.physical_shape(result.shape)
        super().__init__(
            epilogue,
            [src],
            tiles(shape, share(size, binding.threads, _TILE, _WINDOWS // taps)),
            self._accumulator(src.dtype, taps),
            lambda tile: slab_bytes(self._window, tile[:-1], extent(tile)[-1], self._dtype),
            direct=epilogue.plain and src.dtype is result.dtype,
        )

    def _accumulator(self, dtype: DType, taps: int) -> np.dtype[np.generic]:
        """The type that windows are gathered and combined in: the source's for a maximum, f32 while
        sums are exact in it, else f64.
        """
        if self._max or dtype is DType.F32:
            return dtype.numpy
        low, high = dtype.range
        return np.dtype(np.float32 if taps * max(abs(low), abs(high)) <= _EXACT else np.float64)

    def _by_counts(self, binding: Binding) -> Binary:
        """Times f32(1/n), or divided by n, for each output position, [1, 1, output...]: n counts taps
        inside the input, or also in the pads.
        """
        win, op = self._window, binding.step.op
        include = op == "GlobalAveragePool" or binding.number("count_include_pad", 0) != 0
        total = np.ones((1,) * (len(win.kernel) + 2))
        for axis, size in enumerate(binding.need("src").shape[2:]):
            begin, end = win.begin[axis], win.end[axis]
            low, high = (-begin, size + end) if include else (0, size)
            starts = np.arange(win.out[axis]) * win.strides[axis] - begin
            count = taps_within(starts, win.kernel[axis], win.dilations[axis], low, high)
            total = total * count.reshape([-1 if i == axis + 2 else 1 for i in range(total.ndim)])
        counts = np.maximum(total, 1).astype(np.float32)
        if binding.number("divides", 0):
            return Binary("div", Operand.of(counts))
        return Binary("mul", Operand.of(np.divide(np.float32(1), counts)))

    def _fill(self, acc: Array, sources: Sequence[Array], tile: Tile, record: Recorder) -> None:
        source, empty = sources[0][..., tile[-1]], lowest(acc.dtype) if self._max else 0.0
        if not math.prod(self._window.kernel):  # a global one over axes without elements
            record(np.copyto, acc, empty if self._max else math.nan)
            return
        slab = record_slab(self._window, source, tile[:-1], acc.dtype, 0, empty, record)
        views = window_view(self._window, slab, acc.shape[1:-1])
        spatial = len(self._window.kernel)
        if math.prod(self._window.kernel) > _MANY_TAPS:
            axes = tuple(range(1 + spatial, 1 + 2 * spatial))
            reduce = np.maximum.reduce if self._max else np.add.reduce
            record(reduce, views, axes, None, acc)
            return
        for position, tap in enumerate(np.ndindex(*self._window.kernel)):
            part = views[(slice(None),) * (1 + spatial) + tap]
            if position == 0:
                record(np.copyto, acc, part)
            elif self._max:
                record(np.maximum, acc, part, out=acc)
            else:
                record(np.add, acc, part, acc)
