"""Boxes: all values between two arrays, element by element."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
EPS = 2.0**-24
LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Box:
    """All values between `low` and `high`, element by element (f64, also for codes)."""

    low: F64
    high: F64

    @property
    def magnitude(self) -> F64:
        return np.maximum(np.abs(self.low), np.abs(self.high))

    @property
    def middle(self) -> F64:
        return 0.5 * (self.low + self.high)

    @property
    def radius(self) -> F64:
        return 0.5 * (self.high - self.low)

    def widened(self, error: npt.ArrayLike) -> Box:
        return Box(self.low - error, self.high + error)

    def absolute(self) -> Box:
        """The absolute values."""
        around = (self.low <= 0) & (self.high >= 0)
        return Box(
            np.where(around, 0.0, np.minimum(np.abs(self.low), np.abs(self.high))), self.magnitude
        )

    def in_f32(self, size: npt.ArrayLike = 0.0) -> Box:
        """What f32 can make of it: beyond its largest number lies infinity.

        `size`: the sum of the magnitudes of what was added up. Where that is too large for f32, it
        depends on the order of the additions which infinity comes out, or NaN: any value.
        """
        any_value = ~(np.asarray(size) <= LARGEST) | np.isnan(self.low) | np.isnan(self.high)
        return Box(
            np.where(any_value | (self.low < -LARGEST), -np.inf, self.low),
            np.where(any_value | (self.high > LARGEST), np.inf, self.high),
        )

    def holds(self, array: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Where an array lies within the bounds; NaN lies where any value may."""
        values = np.asarray(array, np.float64)
        any_value = np.isneginf(self.low) & np.isposinf(self.high)
        return any_value | ((values >= self.low) & (values <= self.high))

    def outside(self, array: npt.ArrayLike) -> float:
        """How far the worst element lies beyond its bounds."""
        values = np.asarray(array, np.float64)
        if not values.size:
            return 0.0
        with np.errstate(invalid="ignore"):  # an infinity less a bound that is one
            far = np.maximum(self.low - values, values - self.high)
        return float(np.max(np.where(self.holds(values), np.fmin(far, 0.0), far)))


def exactly(array: npt.ArrayLike) -> Box:
    values = np.asarray(array, np.float64)
    return Box(values, values)


def hull(*corners: F64) -> Box:
    """The smallest box around arrays, broadcast against each other."""
    stacked = np.stack(np.broadcast_arrays(*corners))
    return Box(stacked.min(0), stacked.max(0))
