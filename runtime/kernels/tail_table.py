"""The end of an epilogue as a table, where a FakeQuantize in the middle of it has left few
different values.

Behind `round` and `clip` a value is one of at most 256 integers. If all that follows is per tensor,
and reads at most one other code (the old value of a sum), the destination is a function of one or
two bytes: 65536 results at most, computed while binding by the very passes that the table replaces.
A look-up costs less than the passes of a sum with FMA alone; a few plain passes that are shown to
give every entry of the table (`tail_affine`) cost less still.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...ir.algorithms import ELTWISE
from ...ir.ops.spec import Array
from ..numerics import F32Array
from .base import Recorder, Scratch, nbytes
from .passes import (
    BinaryPass,
    Block,
    DividePass,
    EltwisePass,
    Pass,
    PlusPass,
    Source,
    SumPass,
    TimesPass,
    codes_behind,
)
from .store import Finish, Store
from .tail_affine import affine_tail

__all__ = ["TailTable", "with_table"]

_CODES = 256
_WORTH = (
    4  # passes that a table must replace, where none of them is a sum or a transcendental function
)
_BYTES = 48  # of scratch an element while the table is made


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
        record(
            self.table.take, places, None, target, "clip"
        )  # `raise` would look the indices over first, and buffer the result


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
    table = _filled(tail, finish, low, high, sums)
    affine = affine_tail(tail, finish, low, table)
    return passes[:start], affine or TailTable(
        table.reshape(-1), low, sums[0].old if sums else None
    )


def _first_codes(passes: Sequence[Pass]) -> tuple[int, int, int]:
    """Index of the first pass behind which values are known to be few integers, and their range
    ((0, 2**16) where there is none).
    """
    for count in range(1, len(passes) + 1):
        found = codes_behind(passes[:count])
        if found is not None and found[1] - found[0] < _CODES:
            return count, *found
    return len(passes), 0, 1 << 16


def _per_tensor(step: Pass) -> bool:
    """True of a pass that treats every element alike."""
    if isinstance(step, TimesPass):
        return _scalar(step.factor)
    if isinstance(step, DividePass):
        return _scalar(step.divisor)
    if isinstance(step, PlusPass):
        return _scalar(step.addend)
    if isinstance(step, BinaryPass):
        return _scalar(step.operand) and (step.scale is None or _scalar(step.scale))
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


def _filled(
    tail: Sequence[Pass], finish: Store, low: int, high: int, sums: Sequence[SumPass]
) -> Array:
    """The table, [codes, bytes of the old value], by the passes themselves on every combination of
    codes.
    """
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
