"""Roles of a step's arguments that are the names of a row's inputs, and their positions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, count

from ..ir.ops.spec import OpSpec

__all__ = ["COUNTS", "SOURCE_AT_RUN_TIME", "in_order", "positional", "with_roles"]

Args = tuple[tuple[str, str], ...]

SOURCE_AT_RUN_TIME = ("scales_src", "zero_points_src")
"""Roles of the scale and the zero point of a step's source that are computed at run time: one f32
number, and one code of the source's own type.
"""

COUNTS = frozenset({"sequence_lens"})
"""Roles of integers that are no codes, in primitives that read codes elsewhere."""


def positional(row: OpSpec, args: Args) -> tuple[str, ...] | None:
    """The values of the arguments by position ('' where absent), or None when a role is not the
    row's.
    """
    fixed = {p.name: i for i, p in enumerate(row.inputs) if not p.variadic}
    last = row.inputs[-1] if row.inputs and row.inputs[-1].variadic else None
    places: dict[int, str] = {}
    for role, value in args:
        stem, _, number = role.rpartition("_")
        if role in fixed:
            places[fixed[role]] = value
        elif last is not None and stem == last.name and re.fullmatch("0|[1-9][0-9]{0,5}", number):
            places[len(fixed) + int(number)] = value
        else:
            return None
    return tuple(places.get(i, "") for i in range(max(places, default=-1) + 1))


def with_roles(row: OpSpec, values: Sequence[str]) -> Args:
    """The arguments by position: roles are the names of the row's inputs, `name_0`, `name_1` ...
    for a repeated one. Values that the row has no role for are left out, as absent ones are.
    """
    roles = chain.from_iterable(
        (f"{p.name}_{i}" for i in count()) if p.variadic else (p.name,) for p in row.inputs
    )
    return tuple((role, value) for value, role in zip(values, roles, strict=False) if value)


def in_order(row: OpSpec, args: Args) -> tuple[str, ...] | None:
    """The values of the arguments by position; None where a role is not the row's, or out of
    order.
    """
    values = positional(row, args)
    return values if values is not None and with_roles(row, values) == args else None
