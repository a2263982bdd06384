"""How much memory a run may take, checked on Python integers before anything is allocated."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import InvalidInput
from ..ir.ops.spec import Array
from ..ir.types import TensorType
from ..plan.shapes import StaticShape, bind_shapes
from ..plan.types import Plan

MOST_TRIPS = 1 << 16
"""Trips of all loops in one run of a step; each takes a microsecond or more."""


@dataclass(frozen=True)
class RunBudget:
    """The limit of a session.

    Attributes:
        limit: bytes of one value, and of all memory of one run.
    """

    limit: int

    def check(self, plan: Plan, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Refuses values that are too large alone.

        Raises:
            InvalidInput: there is one; the message names it.
        """
        for value, shape in shapes.items():
            type_ = plan.values.get(value)
            if type_ is not None and (needed := _bytes(type_, shape)) > self.limit:
                raise self._too_much(
                    f"the value {value} of shape {list(shape)} takes {needed:,} bytes",
                    value,
                    needed,
                )

    def bind(
        self, plan: Plan, input_shapes: Mapping[str, Sequence[int]]
    ) -> tuple[dict[str, StaticShape], Mapping[str, Array]]:
        """As `bind_shapes`, and looks at the inputs before, and at all values behind it.

        Raises:
            InvalidInput: the shapes do not fit the model, or a value is too large.
        """
        self.check(plan, {name: tuple(input_shapes[name]) for name in plan.inputs})
        found, settled = bind_shapes(plan, input_shapes)
        self.check(plan, found)
        return found, settled

    def check_run(self, plan: Plan, shapes: Mapping[str, tuple[int, ...]], needed: int) -> None:
        """Refuses memory of a run that is too large together.

        Raises:
            InvalidInput: it is; the message names the largest value.
        """
        if needed <= self.limit:
            return
        sizes = {
            value: _bytes(type_, shapes[value])
            for value, type_ in plan.values.items()
            if value in shapes
        }
        value = max(sizes, key=sizes.__getitem__, default="")
        largest = f"; the largest value is {value} of shape {list(shapes[value])}" if value else ""
        raise self._too_much(f"one run takes {needed:,} bytes{largest}", value, needed)

    def check_bytes(self, needed: int, what: str, where: str) -> None:
        """Refuses so many bytes.

        Raises:
            InvalidInput: they are too many; `what` says what takes them.
        """
        if needed > self.limit:
            raise self._too_much(f"{what} {needed:,} bytes", where, needed)

    def _too_much(self, what: str, value: str, needed: int) -> InvalidInput:
        hint = f"feed smaller inputs, or give the session budgets=fqfuse.Budgets(run_bytes={needed}) or more"
        return InvalidInput(f"{what}, and a run may take {self.limit:,}", where=value, hint=hint)


def _bytes(type_: TensorType, shape: tuple[int, ...]) -> int:
    return math.prod(shape) * type_.dtype.numpy.itemsize
