"""The last pass of an epilogue: an f32 value becomes an element of the destination."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ...ir.ops.spec import Array
from ...ir.types import DType
from ..numerics import F32Array, NumericsProfile
from .base import Recorder
from .passes import Block

__all__ = ["Finish", "Store", "replace_nan"]

_LARGEST_S32 = 2147483520
"""The largest f32 below 2**31: what oneDNN saturates s32 to."""


class Finish(Protocol):
    """What turns the values of a tile into the destination's elements."""

    def __call__(self, y: F32Array, target: Array, block: Block) -> None:
        """Takes down target = finish(y); y is used as scratch."""
        ...


@dataclass(frozen=True)
class Store:
    """Clips, rounds half to even and stores; an f32 destination takes the value as it is.

    Attributes:
        dtype: of the destination.
        profile: says what a NaN becomes.
        finite: no value is a NaN.
    """

    dtype: DType
    profile: NumericsProfile
    finite: bool

    @property
    def limits(self) -> tuple[np.float32, np.float32] | None:
        """What values are clipped to; None for a float."""
        if not self.dtype.is_integer:
            return None
        low, high = self.dtype.range
        return np.float32(low), np.float32(min(high, _LARGEST_S32))

    def __call__(self, y: F32Array, target: Array, block: Block) -> None:
        """Takes down target = saturate(round(y))."""
        limits, record = self.limits, block.record
        if limits is not None:
            record_rounded(
                y, limits, None if self.finite else np.float32(self.profile.nan(self.dtype)), record
            )
        record.copy(target, y)


def record_rounded(
    y: F32Array, limits: tuple[np.float32, np.float32], nan: np.float32 | None, record: Recorder
) -> None:
    """Takes down y = round(clip(y)); NaN becomes `nan` (None: there is none)."""
    if nan is not None:
        record(replace_nan, y, nan)
    record(y.clip, *limits, y)
    record(np.rint, y, y)


def replace_nan(y: F32Array, value: np.float32) -> None:
    """y = value where y is NaN."""
    np.copyto(y, value, where=np.isnan(y))
