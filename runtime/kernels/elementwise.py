"""binary, eltwise and reorder: everything happens in the epilogue, tile by tile; the kernel only
reads its sources as f32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...ir.algorithms import BINARY, ELTWISE
from ...ir.ops.spec import Array
from ...plan.attributes import Scale
from ..numerics import F32Array
from .base import (
    Binding,
    Kernel,
    Layout,
    Operand,
    Recorder,
    Result,
    Tasks,
    Tile,
    Values,
    nbytes,
    part_of,
    share,
    tiles,
)
from .eltwise_math import ALGORITHMS, EltwiseCall
from .epilogue import Anchor, Epilogue, along
from .passes import record_binary

__all__ = ["BinaryKernel", "EltwiseKernel", "Reorder", "common_layout"]

_TILE = 1 << 16
_SMALL_TILE = 1 << 14


def common_layout(operands: Sequence[Operand], rank: int) -> Layout:
    """The layout to compute in: channels last when the first source of full rank has it."""
    for operand in operands:
        if len(operand.shape) == rank and operand.data is None:
            return operand.layout
    return Layout.PLAIN


class _Elementwise(Kernel):
    """A kernel that fills each tile of the destination with f32 values, and lets the epilogue
    finish it.
    """

    def __init__(self, binding: Binding, sources: Sequence[Operand]) -> None:
        self._binding = binding
        self._sources = tuple(sources)
        shape = binding.shapes[0]
        self._layout = common_layout(sources, len(shape))
        self._result = Result(binding.dtypes[0], shape, self._layout)
        self.results = (self._result,)
        physical = self._layout.physical_shape(shape)
        self._tiles: list[Tile] = tiles(
            physical, share(math.prod(shape), binding.threads, _TILE, _SMALL_TILE)
        )

    def _finish(self, epilogue: Epilogue, extra: int) -> None:
        self._epilogue = epilogue
        cells = max((math.prod(c.stop - c.start for c in t) for t in self._tiles), default=0)
        self.local_bytes = (
            nbytes((cells,), np.float32) + epilogue.scratch_bytes(cells) + cells * extra + 8 * 64
        )

    def _fill(self, y: F32Array, tile: Tile, sources: Sequence[Array], record: Recorder) -> None:
        raise NotImplementedError

    def tasks(self, values: Values, outputs: Sequence[Array]) -> Tasks:
        """Tiles of the destination."""
        rank = len(self._result.shape)
        sources = [self._layout.physical(expand(s.read(values), rank)) for s in self._sources]
        out = self._layout.physical(outputs[0])
        operands = self._epilogue.operands(values)

        def task(index: int, record: Recorder) -> None:
            tile = self._tiles[index]
            y = record.take([cut.stop - cut.start for cut in tile], np.float32)
            mark = record.scratch.mark()
            self._fill(y, tile, sources, record)
            record.scratch.release(mark)
            self._epilogue.record(y, out, tile, operands, record)

        return Tasks(len(self._tiles), task)


def expand(array: Array, rank: int) -> Array:
    """The array with leading dimensions of 1, up to `rank`."""
    return array if array.ndim >= rank else array.reshape((1,) * (rank - array.ndim) + array.shape)


def cut(array: Array, tile: Tile) -> Array:
    """The part of a source that broadcasts against a tile."""
    return part_of(
        array, [c if size != 1 else slice(None) for size, c in zip(array.shape, tile, strict=True)]
    )


def magnitude(operand: Operand) -> float:
    """A bound on the absolute values of an operand."""
    if operand.data is not None and operand.data.size:
        return float(np.abs(operand.data.astype(np.float64)).max())
    return float(max(map(abs, operand.dtype.range))) if operand.dtype.is_integer else math.inf


class BinaryKernel(_Elementwise):
    """`binary`: algorithm(src_0 * scale_0, src_1 * scale_1), then the epilogue; the sources
    broadcast in both directions.
    """

    def __init__(self, binding: Binding) -> None:
        self._algorithm = binding.text("algorithm", "")
        if self._algorithm not in BINARY:
            raise binding.refuse(f"no binary algorithm {self._algorithm!r}")
        super().__init__(binding, [binding.need("src_0"), binding.need("src_1")])
        scales = binding.step.attr.scales
        self._scales = [
            np.float32(scales[role].values[0]) if role in scales else np.float32(1)
            for role in ("src_0", "src_1")
        ]
        bounds = [
            magnitude(s) * abs(float(k)) for s, k in zip(self._sources, self._scales, strict=True)
        ]
        self._finite = bounds[0] < math.inf
        bound = {"mul": bounds[0] * bounds[1], "div": math.inf}.get(
            self._algorithm, max(1.0, sum(bounds))
        )
        self._finish(Epilogue(binding, self._result, Anchor(magnitude=bound)), extra=5)

    def _fill(self, y: F32Array, tile: Tile, sources: Sequence[Array], record: Recorder) -> None:
        record.copy(y, cut(sources[0], tile))
        if self._scales[0] != 1:
            record(np.multiply, y, self._scales[0], y)
        part = cut(sources[1], tile)
        if part.dtype == np.float32 and self._scales[1] == 1:
            other: F32Array = part  # type: ignore[assignment]
        else:
            other = record.take(part.shape, np.float32)
            record.copy(other, part)
            if self._scales[1] != 1:
                record(np.multiply, other, self._scales[1], other)
        # Where the first is broadcast, oneDNN swaps the sources: a NaN of the first stays. So it
        # does here; but one of the second, which the library replaces by the first, stays too.
        swapped = any(
            first < second for first, second in zip(sources[0].shape, sources[1].shape, strict=True)
        )
        record_binary(self._algorithm, y, other, record, finite=self._finite or swapped)


class EltwiseKernel(_Elementwise):
    """`eltwise`: algorithm(src; alpha, beta) in f32, then the epilogue."""

    def __init__(self, binding: Binding) -> None:
        self._algorithm = binding.text("algorithm", "")
        if self._algorithm not in ALGORITHMS:
            raise binding.refuse(f"no eltwise algorithm {self._algorithm!r}")
        src = binding.need("src")
        super().__init__(binding, [src])
        self._alpha, self._beta = binding.number("alpha", 0.0), binding.number("beta", 0.0)
        self._finite = src.dtype.is_integer
        bound = ELTWISE[self._algorithm].reach(self._alpha, self._beta, magnitude(src))
        self._finish(Epilogue(binding, self._result, Anchor(magnitude=bound)), extra=24)

    def _fill(self, y: F32Array, tile: Tile, sources: Sequence[Array], record: Recorder) -> None:
        record.copy(y, cut(sources[0], tile))
        ALGORITHMS[self._algorithm](
            EltwiseCall(
                y,
                np.float32(self._alpha),
                np.float32(self._beta),
                record,
                self._binding.profile,
                finite=self._finite,
                signed_zero=True,
            )
        )


class Reorder(_Elementwise):
    """`reorder`: (src - src_zp) * src_scale, then the epilogue with dst scale and zero point:
    quantize, dequantize, requantize, convert.
    """

    def __init__(self, binding: Binding) -> None:
        src = binding.need("src")
        super().__init__(binding, [src])
        attr, rank = binding.step.attr, len(src.shape)
        zero = attr.zero_points.get("src")
        self._zero: F32Array | None = None
        bound = magnitude(src)
        if zero is not None and np.any(zero.array):
            axis = zero.mask.bit_length() - 1 if zero.mask else None
            shift = along(zero.array, axis, rank)
            self._zero = (
                shift if shift.ndim == 0 else np.ascontiguousarray(self._layout.physical(shift))
            )
            bound += float(np.abs(shift).max())
        scales: list[F32Array] = []
        scale: Scale | None = attr.scales.get("src")
        if scale is not None:
            scales.append(
                along(scale.array, scale.mask.bit_length() - 1 if scale.mask else None, rank)
            )
        self._finish(
            Epilogue(binding, self._result, Anchor(magnitude=bound, scales=tuple(scales))), extra=0
        )

    def _fill(self, y: F32Array, tile: Tile, sources: Sequence[Array], record: Recorder) -> None:
        record.copy(y, cut(sources[0], tile))
        if self._zero is not None:
            record(np.subtract, y, self._zero if self._zero.ndim == 0 else cut(self._zero, tile), y)
