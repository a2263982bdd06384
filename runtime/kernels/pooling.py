"""Pooling: maximum and average of windows, by a loop over the positions of the kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...ir.ops.spec import Array
from ...ir.ops.windows import taps_within
from ...ir.types import DType
from ..numerics import F32Array
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
from .elementwise import magnitude
from .epilogue import Anchor, Epilogue
from .windows import record_slab, resolve_window, slab_bytes, window_view

__all__ = ["Pooling"]

_TILE = 1 << 15
_EXACT = 2**24
_MANY_TAPS = 32
_WINDOWS = 1 << 16  # elements of windows that a task looks at, at least


class Pooling(Kernel):
    """`pooling`: MaxPool, AveragePool, GlobalMaxPool, GlobalAveragePool of u8, s8, s32 or f32.

    An average is the exact sum of the codes, converted to f32 and multiplied by f32(1/n); the
    maximum stays an integer.
    """

    def __init__(self, binding: Binding) -> None:
        src = binding.need("src")
        shape, op = binding.shapes[0], binding.step.op
        self._max = op in ("MaxPool", "GlobalMaxPool")
        self._src = src.name
        result = Result(binding.dtypes[0], shape, Layout.CHANNELS_LAST)
        self.results = (result,)
        kernel = (
            src.shape[2:]
            if op.startswith("Global")
            else binding.ints("kernel_shape", src.shape[2:])
        )
        self._window = resolve_window(binding, src.shape[2:], kernel, shape[2:])
        self._channels = src.shape[1]
        attr = binding.step.attr
        self._direct = (
            self._max
            and src.dtype is result.dtype
            and not attr.post_ops
            and not attr.scales
            and not attr.zero_points
        )
        self._work = self._accumulator(src.dtype)
        self._fill = _lowest(self._work) if self._max else 0.0
        self._inverse = None if self._max else self._inverse_counts(binding, op)
        bound = magnitude(src) if src.dtype.is_integer else math.inf
        self._epilogue = Epilogue(binding, result, Anchor(magnitude=bound))
        physical = Layout.CHANNELS_LAST.physical_shape(shape)
        self._tiles = tiles(
            physical,
            share(math.prod(shape), binding.threads, _TILE, _WINDOWS // max(1, self._window.taps)),
        )
        self.local_bytes = max((self._tile_bytes(t) for t in self._tiles), default=0)

    def _accumulator(self, dtype: DType) -> np.dtype[np.generic]:
        """The type that windows are gathered and combined in: the source's for a maximum, f32 while
        sums are exact in it, else f64.
        """
        if self._max or dtype is DType.F32:
            return dtype.numpy
        low, high = dtype.range
        exact = self._window.taps * max(abs(low), abs(high)) <= _EXACT
        return np.dtype(np.float32 if exact else np.float64)

    def _inverse_counts(self, binding: Binding, op: str) -> F32Array:
        """f32(1/n) for each output position, [1, output..., 1]: n counts taps inside the input, or
        also in the pads.
        """
        window = self._window
        include = op == "GlobalAveragePool" or binding.number("count_include_pad", 0) != 0
        pads = binding.ints("pads", (0,) * (2 * len(window.kernel)))
        total = np.ones((1,) * (len(window.kernel) + 2))
        for axis, size in enumerate(window.input):
            begin = window.begin[axis]
            end = (
                pads[axis + len(window.kernel)]
                if binding.text("auto_pad", "NOTSET") == "NOTSET"
                else max(window.end[axis], 0)
            )
            low, high = (-begin, size + end) if include else (0, size)
            starts = np.arange(window.output[axis]) * window.strides[axis] - begin
            count = taps_within(starts, window.kernel[axis], window.dilations[axis], low, high)
            total = total * count.reshape([-1 if i == axis + 1 else 1 for i in range(total.ndim)])
        inverse: F32Array = np.divide(np.float32(1), np.maximum(total, 1).astype(np.float32))
        return inverse

    def _tile_bytes(self, tile: Tile) -> int:
        cells = math.prod(c.stop - c.start for c in tile)
        slab = slab_bytes(
            self._window,
            tile[0].stop - tile[0].start,
            tile[1:-1],
            tile[-1].stop - tile[-1].start,
            self._work,
        )
        return (
            slab
            + nbytes((cells,), self._work)
            + nbytes((cells,), np.float32)
            + self._epilogue.scratch_bytes(cells)
        )

    def tasks(self, values: Values, outputs: Sequence[Array]) -> Tasks:
        """Tiles of the destination."""
        x = Layout.CHANNELS_LAST.physical(values[self._src])
        out = Layout.CHANNELS_LAST.physical(outputs[0])
        operands = self._epilogue.operands(values)

        def task(index: int, record: Recorder) -> None:
            tile = self._tiles[index]
            if self._direct:
                self._combine(x, tile, out[tile], record)
                return
            acc = record.take([c.stop - c.start for c in tile], self._work)
            self._combine(x, tile, acc, record)
            self._epilogue.record(self._finished(acc, tile, record), out, tile, operands, record)

        return Tasks(len(self._tiles), task)

    def _finished(self, acc: Array, tile: Tile, record: Recorder) -> Array:
        """The f32 value that the epilogue starts from."""
        if acc.dtype != np.float32:
            y = record.take(acc.shape, np.float32)
            record.copy(y, acc)
            acc = y
        if self._inverse is not None:
            cuts = tuple(
                c if n != 1 else slice(None) for c, n in zip(tile, self._inverse.shape, strict=True)
            )
            record(np.multiply, acc, self._inverse[cuts], acc)
        return acc

    def _combine(self, x: Array, tile: Tile, acc: Array, record: Recorder) -> None:
        """The sum or maximum of each window of a tile."""
        slab = record_slab(
            self._window, x[..., tile[-1]], tile[:-1], self._work, 0, self._fill, record
        )
        views = window_view(self._window, slab, [c.stop - c.start for c in tile[1:-1]])
        spatial = len(self._window.kernel)
        if self._window.taps > _MANY_TAPS:
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


def _lowest(dtype: np.dtype[np.generic]) -> float:
    return -math.inf if dtype.kind == "f" else int(np.iinfo(dtype.name).min)
