"""Approximations that a compilation must be asked for by name: they change what the model computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ..errors import InvalidInput

INT8_RECURRENCE: Final = "int8-recurrence"

APPROXIMATIONS: Final[Mapping[str, str]] = {
    INT8_RECURRENCE: "LSTM and GRU in int8: input and hidden state are rounded to codes of u8 at each step, weights to s8; "
    "where no quantizer of the input gives a range, what is beyond -1..1 is clipped",
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
            f"approximate is given as a {type(names).__name__}",
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
