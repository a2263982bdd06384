"""Ranges of the digits network's quantizers, in NumPy: how they are chosen and how FakeQuantize and
Q/DQ express the same one.

A scale is rounded up to 16 significant bits. Then `scale * 255`, `scale * 127` and `scale *
zero_point` are exact in f32, so that the ranges of a FakeQuantize and the scale and zero point of a
Q/DQ pair denote the same function, not one a rounding error away.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

ACTIVATION_LEVELS: Final = 256
WEIGHT_LEVELS: Final = 255
_SCALE_BITS: Final = 16
# f32 evaluation of FakeQuantize errs by a few units in the last place of numbers up to 254, so by
# less than 1e-4 of a step.
_TIE_CLEARANCE: Final = 2.0**-12


@dataclass(frozen=True)
class Range:
    """A quantizer in both notations: f32 `low`/`high` (FakeQuantize) and f32 `scale` with integer
    `zero_point` (Q/DQ).

    Arrays are of shape `[]` per tensor and `[OC, 1, ...]` per channel. `low == (q_min - zero_point)
    * scale` exactly, where `q_min` is 0 for the unsigned activations and -127 for weights, and so
    for `high` with 255 and 127.
    """

    low: NDArray[np.float32]
    high: NDArray[np.float32]
    scale: NDArray[np.float32]
    zero_point: int


def activation_range(minimum: float, maximum: float, signed: bool) -> Range:
    """Per-tensor range with 256 levels for values observed in `minimum .. maximum`, widened as
    little as makes the zero point an integer.

    Unsigned ranges start at 0. Raises ValueError if a signed range does not enclose zero, or the
    maximum is not positive.
    """
    if maximum <= 0 or (signed and minimum >= 0):
        raise ValueError(
            f"cannot quantize values in {minimum} .. {maximum}: the range must reach to both sides of zero"
        )
    steps = ACTIVATION_LEVELS - 1
    if not signed:
        scale, zero_point = maximum / steps, 0
    else:
        zero_point = min(max(round(-minimum * steps / (maximum - minimum)), 1), steps - 1)
        scale = max(-minimum / zero_point, maximum / (steps - zero_point))
    return _range(np.asarray(scale), -zero_point, steps - zero_point, zero_point)


def weight_range(weight: NDArray[np.float32]) -> Range:
    """Symmetric narrow range (255 levels, -127 .. 127) per output channel of weights `[OC, ...]`;
    its arrays are `[OC, 1, ...]`.

    Raises ValueError if all weights of a channel are zero.
    """
    magnitude = (
        np.abs(weight).max(axis=tuple(range(1, weight.ndim)), keepdims=True).astype(np.float64)
    )
    if np.any(magnitude == 0):
        raise ValueError(
            f"all weights of output channels {np.flatnonzero(magnitude == 0).tolist()} are zero: they have no range"
        )
    half = WEIGHT_LEVELS // 2
    return _range(magnitude / half, -half, half, 0)


def clear_of_ties(weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """Weights `[OC, ...]` with those nearer than 1/4096 step to a rounding tie of their quantizer
    moved to that distance from it.

    A handful in a network: every evaluator of FakeQuantize, in f32 or f64, half-even or half-away,
    then picks the same integers.
    """
    scale = weight_range(weight).scale.astype(np.float64)
    steps = weight / scale
    tie = np.floor(steps) + 0.5
    near = np.abs(steps - tie) < _TIE_CLEARANCE
    moved = (tie + np.copysign(_TIE_CLEARANCE, steps - tie)) * scale
    return np.where(near, moved, weight).astype(np.float32)


def quantize_weight(weight: NDArray[np.float32], limits: Range) -> NDArray[np.int8]:
    """The int8 weights that FakeQuantize with `limits` picks (half-even), same shape.

    Raises ValueError if f32 and f64 arithmetic round some weight differently: the two forms of the
    model could then disagree on it.
    """
    half = WEIGHT_LEVELS // 2
    arguments = (weight, limits.low, limits.high)
    picked = [
        _steps_above_low(*arguments) - half,
        _steps_above_low(*(argument.astype(np.float64) for argument in arguments)) - half,
    ]
    # QuantizeLinear divides by the scale and adds no shift before it rounds; it must pick the same
    # integer.
    picked.append(np.rint(weight / limits.scale).astype(np.int64))
    if not all(np.array_equal(picked[0], other) for other in picked[1:]):
        raise ValueError(
            "a weight lies on a rounding tie of its quantizer; pass the weights through clear_of_ties first"
        )
    return picked[0].astype(np.int8)


def _steps_above_low(
    x: NDArray[np.floating], low: NDArray[np.floating], high: NDArray[np.floating]
) -> NDArray[np.int64]:
    """FakeQuantize's integer, 0 .. 254, in the precision of the arguments."""
    steps: NDArray[np.floating] = np.rint(
        (np.clip(x, low, high) - low) / (high - low) * x.dtype.type(WEIGHT_LEVELS - 1)
    )
    return steps.astype(np.int64)


def _range(scale: NDArray[np.float64], first: int, last: int, zero_point: int) -> Range:
    mantissa, exponent = np.frexp(np.asarray(scale, dtype=np.float64))
    exact = np.ldexp(np.ceil(np.ldexp(mantissa, _SCALE_BITS)), exponent - _SCALE_BITS).astype(
        np.float32
    )
    return Range(
        np.asarray(exact * np.float32(first)),
        np.asarray(exact * np.float32(last)),
        exact,
        zero_point,
    )
