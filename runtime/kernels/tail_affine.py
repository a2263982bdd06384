"""The end of an epilogue as gain * y + weight * old + offset, where that is proven to give the same
codes.

Where a look-up table of the tail (`tail_table`) is the store of an affine function of one or two
codes, computing that function in f32
costs half of looking it up: no indices, and vector instructions only. Its roundings are not those
of the passes that the table was made by, so it stands in for the table only if it gives every entry
of it; a few neighbours of the coefficients are tried, as a difference next to a tie is all that
ever fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from ...ir.ops.spec import Array
from ..numerics import F32Array
from .passes import Block, DividePass, EltwisePass, Pass, PlusPass, Source, SumPass, TimesPass
from .store import Store

__all__ = ["AffineTail", "affine_tail"]

_REACH = 3
"""How many f32 neighbours of a coefficient, up and down, are tried: the passes' own roundings add
up to about as much.
"""


@dataclass(frozen=True)
class AffineTail:
    """target = finish(gain * y + weight * old + offset), each operation rounded to f32.

    Attributes:
        gain, weight, offset: the coefficients.
        old: the sum whose operand is read; None: no sum.
        finish: clips, rounds and stores.
    """

    gain: np.float32
    weight: np.float32
    offset: np.float32
    old: SumPass | None
    finish: Store

    def __call__(self, y: F32Array, target: Array, block: Block) -> None:
        """Takes down the arithmetic and the store."""
        record = block.record
        record(np.multiply, y, self.gain, y)
        if self.old is not None:
            old = read_codes(self.old, block)
            addend = record.take(old.shape, np.float32)
            record.copy(addend, old)
            record(np.multiply, addend, self.weight, addend)
            record(np.add, y, addend, y)
        if self.offset:
            record(np.add, y, self.offset, y)
        self.finish(y, target, block)


def read_codes(step: SumPass, block: Block) -> Array:
    """The part of a sum's operand that belongs to the tile, as the element type that the sum reads
    it as.
    """
    return step.old.read(block).view(step.dtype.numpy)


def affine_tail(tail: Sequence[Pass], finish: Store, low: int, table: Array) -> AffineTail | None:
    """The affine function that gives every entry of a table; None where there is none, or none is
    found.

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
    codes = np.arange(low, low + table.shape[0], dtype=np.float32)[:, None]
    olds = (
        np.zeros(1, np.float32)
        if old is None
        else np.arange(256, dtype=np.uint8).view(old.dtype.numpy).astype(np.float32)
    )
    for gain, weight, offset in _neighbours(*found):
        values = codes * gain
        if old is not None:
            values = values + olds * weight
        if offset:
            values = values + offset
        if np.array_equal(_stored(values, finish), table):
            return AffineTail(gain, weight, offset, old, finish)
    return None


def _coefficients(tail: Sequence[Pass]) -> tuple[float, float, float] | None:
    """(gain, weight, offset) of the passes without their roundings; None where one of them is not
    affine.
    """
    gain, weight, offset = 1.0, 0.0, 0.0
    for step in tail:
        if isinstance(step, SumPass):
            weight, offset = step.scale, offset - step.scale * step.zero_point
        elif isinstance(step, PlusPass):
            offset += _number(step.addend)
        elif isinstance(step, TimesPass | DividePass):
            factor = (
                _number(step.factor) if isinstance(step, TimesPass) else 1.0 / _number(step.divisor)
            )
            gain, weight, offset = gain * factor, weight * factor, offset * factor
        elif isinstance(step, EltwisePass) and step.algorithm == "linear":
            factor = float(step.alpha)
            gain, weight, offset = (
                gain * factor,
                weight * factor,
                offset * factor + float(step.beta),
            )
            gain, weight, offset = (
                gain * float(step.scale),
                weight * float(step.scale),
                offset * float(step.scale),
            )
        else:
            return None
    return (gain, weight, offset) if np.all(np.isfinite([gain, weight, offset])) else None


def _number(source: Source) -> float:
    return float("nan") if source.data is None else float(source.data)


def _neighbours(
    gain: float, weight: float, offset: float
) -> Iterator[tuple[np.float32, np.float32, np.float32]]:
    """The coefficients in f32, and f32 numbers beside them, the nearest first."""
    steps = sorted(
        product(range(-_REACH, _REACH + 1), repeat=2), key=lambda step: abs(step[0]) + abs(step[1])
    )
    for first, second in steps:
        yield _beside(gain, first), _beside(weight, second), np.float32(offset)


def _beside(value: float, steps: int) -> np.float32:
    rounded = np.float32(value)
    return np.float32(rounded + steps * np.spacing(rounded)) if rounded else rounded


def _stored(values: npt.NDArray[np.float32], finish: Store) -> Array:
    """What the store makes of finite values."""
    low, high = finish.dtype.range
    return np.rint(np.clip(values, np.float32(low), np.float32(high))).astype(finish.dtype.numpy)
