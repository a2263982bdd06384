"""Random programs of the algebra: chains of basic operations with constants that make ties, and the
points where they might part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random

import numpy as np
from laws.rational import Operands, after, entry

from fqfuse.composer.formula.formula import (
    Add,
    BasicOp,
    BinaryOp,
    Clip,
    EltwiseOp,
    PreluOp,
    Round,
    ScaleBy,
    Shift,
    Store,
    Vec,
    vec,
)
from fqfuse.ir.types import DType

CHANNELS = 3
_TINY = Fraction(1, 2**30)
_SPECIAL = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-45, -1e-45, 2.0**-126, 3.4e38, -3.4e38)


def source(seed: int) -> Random:
    """Numbers that are the same for the same seed."""
    return Random(seed)  # noqa: S311


@dataclass(frozen=True)
class Draws:
    """Draws operations and stores.

    Attributes:
        random: where from.
        rough: constants have 53 bits, some a hair beside a tie. Otherwise a few bits, for which
            sums and products are exact in f64.
    """

    random: Random
    rough: bool = False

    def program(self) -> list[BasicOp]:
        """Two to five operations; each kind as likely as the others."""
        makers = (
            self._scale,
            self._shift,
            self._clip,
            self._eltwise,
            self._prelu,
            self._binary,
            self._add,
            Round,
        )
        return [self.random.choice(makers)() for _ in range(self.random.randint(2, 5))]

    def stored(self) -> tuple[list[BasicOp], Store]:
        """Up to three operations and a store behind them; a clip at the end has its bounds near the
        store's ends.
        """
        end, last = self._store(), self.random.choice([None, EltwiseOp("relu"), Round()])
        return [*self.program()[:2], self._clip_near(end) if last is None else last], end

    def ended(self) -> list[BasicOp | Store]:
        """Some operations and a store, or what decodes codes and adds others to them."""
        if self.random.random() < 0.7:
            return [*self.program(), self._store()]
        return [
            *self.random.choice([[Round()], [self._clip()], []]),
            self._shift(),
            self._scale(),
            self._add(),
        ]

    def operands(self) -> dict[str, Fraction]:
        """What the operands hold: slope, another tensor (never 0), codes of a residual branch."""
        eighths = self.random.choice([n for n in range(-16, 17) if n])
        return {
            "slope": Fraction(self.random.randint(-16, 16), 8),
            "other": Fraction(eighths, 8),
            "skip": Fraction(self.random.randint(-128, 255)),
        }

    def numbers(self) -> list[Fraction]:
        """Some rational numbers."""
        return [
            Fraction(self.random.randint(-4000, 4000), self.random.choice([1, 2, 3, 7, 64, 100]))
            for _ in range(4)
        ]

    # -- constants ---------------------------------------------------------------------------------

    def _factor(self) -> float:
        factor = self.random.choice([0.5, 0.5, 2.0, 0.25, 4.0, 1.0, 1.0, 3.0, 0.75, 0.625])
        return (
            factor * self.random.uniform(0.9, 1.1)
            if self.rough and self.random.random() < 0.7
            else factor
        )

    def _any_factor(self) -> float:
        return self._factor() * self.random.choice([1, 1, 1, -1])

    def _number(self) -> float:
        draw = self.random.randint
        number = self.random.choice([0.0, draw(-40, 40) / 2, draw(-99, 99) / 8, draw(-8, 8) * 2])
        beside = (
            self.random.choice([0, 0, 2.0**-40, -(2.0**-40), self.random.uniform(-1, 1)])
            if self.rough
            else 0
        )
        return number + beside

    def _even(self) -> float:
        return 2.0 * self.random.randint(-20, 20)

    def _vector(self, maker: object) -> Vec:
        assert callable(maker)
        return vec([maker() for _ in range(self.random.choice([1, 1, CHANNELS]))])

    # -- operations --------------------------------------------------------------------------------

    def _scale(self) -> ScaleBy:
        one = lambda: 1.0  # noqa: E731
        return ScaleBy(
            self._vector(
                self.random.choice([one, self._factor, self._any_factor, self._any_factor])
            )
        )

    def _shift(self) -> Shift:
        return Shift(
            self._vector(self.random.choice([self._even, self._number, self._number, lambda: 0.0]))
        )

    def _clip(self) -> Clip:
        low = self._vector(self._number)
        kind = self.random.randint(0, 3)
        if kind == 0:
            return Clip(vec(-math.inf), low)
        return Clip(low, vec(math.inf) if kind == 1 else vec(low + abs(self._vector(self._number))))

    def _clip_near(self, end: Store) -> Clip:
        """Bounds whose codes are the store's ends, or up to a step and a half beside, in steps of
        half a code.
        """
        step = abs(end.scale)
        near = [-0.5, 0.5, 0.5, 0.5] if self.rough else [-1.5, -1.0, -0.5, 0.0, 0.5]
        beside = [self.random.choice(near) for _ in range(2)]
        low = (end.low - end.zero_point) * step + beside[0] * step
        high = (end.high - end.zero_point) * step - beside[1] * step
        kind = self.random.randint(0, 4)
        return Clip(
            vec(-math.inf) if kind == 0 else vec(low), vec(math.inf) if kind == 1 else vec(high)
        )

    def _eltwise(self) -> EltwiseOp:
        plain, leaky = EltwiseOp("relu"), EltwiseOp("relu", self.random.choice([0.125, -0.5]))
        return self.random.choice(
            [
                plain,
                plain,
                plain,
                plain,
                leaky,
                EltwiseOp("abs"),
                EltwiseOp("hardswish", 0.125, 0.5),
            ]
        )

    def _prelu(self) -> PreluOp:
        return PreluOp("slope", 2)

    def _binary(self) -> BinaryOp:
        algorithm = self.random.choice(["add", "sub", "add", "sub", "mul", "div", "max", "min"])
        scaled = algorithm in ("add", "sub") and self.random.random() < 0.5
        return BinaryOp(algorithm, "other", self._any_factor() if scaled else 1.0)

    def _add(self) -> Add:
        dtype = self.random.choice([DType.U8, DType.S8])
        return Add(
            "skip",
            dtype,
            self._any_factor(),
            float(self.random.choice([0, 3, 117, 128, -7, 1.5])),
            self.random.random() < 0.5,
        )

    def _store(self) -> Store:
        dtype = self.random.choice([DType.U8, DType.S8])
        least, most = dtype.range
        low, high = (
            self.random.choice([least, least, least + 1, -7]),
            self.random.choice([most, most, 100, 7]),
        )
        low = max(low, least)
        zeros = [0.0, 0.0, float(low), float(low), float(low - 1), 3.0, 117.0, 128.0, -128.0, 0.5]
        zeros += [low + 0.5, low + 0.5 - 2.0**-40] if self.rough else []
        one = self.random.choice([lambda: 1.0, self._factor, self._factor, self._any_factor])
        return Store(
            dtype, self._vector(one), self._vector(lambda: self.random.choice(zeros)), low, high
        )


# -- points ----------------------------------------------------------------------------------------


def points(ops: Sequence[BasicOp | Store], channel: int, held: Operands) -> list[Fraction]:
    """Where the operations turn: bounds, ties and zeros of each, brought back to the front, and a
    hair beside.
    """
    turns: set[Fraction] = set()
    for op in reversed(ops):
        turns = {_before(op, y, channel, held) for y in turns} | _turns(op, channel)
    return sorted({y + beside for y in turns for beside in (-_TINY, 0, _TINY)})


def _turns(op: BasicOp | Store, channel: int) -> set[Fraction]:
    halves = {Fraction(n, 2) for n in range(-7, 8)}
    if isinstance(op, Store):
        codes = {
            n + side
            for n in (op.low, op.high, 0, 1, 2)
            for side in (Fraction(-1, 2), Fraction(0), Fraction(1, 2))
        }
        return {
            (c - Fraction(entry(op.zero_point, channel))) * Fraction(entry(op.scale, channel))
            for c in codes
        }
    if isinstance(op, Clip):
        return {
            Fraction(0),
            *(
                Fraction(end)
                for end in (entry(op.low, channel), entry(op.high, channel))
                if math.isfinite(end)
            ),
        }
    return halves if isinstance(op, Round) else {Fraction(0), Fraction(1, 2), Fraction(-5, 2)}


def _before(op: BasicOp | Store, y: Fraction, channel: int, held: Operands) -> Fraction:
    """What must stand in front of the operation for it to give y, where it is linear; y where it is
    not.
    """
    if isinstance(op, ScaleBy):
        return y / Fraction(entry(op.values, channel))
    if isinstance(op, BinaryOp) and op.algorithm in ("mul", "div"):
        other = held[op.operand] * Fraction(op.scale)
        return y / other if op.algorithm == "mul" else y * other
    return (
        y - after(op, Fraction(0), channel, held) if isinstance(op, Shift | Add | BinaryOp) else y
    )


def arguments(
    ops: Sequence[BasicOp | Store], y: Fraction, channel: int, held: Operands
) -> tuple[list[Fraction], Fraction]:
    """What the roundings of a chain round, and the largest magnitude on the way: of a value, or of
    a term that it is a sum of.
    """
    rounded, largest = [], abs(y)
    for op in ops:
        if isinstance(op, Round):
            rounded.append(y)
        elif isinstance(op, Store):
            quotient = y / Fraction(entry(op.scale, channel))
            rounded.append(quotient + Fraction(entry(op.zero_point, channel)))
            largest = max(largest, abs(quotient), abs(rounded[-1]))
        y = after(op, y, channel, held)
        largest = max(largest, abs(y))
    return rounded, largest


# -- f32 -------------------------------------------------------------------------------------------


def starts(
    ops: Sequence[BasicOp | Store], channel: int, held: Operands, random: Random
) -> np.ndarray:
    """f32 values to start from: turning points, their neighbours in f32, random ones, infinities,
    NaN, both zeros, subnormals.
    """
    turns = np.asarray([float(y) for y in points(ops, channel, held)], np.float32)
    drawn = np.asarray(
        [random.uniform(-300, 300) for _ in range(8)] + [random.uniform(-2, 2) for _ in range(8)],
        np.float32,
    )
    beside = [np.nextafter(turns, np.float32(side)) for side in (-np.inf, np.inf)]
    return np.concatenate([np.unique([turns, *beside]), drawn, np.asarray(_SPECIAL, np.float32)])


def in_f32(
    ops: Sequence[BasicOp | Store],
    y: np.ndarray,
    channel: int,
    held: Operands,
    *,
    divide: bool = False,
) -> np.ndarray:
    """What a chain computes when each constant and each operation rounds to f32 once; a store
    multiplies by 1 / scale, or divides.
    """
    with np.errstate(all="ignore"):
        for op in ops:
            y = _one_in_f32(op, y, channel, held, divide)
    return y


def _one_in_f32(
    op: BasicOp | Store, y: np.ndarray, channel: int, held: Operands, divide: bool
) -> np.ndarray:
    f32 = lambda value: np.float32(float(value))  # noqa: E731
    if isinstance(op, ScaleBy):
        return y * f32(entry(op.values, channel))
    if isinstance(op, Shift):
        return y + f32(entry(op.values, channel))
    if isinstance(op, Round):
        return np.rint(y)
    if isinstance(op, Clip):
        return _clipped(y, entry(op.low, channel), entry(op.high, channel))
    if isinstance(op, PreluOp):
        return np.where(y >= 0, y, y * f32(held[op.operand]))
    if isinstance(op, Add):
        return y + f32(op.scale) * (f32(held[op.operand]) - f32(op.zero_point))
    if isinstance(op, BinaryOp):
        other = f32(held[op.operand]) * f32(op.scale)
        call = {
            "add": np.add,
            "sub": np.subtract,
            "mul": np.multiply,
            "div": np.divide,
            "max": np.maximum,
            "min": np.minimum,
        }
        return call[op.algorithm](y, other)
    if isinstance(op, EltwiseOp):
        return _eltwise_in_f32(op, y)
    scale, zero = f32(entry(op.scale, channel)), f32(entry(op.zero_point, channel))
    return np.rint(
        _clipped((y / scale if divide else y * (np.float32(1) / scale)) + zero, op.low, op.high)
    )


def _eltwise_in_f32(op: EltwiseOp, y: np.ndarray) -> np.ndarray:
    alpha, beta = np.float32(op.alpha), np.float32(op.beta)
    if op.algorithm == "relu":
        return np.where(y > 0, y, y * alpha) if op.alpha else _clipped(y, 0.0, math.inf)
    return np.abs(y) if op.algorithm == "abs" else y * _clipped(alpha * y + beta, 0.0, 1.0)


def _clipped(y: np.ndarray, low: float, high: float) -> np.ndarray:
    """As the primitives clip: a NaN becomes `low`."""
    return np.minimum(np.fmax(y, np.float32(low)), np.float32(high))
