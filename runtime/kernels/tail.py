"""The end of an epilogue as a table, where a FakeQuantize in the middle of it has left few
different values.

Behind `round` and `clip` a value is one of at most 256 integers. If all that follows is per tensor,
and reads at most one other code (the old value of a sum), the destination is a function of one or
two bytes: 65536 results at most, computed while binding by the very passes that the table replaces.
A look-up costs less than the passes of a sum with FMA alone.

Where the table is the store of an affine function of one or two codes, computing that function in
f32 costs half of looking it up: no indices, and vector instructions only. Its roundings are not
those of the passes that the table was made by, so it stands in for the table only if it gives every
entry of it; a few neighbours of the coefficients are tried, as a difference next to a tie is all
that ever fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from ...ir.algorithms import ELTWISE
from ...ir.ops.spec import Array
from ..numerics import F32Array
from .base import Block, Recorder, Scratch, nbytes
from .eltwise_math import EltwisePass
from .passes import BinaryPass, Finish, Pass, Source, Store, SumPass

_CODES = 256
_WORTH = (
    4  # passes that a table must replace, where none of them is a sum or a transcendental function
)
_BYTES = 48  # of scratch an element while the table is made
_REACH = 3
"""How many f32 neighbours of a coefficient, up and down, are tried: the passes' own roundings add
up to about as much.
"""


@dataclass(frozen=True)
class TailTable:
    """target = table[y - low] or table[(y - low) * 256 + byte of the old code].

    Attributes:
        table: of the destination's type: 256 or 65536 entries at most.
        low: the smallest value of y.
        old: what the sum reads; None: no sum.
    """

    table: Array
    low: int
    old: Source | None

    def __call__(self, y: F32Array, target: Array, block: Block) -> None:
        """Takes down the look-up."""
        record = block.record
        if self.low:
            record(np.subtract, y, np.float32(self.low), y)
        codes = record.take(y.shape, np.uint16)
        record.copy(codes, y)
        if self.old is not None:
            record(np.left_shift, codes, np.uint16(8), codes)
            record(np.bitwise_or, codes, self.old.read(block).view(np.uint8), codes)
        places = record.take(y.shape, np.intp)
        record(np.copyto, places, codes)
        # `raise` would look the indices over first, and buffer the result
        record(self.table.take, places, None, target, "clip")


def range_of_codes(passes: Sequence[Pass]) -> tuple[int, int] | None:
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


def exact_on_codes(alpha: np.float32, beta: np.float32, codes: tuple[int, int] | None) -> bool:
    """True when alpha * k + beta is exact in f64 for every integer k of a (small) range."""
    if codes is None or codes[1] - codes[0] > 1 << 16:
        return False
    product = np.arange(codes[0], codes[1] + 1, dtype=np.float64) * np.float64(alpha)
    total = product + np.float64(beta)
    part = total - product
    # TwoSum's error
    return bool(np.all((product - (total - part)) + (np.float64(beta) - part) == 0))


def with_table(passes: list[Pass], finish: Store) -> tuple[list[Pass], Finish]:
    """The passes and the finish, with a table, or what gives the same codes, in place of the last
    ones where that is possible and pays.
    """
    if finish.dtype.numpy.itemsize != 1:
        return passes, finish
    start, low, high = _first_codes(passes)
    tail = passes[start:]
    sums = [step for step in tail if isinstance(step, SumPass)]
    if high - low >= _CODES or len(sums) > 1 or not all(map(_per_tensor, tail)) or not _pays(tail):
        return passes, finish
    table = filled(tail, finish, low, high)
    affine = affine_tail(tail, finish, low, table)
    if affine is not None:
        return [*passes[:start], *affine], finish
    old = sums[0].old if sums else None
    return passes[:start], TailTable(table.reshape(-1), low, old)


def _first_codes(passes: Sequence[Pass]) -> tuple[int, int, int]:
    """Index of the first pass behind which values are known to be few integers, and their range
    ((0, 2**16) where there is none).
    """
    for count in range(1, len(passes) + 1):
        found = range_of_codes(passes[:count])
        if found is not None and found[1] - found[0] < _CODES:
            return count, *found
    return len(passes), 0, 1 << 16


def _per_tensor(step: Pass) -> bool:
    """True of a pass that treats every element alike."""
    if isinstance(step, BinaryPass):
        sources = (step.operand, step.scale, step.zero)
        return all(source is None or _scalar(source) for source in sources)
    return isinstance(step, EltwisePass) or (
        isinstance(step, SumPass) and step.dtype.numpy.itemsize == 1
    )


def _scalar(source: Source) -> bool:
    return source.data is not None and source.data.ndim == 0


def _pays(tail: Sequence[Pass]) -> bool:
    costly = any(
        isinstance(step, SumPass)
        or (isinstance(step, EltwisePass) and ELTWISE[step.algorithm].transcendental)
        for step in tail
    )
    return costly or len(tail) >= _WORTH


def filled(tail: Sequence[Pass], finish: Store, low: int, high: int) -> Array:
    """The table, [codes, bytes of the old value], by the passes themselves on every combination of
    codes.
    """
    sums = [step for step in tail if isinstance(step, SumPass)]
    olds = _CODES if sums else 1
    shape = (high - low + 1, olds)
    record = Recorder(Scratch(nbytes((*shape, _BYTES), np.uint8) + 64 * 8 * len(tail)))
    y = np.repeat(np.arange(low, high + 1, dtype=np.float32), olds).reshape(shape)
    table = np.empty(shape, finish.dtype.numpy)
    old = np.broadcast_to(np.arange(olds, dtype=np.uint8), shape)
    # The sum's operand stands for itself here, whatever its index in the epilogue.
    operands = [old.view(sums[0].dtype.numpy)] * (sums[0].old.index + 1) if sums else []
    block = Block(tuple(slice(0, n) for n in shape), operands, record)
    for step in tail:
        mark = record.scratch.mark()
        step(y, block)
        record.scratch.release(mark)
    finish(y, table, block)
    with np.errstate(all="ignore"):
        for call in record.calls:
            call()
    return table


# -- the affine function ---------------------------------------------------------------------------


def affine_tail(tail: Sequence[Pass], finish: Store, low: int, table: Array) -> list[Pass] | None:
    """Passes that compute gain * y + weight * old + offset, each operation rounded to f32, and give
    every entry of a table; None where there are none, or none are found.

    Args:
        tail: the passes that the table stands for.
        finish: the store behind them, to a type of one byte.
        low: the code of the table's first row.
        table: [codes, bytes of the old value] (1 column: no sum).
    """
    found = _coefficients(tail)
    if found is None:
        return None
    old = next((step for step in tail if isinstance(step, SumPass)), None)
    for gain, weight, offset in _neighbours(*found):
        passes: list[Pass] = [BinaryPass("mul", Source(gain))]
        if old is not None:
            passes.append(replace(old, scale=float(weight), zero_point=0, fma=False))
        if offset:
            passes.append(BinaryPass("add", Source(offset)))
        if np.array_equal(filled(passes, finish, low, low + table.shape[0] - 1), table):
            return passes
    return None


def _coefficients(tail: Sequence[Pass]) -> tuple[float, float, float] | None:
    """(gain, weight, offset) of the passes without their roundings; None where one of them is not
    affine.
    """
    gain, weight, offset = 1.0, 0.0, 0.0
    for step in tail:
        if isinstance(step, SumPass):
            weight, offset = step.scale, offset - step.scale * step.zero_point
            continue
        factors = _affine(step)
        if factors is None:
            return None
        factor, shift = factors
        gain, weight, offset = gain * factor, weight * factor, offset * factor + shift
    return (gain, weight, offset) if np.all(np.isfinite([gain, weight, offset])) else None


def _affine(step: Pass) -> tuple[float, float] | None:
    """(factor, shift) of a pass that is affine, per tensor."""
    if isinstance(step, EltwisePass) and step.algorithm == "linear":
        return float(step.alpha) * float(step.scale), float(step.beta) * float(step.scale)
    if not isinstance(step, BinaryPass) or (step.scale, step.zero) != (None, None):
        return None
    number = math.nan if step.operand.data is None else float(step.operand.data)
    return {
        "add": (1.0, number),
        "sub": (1.0, -number),
        "mul": (number, 0.0),
        "div": (1.0 / number if number else math.nan, 0.0),
    }.get(step.algorithm)


def _neighbours(
    gain: float, weight: float, offset: float
) -> Iterator[tuple[F32Array, F32Array, F32Array]]:
    """The coefficients in f32, and f32 numbers beside them, the nearest first."""
    steps = sorted(
        product(range(-_REACH, _REACH + 1), repeat=2), key=lambda step: abs(step[0]) + abs(step[1])
    )
    for first, second in steps:
        yield _beside(gain, first), _beside(weight, second), np.asarray(offset, np.float32)


def _beside(value: float, steps: int) -> F32Array:
    rounded = np.asarray(value, np.float32)
    return np.asarray(rounded + steps * np.spacing(rounded) if rounded else rounded, np.float32)
