"""binary, eltwise, reorder and concat: the kernel only reads its source as f32, everything else
happens in the epilogue, tile by tile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...ir.algorithms import BINARY
from ...ir.ops.spec import Array
from ...plan.attributes import Eltwise
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
    part_of,
    share,
    tiles,
)
from .eltwise_math import ALGORITHMS
from .epilogue import Anchor, Binary, Epilogue, Tiled, magnitude, placed

_TILE = 1 << 16
_SMALL_TILE = 1 << 14


def _common_layout(operands: Sequence[Operand], rank: int) -> Layout:
    """The layout to compute in: channels last when the first source of full rank has it."""
    for operand in operands:
        if len(operand.shape) == rank and operand.data is None:
            return operand.layout
    return Layout.PLAIN


class _Elementwise(Tiled):
    """A kernel whose accumulator is its source, as f32."""

    def __init__(
        self,
        epilogue: Epilogue,
        source: Operand,
        shape: Sequence[int],
        threads: int,
        *,
        direct: bool = False,
    ) -> None:
        boxes = tiles(shape, share(math.prod(shape), threads, _TILE, _SMALL_TILE))
        super().__init__(epilogue, [source], boxes, direct=direct)

    def _fill(self, acc: Array, sources: Sequence[Array], tile: Tile, record: Recorder) -> None:
        record.copy(acc, part_of(sources[0], tile))


def bind_elementwise(binding: Binding, sources: Sequence[Operand], anchor: Anchor) -> Kernel:
    """The epilogue alone, for a step that reads the first of the sources."""
    result = binding.result(_common_layout(sources, len(binding.shapes[0])))
    shape = result.layout.physical_shape(result.shape)
    return _Elementwise(Epilogue(binding, result, anchor), sources[0], shape, binding.threads)


def bind_binary(binding: Binding) -> Kernel:
    """`binary`: algorithm(src_0 * scale_0, src_1 * scale_1), then the epilogue; the sources
    broadcast in both directions.
    """
    algorithm = str(binding.step.params.get("algorithm"))
    if algorithm not in BINARY:
        raise binding.refuse(f"no binary algorithm {algorithm!r}")
    sources = [binding.need("src_0"), binding.need("src_1")]
    scales = [
        placed(scale, source.shape) if scale is not None and scale.values != (1.0,) else None
        for scale, source in zip(
            map(binding.step.attr.scales.get, ("src_0", "src_1")), sources, strict=True
        )
    ]
    own = () if scales[0] is None else (Binary("mul", Operand.of(scales[0])),)
    # Where the first is broadcast, oneDNN swaps the sources: a NaN of the first stays. So it does
    # here; but one of the second, which the library replaces by the first, stays too.
    rank = len(binding.shapes[0])
    shapes = [(1,) * (rank - len(source.shape)) + source.shape for source in sources]
    swapped = any(one < other for one, other in zip(*shapes, strict=True))
    first = (*own, Binary(algorithm, sources[1], scales[1], nan_stays=swapped))
    return bind_elementwise(binding, sources, Anchor(magnitude(sources[0]), first=first))


def bind_eltwise(binding: Binding) -> Kernel:
    """`eltwise`: algorithm(src; alpha, beta) in f32, then the epilogue."""
    algorithm = str(binding.step.params.get("algorithm"))
    if algorithm not in ALGORITHMS:
        raise binding.refuse(f"no eltwise algorithm {algorithm!r}")
    src = binding.need("src")
    op = Eltwise(algorithm, binding.number("alpha", 0.0), binding.number("beta", 0.0))
    return bind_elementwise(binding, [src], Anchor(magnitude(src), first=(op,)))


def bind_reorder(binding: Binding) -> Kernel:
    """`reorder`: (src - src_zp) * src_scale, then the epilogue with dst scale and zero point:
    quantize, dequantize, requantize, convert.
    """
    src, attr = binding.need("src"), binding.step.attr
    zero, scale = attr.zero_points.get("src"), attr.scales.get("src")
    shift: tuple[Binary, ...] = ()
    if zero is not None and np.any(zero.array):
        shift = (Binary("sub", Operand.of(placed(zero, src.shape))),)
    scales = () if scale is None else (placed(scale, src.shape),)
    return bind_elementwise(binding, [src], Anchor(magnitude(src), scales=scales, first=shift))


class Parts(Kernel):
    """Kernels that write a part of one destination each.

    Args:
        result: the destination.
        parts: (part of it, with steps, physical order; the kernel).
        local_bytes: scratch for each worker.
    """

    def __init__(
        self, result: Result, parts: Sequence[tuple[Tile, Kernel]], local_bytes: int
    ) -> None:
        self.results, self._parts, self.local_bytes = (result,), parts, local_bytes

    def tasks(self, values: Values, outputs: Sequence[Array]) -> Tasks:
        """Those of every part."""
        layout = self.results[0].layout
        out = layout.physical(outputs[0])
        parts = [kernel.tasks(values, [layout.logical(out[part])]) for part, kernel in self._parts]
        places = [(tasks, index) for tasks in parts for index in range(tasks.count)]

        def prepare(record: Recorder) -> None:
            for tasks in parts:
                if tasks.prepare is not None:
                    tasks.prepare(record)

        def task(index: int, record: Recorder) -> None:
            tasks, inner = places[index]
            tasks.record(inner, record)

        prepares = any(tasks.prepare is not None for tasks in parts)
        return Tasks(len(places), task, prepare if prepares else None)


def bind_concat(binding: Binding) -> Kernel:
    """`concat` along params' `axis`: dst = saturate(round(src_i * scale_i)); a copy where the type
    stays and the scale is 1.
    """
    sources = [binding.need(role) for role, _ in binding.step.args]
    rank = len(binding.shapes[0])
    result = binding.result(_common_layout(sources, rank))
    axis = int(binding.number("axis", 0)) % rank
    place = result.layout.physical_shape(range(rank)).index(axis)
    parts: list[tuple[Tile, Kernel]] = []
    offset = 0
    for index, source in enumerate(sources):
        cut = slice(offset, offset + source.shape[axis])
        scale, scales = binding.step.attr.scales.get(f"src_{index}"), tuple[F32Array, ...]()
        if scale is not None:
            factors = placed(scale, source.shape)
            if factors.ndim and factors.shape[axis] > 1:  # a tile has its place in the result
                behind = result.shape[axis] - cut.stop
                around = [(offset, behind) if at == axis else (0, 0) for at in range(rank)]
                factors = np.pad(factors, around)
            scales = (factors,)
        shape = result.layout.physical_shape(source.shape)
        part = tuple(cut if at == place else slice(None) for at in range(rank))
        epilogue = Epilogue(binding, result, Anchor(magnitude(source), scales=scales), part)
        direct = epilogue.plain and source.dtype is result.dtype
        parts.append((part, _Elementwise(epilogue, source, shape, binding.threads, direct=direct)))
        offset = cut.stop
    return Parts(result, parts, max(kernel.local_bytes for _, kernel in parts))
