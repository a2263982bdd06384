"""Roles of a step's arguments that are the names of a row's inputs, and their positions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, count

from ..ir.ops.spec import OpSpec

Args = tuple[tuple[str, str], ...]

SOURCE_AT_RUN_TIME = ("scales_src", "zero_points_src")
"""Roles of the scale and the zero point of a step's source that are computed at run time: one f32
number, and one code of the source's own type.
"""

WEIGHTS_AT_RUN_TIME = ("scales_weights", "zero_points_weights")
"""The same of a step's weights; the scale may have one number for each output channel."""

AT_RUN_TIME: Mapping[str, tuple[str, str]] = {
    role: (field, argument)
    for argument, roles in (("src", SOURCE_AT_RUN_TIME), ("weights", WEIGHTS_AT_RUN_TIME))
    for field, role in zip(("scales", "zero_points"), roles, strict=True)
}
"""Role of a parameter that is computed at run time -> the field of the attributes and the argument
that it stands for there.
"""

PACKED = "MatMulBlocks"
"""The op of a matmul step whose weights are packed codes: bytes, and not the reals that codes of
other steps stand for.
"""

SOURCE_BITS = "source_bits"
"""The parameter of a step with packed weights whose source, f32, becomes codes of so many bits in
each run, a scale for each block of a row; absent or 0: it is multiplied as it is.
"""

BLOCKS_OF_WEIGHTS = WEIGHTS_AT_RUN_TIME
"""The same roles of a step with packed weights: constants, one number for each block of a row, as
oneDNN from 3.4 on takes scales of the weights in groups of [block, 1].
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


def at_run_time(op: str, args: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Role -> value of the scales and zero points of a step's arguments that are computed at run
    time, each one number or one for each channel: not those of blocks of packed weights.
    """
    roles = SOURCE_AT_RUN_TIME if op == PACKED else AT_RUN_TIME
    return {role: value for role, value in args if role in roles}


def in_order(row: OpSpec, args: Args) -> tuple[str, ...] | None:
    """The values of the arguments by position; None where a role is not the row's, or out of
    order.
    """
    values = positional(row, args)
    return values if values is not None and with_roles(row, values) == args else None
