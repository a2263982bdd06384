"""Approximations that a compilation must be asked for by name: they change what the model computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ..errors import InvalidInput

INT8_RECURRENCE: Final = "int8-recurrence"
MIDDLE_ROUNDING: Final = "middle-rounding"
RESIDUAL_ROUNDING: Final = "residual-rounding"
SMALL_SHIFT: Final = "small-shift"
FRACTIONAL_ZERO_POINT: Final = "fractional-zero-point"

APPROXIMATIONS: Final[Mapping[str, str]] = {
    INT8_RECURRENCE: "LSTM and GRU in int8: input and hidden state are rounded to codes of u8 at each step, weights to s8; "
    "where no quantizer of the input gives a range, what is beyond -1..1 is clipped",
    MIDDLE_ROUNDING: "a quantizer inside a step, with more than a scale and a shift behind it, does not round: at most "
    "half of its step off",
    RESIDUAL_ROUNDING: "a quantizer inside a step, in front of a residual addition, neither rounds nor clips: at most half "
    "of its step off within its range, and beyond it by as much as a value lies beyond; a bound of 0 stays, as a relu",
    SMALL_SHIFT: "a FakeQuantize whose zero point is next to an integer, by 1e-5 of its levels, has that integer: at most a "
    "step off, and only where a value lies so near a tie",
    FRACTIONAL_ZERO_POINT: "a FakeQuantize whose zero point is no integer has the nearest one, its range moved by less than "
    "half a step: at most a step off",
}
"""Name -> what it changes."""


def check_approximate(names: object) -> tuple[str, ...]:
    """The names of approximations, once each, in a fixed order.

    Raises:
        InvalidInput: there is no such one, or they are no list of names.
    """
    known = ", ".join(APPROXIMATIONS)
    if not isinstance(names, Sequence) or isinstance(names, str | bytes | bytearray | memoryview):
        raise InvalidInput(
            f"approximate is of type {type(names).__name__}",
            where="approximate",
            hint=f"pass a list of names: {known}",
        )
    for name in names:
        if not isinstance(name, str) or name not in APPROXIMATIONS:
            raise InvalidInput(
                f"there is no approximation {name!r}",
                where="approximate",
                hint=f"choose of {known}",
            )
    return tuple(name for name in APPROXIMATIONS if name in names)
