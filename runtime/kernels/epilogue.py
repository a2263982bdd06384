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
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...ir.ops.spec import Array
from ...ir.types import DType
from ...plan.attributes import Binary, Eltwise, Prelu, Sum
from ..numerics import F32Array, NumericsProfile
from .base import Binding, Operand, Recorder, Result, Tile, Values, nbytes, part_of, tiles
from .passes import (
    BinaryPass,
    Block,
    DividePass,
    EltwisePass,
    Pass,
    PlusPass,
    PreluPass,
    Source,
    SumPass,
    TimesPass,
    codes_behind,
    exact_on_codes,
)
from .store import Finish, Store
from .tail_table import with_table

__all__ = ["Anchor", "Epilogue", "along"]

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


@dataclass(frozen=True)
class Anchor:
    """What the kernel hands to the epilogue.

    Attributes:
        magnitude: a bound on the absolute value of the accumulator (infinity: unknown).
        integer: the accumulator is an exact integer.
        scales: factors of the accumulator, each f32 and shaped to broadcast against dst: [src,
            weights] for the compute primitives.
        bias: f32, or an operand, broadcast against dst; None: none.
    """

    magnitude: float = math.inf
    integer: bool = False
    scales: tuple[F32Array, ...] = ()
    bias: F32Array | Operand | None = None


class Epilogue:
    """The bound epilogue of one step.

    Args:
        binding: the step: its attributes give post-ops, output scales, dst scale and zero point.
        result: the destination.
        anchor: what the accumulator is.
        part: the part of the destination (with steps) that tiles are counted in, physical order;
            None: all of it.

    Attributes:
        exact: nothing is computed and the destination is s32: the accumulator is stored as it is.
    """

    def __init__(
        self, binding: Binding, result: Result, anchor: Anchor, part: Tile | None = None
    ) -> None:
        self._binding = binding
        self._result = result
        self._part = part
        self._profile: NumericsProfile = binding.profile
        self._live: list[Operand] = []
        self._passes: list[Pass] = []
        self._finish: Finish
        self._bound = anchor.magnitude
        attr = binding.step.attr
        if binding.target == "onednn-v2":
            self._add_bias(anchor)
            self._add_scales((*anchor.scales, *self._output_scales()))
        else:
            self._add_scales(anchor.scales)
            self._add_bias(anchor)
        for op in attr.post_ops:
            if isinstance(op, Eltwise | Binary | Sum | Prelu):
                self._add_post_op(op)
        self._add_destination()
        self.exact = anchor.integer and result.dtype is DType.S32 and not self._passes
        store = Store(result.dtype, binding.profile, finite=self._bound < _CERTAINLY_FINITE)
        self._drop_relu(store)
        self._passes, self._finish = with_table(self._passes, store)

    @property
    def live(self) -> tuple[Operand, ...]:
        """The operands that are read at run time."""
        return tuple(self._live)

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
        array = self._result.layout.physical(_to_rank(array, len(self._result.shape)))
        if self._part is None:
            return array
        return array[
            tuple(
                cut if size != 1 else slice(None)
                for size, cut in zip(array.shape, self._part, strict=True)
            )
        ]

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
        if self.exact:
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
        y: F32Array
        if acc.dtype == np.float32:
            y = acc  # type: ignore[assignment]
        else:
            y = record.take(acc.shape, np.float32)
            record.copy(y, acc)
        for step in self._passes:
            inner = scratch.mark()
            step(y, block)
            scratch.release(inner)
        self._finish(y, target, block)

    # -- binding -----------------------------------------------------------------------------------

    def _source(self, value: F32Array | Operand) -> Source:
        """A pass's operand: a constant, brought into physical order, or the index of a run-time
        operand.
        """
        if isinstance(value, Operand):
            if value.data is None:
                self._live.append(value)
                return Source(index=len(self._live) - 1)
            value = np.asarray(value.data).astype(np.float32)
        if value.size == 1:
            return Source(data=value.reshape(()))
        return Source(data=np.ascontiguousarray(self._place(value)))

    def _output_scales(self) -> tuple[F32Array, ...]:
        scale = self._binding.step.attr.output_scales
        if scale is None:
            return ()
        axis = None if scale.mask == 0 else scale.mask.bit_length() - 1
        return (along(scale.array, axis, len(self._result.shape)),)

    def _add_scales(self, scales: Sequence[F32Array]) -> None:
        factors = [s for s in scales if not _all(s, 1.0)]
        if not factors:
            return
        if self._profile.combine:
            combined = factors[0]
            for other in factors[1:]:
                combined = np.multiply(combined, other)
            factors = [combined.astype(np.float32)]
        for factor in factors:
            self._passes.append(TimesPass(self._source(factor)))
            self._bound *= float(np.abs(factor).max(initial=0.0))

    def _add_bias(self, anchor: Anchor) -> None:
        bias = anchor.bias
        if bias is None:
            return
        data = bias.data if isinstance(bias, Operand) else bias
        if data is not None and not np.any(data):
            return  # acc is never -0.0 behind an integer, and +0.0 changes nothing else
        self._passes.append(PlusPass(self._source(bias)))
        self._bound += math.inf if data is None else float(np.abs(data).max(initial=0.0))

    def _operand(self, name: str) -> Operand:
        return self._binding.operands[name]

    def _add_post_op(self, op: Eltwise | Binary | Sum | Prelu) -> None:
        if isinstance(op, Eltwise):
            finite = self._bound < _CERTAINLY_FINITE
            alpha, beta, scale = np.float32(op.alpha), np.float32(op.beta), np.float32(op.scale)
            exact = op.algorithm == "linear" and exact_on_codes(
                alpha, beta, codes_behind(self._passes)
            )
            signed_zero = not self._result.dtype.is_integer
            step = EltwisePass(
                op.algorithm, alpha, beta, scale, self._profile, finite, signed_zero, exact
            )
            self._passes.append(step)
            self._bound = step.bound(self._bound)
        elif isinstance(op, Sum):
            operand = self._operand(op.operand)
            dtype = op.dtype or operand.dtype
            self._passes.append(
                SumPass(
                    self._source(operand),
                    float(np.float32(op.scale)),
                    op.zero_point,
                    dtype,
                    self._profile.fma,
                    self._bound,
                )
            )
            low, high = dtype.range if dtype.is_integer else (-math.inf, math.inf)
            self._bound += abs(op.scale) * max(abs(low - op.zero_point), abs(high - op.zero_point))
        elif isinstance(op, Binary):
            operand = self._operand(op.operand)
            factor = None if op.scale is None else self._source(self._scale_of(op, operand))
            self._passes.append(
                BinaryPass(
                    op.algorithm,
                    self._source(operand),
                    factor,
                    finite=self._bound < _CERTAINLY_FINITE,
                )
            )
            self._bound = self._binary_bound(op, operand)
        else:
            operand = self._operand(op.operand)
            self._passes.append(PreluPass(self._source(operand)))
            slopes = operand.data
            self._bound *= (
                math.inf if slopes is None else max(1.0, float(np.abs(slopes).max(initial=0.0)))
            )

    def _scale_of(self, op: Binary, operand: Operand) -> F32Array:
        if op.scale is None:
            return np.ones((), np.float32)
        axis = None if op.scale.mask == 0 else op.scale.mask.bit_length() - 1
        return along(op.scale.array, axis, max(len(operand.shape), 1))

    def _binary_bound(self, op: Binary, operand: Operand) -> float:
        if op.scale is not None or op.algorithm not in ("add", "sub", "mul", "max", "min"):
            return 1.0 if op.algorithm in ("ge", "gt", "le", "lt", "eq", "ne") else math.inf
        if operand.data is not None:
            other = float(np.abs(operand.data.astype(np.float64)).max(initial=0.0))
        else:
            other = (
                float(max(map(abs, operand.dtype.range))) if operand.dtype.is_integer else math.inf
            )
        return self._bound * other if op.algorithm == "mul" else self._bound + other

    def _add_destination(self) -> None:
        attr, result = self._binding.step.attr, self._result
        scale, zero = attr.scales.get("dst"), attr.zero_points.get("dst")
        rank = len(result.shape)
        if scale is not None and not _all(scale.array, 1.0):
            axis = None if scale.mask == 0 else scale.mask.bit_length() - 1
            values = along(scale.array, axis, rank)
            if self._profile.reciprocal:
                inverse = np.divide(np.float32(1), values).astype(np.float32)
                self._passes.append(TimesPass(self._source(inverse)))
                self._bound *= float(np.abs(inverse).max(initial=0.0))
            else:
                self._passes.append(DividePass(self._source(values)))
                self._bound /= float(np.abs(values).min(initial=math.inf))
        if zero is not None and np.any(zero.array):
            axis = None if zero.mask == 0 else zero.mask.bit_length() - 1
            self._passes.append(PlusPass(self._source(along(zero.array, axis, rank))))
            self._bound += float(np.abs(zero.array).max())

    def _drop_relu(self, finish: Store) -> None:
        """relu, then a positive factor, then a store that clips at 0: the clip alone gives the same
        integers (NaN aside).
        """
        limits = finish.limits
        if not finish.finite or limits is None or limits[0] != 0:
            return
        index = len(self._passes) - 1
        while index >= 0 and isinstance(step := self._passes[index], TimesPass) and step.positive:
            index -= 1
        if index >= 0 and isinstance(step := self._passes[index], EltwisePass) and step.plain_relu:
            del self._passes[index]


def _all(values: F32Array, value: float) -> bool:
    return bool(np.all(values == np.float32(value)))


def _to_rank(array: Array, rank: int) -> Array:
    """Leading dimensions of 1 in front, as NumPy broadcasts."""
    return array if array.ndim >= rank else array.reshape((1,) * (rank - array.ndim) + array.shape)
