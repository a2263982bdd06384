"""What follows the accumulator of every primitive: scales, bias, post-ops, destination scale and
zero point, rounding, store.

The order of `onednn-v3` (and `unified`)::

    y = scale * acc;  y += bias;  post-ops;  y *= 1/dst_scale;  y += dst_zp;  clip;  round half even;  store

and of `onednn-v2`::

    y = acc + bias;  y *= output_scale;  post-ops (eltwise and sum with their own scales);  y += dst_zp;  clip;  round;  store

A bound epilogue is a list of passes over one tile at a time (so the tile stays in cache), each one
NumPy call with f32 rounding. Passes that change no bit are left out when it is bound.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...ir.ops.spec import Array
from ...ir.types import DType
from ...plan import attributes as plan_attributes
from ...plan.attributes import Eltwise, PostOp, Prelu, Scale, Sum, ZeroPoint
from ..numerics import F32Array, factors_of
from .base import (
    Binding,
    Block,
    Kernel,
    Operand,
    Recorder,
    Result,
    Tasks,
    Tile,
    Values,
    as_f32,
    cells,
    extent,
    nbytes,
    part_of,
    tiles,
    widened,
)
from .eltwise_math import EltwisePass
from .passes import BinaryPass, Pass, PreluPass, Source, Store, SumPass

_CERTAINLY_FINITE = 1e30
"""Magnitude below which neither an overflow nor, behind it, a NaN is possible in the passes that
follow.
"""

_SCRATCH_PER_ELEMENT = 24
_BLOCK = 1 << 16  # elements: few calls, and all scratch of a pass stays in the second-level cache


def along(values: npt.ArrayLike, axis: int | None, rank: int) -> F32Array:
    """f32 values shaped to broadcast along one axis of a tensor (None: a scalar; then rank-0)."""
    array = np.asarray(values, np.float32)
    if array.size == 1:
        return array.reshape(())
    shape = [1] * rank
    shape[axis if axis is not None else rank - 1] = -1
    return array.reshape(shape)


def placed(values: Scale | ZeroPoint, shape: Sequence[int]) -> F32Array:
    """Scales or zero points, shaped to broadcast against a tensor of that shape."""
    array = np.asarray(values.array, np.float32)
    if array.size == 1:
        return array.reshape(())
    return array.reshape([size if values.mask >> i & 1 else 1 for i, size in enumerate(shape)])


def magnitude(operand: Operand) -> float:
    """A bound on the absolute values of an operand."""
    if operand.data is not None and operand.data.size:
        return float(np.abs(operand.data.astype(np.float64)).max())
    return float(max(map(abs, operand.dtype.range))) if operand.dtype.is_integer else math.inf


@dataclass(frozen=True)
class Binary:
    """y = algorithm(y, (operand - zero) * scale): a post-op of the plan with its operand at hand.

    Attributes:
        algorithm: oneDNN's name.
        operand, scale, zero: what it reads; None: no scale, or no zero point.
        nan_stays: a maximum or minimum with a NaN of y is NaN, and not the operand.
    """

    algorithm: str
    operand: Operand
    scale: F32Array | None = None
    nan_stays: bool = False
    zero: F32Array | None = None

    def bound(self, y: float) -> float:
        """A bound on the result for |y| below a bound."""
        if self.algorithm in ("ge", "gt", "le", "lt", "eq", "ne"):
            return 1.0
        if self.algorithm == "div":
            return math.inf
        other = magnitude(self.operand) + (0.0 if self.zero is None else _largest(self.zero))
        other *= 1.0 if self.scale is None else _largest(self.scale)
        return y * other if self.algorithm == "mul" else y + other


@dataclass(frozen=True)
class Anchor:
    """What the kernel hands to the epilogue.

    Attributes:
        magnitude: a bound on the absolute value of the accumulator (infinity: unknown).
        integer: the accumulator is an exact integer.
        scales: factors of the accumulator, each f32 and shaped to broadcast against dst: [src,
            weights] for the compute primitives.
        bias: broadcast against dst; None: none.
        first: what is done before all of that.
    """

    magnitude: float = math.inf
    integer: bool = False
    scales: tuple[F32Array, ...] = ()
    bias: Operand | None = None
    first: tuple[Eltwise | Binary, ...] = ()


class Epilogue:
    """The bound epilogue of one step.

    Args:
        binding: the step: its attributes give post-ops, output scales, dst scale and zero point.
        result: the destination.
        anchor: what the accumulator is.
        part: the part of the destination (with steps) that tiles are counted in, physical order;
            None: all of it.

    Attributes:
        result: the destination.
        plain: nothing is computed: the accumulator is rounded and stored.
    """

    def __init__(
        self, binding: Binding, result: Result, anchor: Anchor, part: Tile | None = None
    ) -> None:
        self._binding = binding
        self.result = result
        self._part = part
        self._profile = binding.profile
        self._live: list[Operand] = []
        self._passes: list[Pass] = []
        self._bound = anchor.magnitude
        attr = binding.step.attr
        for leading in anchor.first:
            self._add(leading, signed_zero=True)
        if binding.target == "onednn-v2":
            self._add_bias(anchor.bias)
            own = () if attr.output_scales is None else (placed(attr.output_scales, result.shape),)
            self._add_scales((*anchor.scales, *own))
        else:
            self._add_scales(anchor.scales)
            self._add_bias(anchor.bias)
        for op in attr.post_ops:
            self._add(op, signed_zero=not result.dtype.is_integer)
        self._add_destination(attr.scales.get("dst"), attr.zero_points.get("dst"))
        self.plain = not self._passes
        self._exact = anchor.integer and result.dtype is DType.S32 and self.plain
        self._finish = Store(result.dtype, binding.profile, finite=self._finite)
        self._drop_relu(self._finish)

    def scratch_bytes(self, elements: int) -> int:
        """Scratch that `record` takes for a tile of so many elements."""
        block = min(elements, 2 * _BLOCK)
        return (
            nbytes((block,), np.float32) + nbytes((block, _SCRATCH_PER_ELEMENT), np.uint8) + 8 * 64
        )

    def operands(self, values: Values) -> list[Array]:
        """The run-time operands as physical views, for `record`."""
        return [self._place(operand.read(values)) for operand in self._live]

    def _place(self, array: Array) -> Array:
        """A view of an operand in physical order, and of the part that this epilogue is about."""
        array = self.result.layout.physical(widened(array, len(self.result.shape)))
        return array if self._part is None else part_of(array, self._part)

    def record(
        self, acc: Array, out: Array, tile: Tile, operands: Sequence[Array], record: Recorder
    ) -> None:
        """Takes down what turns a tile of accumulators into a tile of the destination.

        Args:
            acc: f32, or f64 holding exact integers; contiguous, physical shape of the tile; f32 is
                used as scratch.
            out: the whole destination, physical view.
            tile: the place of the tile in it.
            operands: from `operands`.
            record: takes the calls down, gives scratch.
        """
        if self._exact:
            record.copy(part_of(out, tile), acc)
            return
        for part in tiles(acc.shape, _BLOCK):
            place = tuple(
                slice(whole.start + p.start, whole.start + p.stop)
                for whole, p in zip(tile, part, strict=True)
            )
            mark = record.scratch.mark()
            self._record_block(
                part_of(acc, part), part_of(out, place), Block(place, operands, record)
            )
            record.scratch.release(mark)

    def _record_block(self, acc: Array, target: Array, block: Block) -> None:
        record, scratch = block.record, block.record.scratch
        y = as_f32(acc, record)
        for step in self._passes:
            inner = scratch.mark()
            step(y, block)
            scratch.release(inner)
        self._finish(y, target, block)

    # -- binding -----------------------------------------------------------------------------------

    def _source(self, operand: Operand) -> Source:
        """A pass's operand: a constant, brought into physical order, or the index of a run-time
        operand.
        """
        if operand.data is None:
            self._live.append(operand)
            return Source(index=len(self._live) - 1)
        value = np.asarray(operand.data).astype(np.float32)
        if value.size == 1:
            return Source(data=value.reshape(()))
        return Source(data=np.ascontiguousarray(self._place(value)))

    @property
    def _finite(self) -> bool:
        """No value is a NaN."""
        return self._bound < _CERTAINLY_FINITE

    def _add_scales(self, scales: tuple[F32Array, ...]) -> None:
        factors = [s for s in scales if not _all(s, 1.0)]
        if self._profile.combine and len(factors) > 1:
            factors = [*factors_of(*factors)]
        for factor in factors:
            self._add_binary(Binary("mul", Operand.of(factor)))

    def _add_bias(self, bias: Operand | None) -> None:
        # acc is never -0.0 behind an integer, and +0.0 changes nothing else
        if bias is not None and (bias.data is None or np.any(bias.data)):
            self._add_binary(Binary("add", bias))

    def _add(self, op: PostOp | Binary, *, signed_zero: bool) -> None:
        operands = self._binding.operands
        match op:
            case Eltwise():
                self._add_eltwise(op, signed_zero=signed_zero)
            case Binary():
                self._add_binary(op)
            case plan_attributes.Binary(algorithm, name, scale, zero):
                factor, shift = (
                    None if held is None else placed(held, operands[name].shape)
                    for held in (scale, zero)
                )
                self._add_binary(Binary(algorithm, operands[name], factor, zero=shift))
            case Sum():
                self._add_sum(op, operands[op.operand])
            case Prelu():
                slopes = operands[op.operand]
                self._passes.append(PreluPass(self._source(slopes)))
                self._bound *= max(1.0, magnitude(slopes))

    def _add_eltwise(self, op: Eltwise, *, signed_zero: bool) -> None:
        alpha, beta, scale = np.float32(op.alpha), np.float32(op.beta), np.float32(op.scale)
        exact = op.algorithm == "linear" and _exact_on_codes(
            alpha, beta, _range_of_codes(self._passes)
        )
        step = EltwisePass(
            op.algorithm, alpha, beta, scale, self._profile, self._finite, signed_zero, exact
        )
        self._passes.append(step)
        self._bound = step.bound(self._bound)

    def _add_binary(self, op: Binary) -> None:
        factor, zero = (
            None if held is None else self._source(Operand.of(held)) for held in (op.scale, op.zero)
        )
        stays = self._finite or op.nan_stays
        step = BinaryPass(op.algorithm, self._source(op.operand), factor, stays, zero)
        self._passes.append(step)
        self._bound = op.bound(self._bound)

    def _add_sum(self, op: Sum, operand: Operand) -> None:
        dtype, scale = op.dtype or operand.dtype, float(np.float32(op.scale))
        source, fma = self._source(operand), self._profile.fma
        self._passes.append(SumPass(source, scale, op.zero_point, dtype, fma, self._bound))
        low, high = dtype.range if dtype.is_integer else (-math.inf, math.inf)
        self._bound += abs(op.scale) * max(abs(low - op.zero_point), abs(high - op.zero_point))

    def _add_destination(self, scale: Scale | None, zero: ZeroPoint | None) -> None:
        shape = self.result.shape
        if scale is not None and not _all(scale.array, 1.0):
            values, algorithm = placed(scale, shape), "div"
            if self._profile.reciprocal:
                values, algorithm = np.divide(np.float32(1), values), "mul"
            self._add_binary(Binary(algorithm, Operand.of(values)))
        if zero is not None and np.any(zero.array):
            self._add_binary(Binary("add", Operand.of(placed(zero, shape))))

    def _drop_relu(self, finish: Store) -> None:
        """relu, then a positive factor, then a store that clips at 0: the clip alone gives the same
        integers (NaN aside).
        """
        limits = finish.limits
        if not finish.finite or limits is None or limits[0] != 0:
            return
        index = len(self._passes) - 1
        while index >= 0 and _positive_factor(self._passes[index]):
            index -= 1
        if index >= 0 and isinstance(step := self._passes[index], EltwisePass) and step.plain_relu:
            del self._passes[index]


def _positive_factor(step: Pass) -> bool:
    factor = step.factor if isinstance(step, BinaryPass) else None
    return factor is not None and bool(np.all(factor > 0))


class Tiled(Kernel):
    """A kernel that computes one tile of accumulators after the other, each finished by the
    epilogue while it is in cache.

    Args:
        epilogue: what follows.
        sources: what the accumulators are made of.
        boxes: tiles of the destination, physical order.
        dtype: of the accumulators: f32, or f64 of exact integers.
        own_bytes: scratch that `_fill` takes for a tile.
        direct: accumulators are results as they are: there is nothing to finish.
    """

    def __init__(
        self,
        epilogue: Epilogue,
        sources: Sequence[Operand],
        boxes: Sequence[Tile],
        dtype: npt.DTypeLike = np.float32,
        own_bytes: Callable[[Tile], int] = lambda _: 0,
        *,
        direct: bool = False,
    ) -> None:
        self.results = (epilogue.result,)
        self._epilogue, self._sources, self._tiles = epilogue, sources, boxes
        self._dtype, self._direct = np.dtype(dtype), direct
        self.local_bytes = max((self._bytes(tile) + own_bytes(tile) for tile in boxes), default=0)

    def _bytes(self, tile: Tile) -> int:
        count = cells(tile)
        return nbytes((count,), self._dtype) + self._epilogue.scratch_bytes(count)

    @abstractmethod
    def _fill(self, acc: Array, sources: Sequence[Array], tile: Tile, record: Recorder) -> None:
        """Takes down the accumulators of a tile.

        Args:
            acc: where they go.
            sources: physical views, of the destination's rank.
            tile: the tile.
            record: takes the calls down, gives scratch.
        """

    def tasks(self, values: Values, outputs: Sequence[Array]) -> Tasks:
        """The tiles."""
        (result,) = self.results
        rank, layout = len(result.shape), result.layout
        sources = [layout.physical(widened(s.read(values), rank)) for s in self._sources]
        out, operands = layout.physical(outputs[0]), self._epilogue.operands(values)

        def task(index: int, record: Recorder) -> None:
            tile = self._tiles[index]
            if self._direct:
                self._fill(part_of(out, tile), sources, tile, record)
                return
            acc = record.take(extent(tile), self._dtype)
            self._fill(acc, sources, tile, record)
            self._epilogue.record(acc, out, tile, operands, record)

        return Tasks(len(self._tiles), task)


def _all(values: F32Array, value: float) -> bool:
    return bool(np.all(values == np.float32(value)))


def _largest(values: Array) -> float:
    return float(np.abs(values).max(initial=0.0))


def _range_of_codes(passes: Sequence[Pass]) -> tuple[int, int] | None:
    """The range of the integers that every value is behind the passes, or None: a `round` and a
    `clip` at the end, in either order.
    """
    low, high, integral = -np.inf, np.inf, False
    for step in passes:
        name = step.algorithm if isinstance(step, EltwisePass) and step.scale == 1 else ""
        if name == "round":
            low, high, integral = float(np.rint(low)), float(np.rint(high)), True
        elif isinstance(step, EltwisePass) and name in ("clip", "clip_v2"):
            low, high = float(step.alpha), float(step.beta)
            integral = integral and low.is_integer() and high.is_integer()
        else:
            low, high, integral = -np.inf, np.inf, False
    return (int(low), int(high)) if integral and np.isfinite(low) and np.isfinite(high) else None


def _exact_on_codes(alpha: np.float32, beta: np.float32, codes: tuple[int, int] | None) -> bool:
    """True when alpha * k + beta is exact in f64 for every integer k of a (small) range."""
    if codes is None or codes[1] - codes[0] > 1 << 16:
        return False
    product = np.arange(codes[0], codes[1] + 1, dtype=np.float64) * np.float64(alpha)
    total = product + np.float64(beta)
    part = total - product
    # TwoSum's error
    return bool(np.all((product - (total - part)) + (np.float64(beta) - part) == 0))
