"""The shapes of inputs and outputs as the model's file writes them: with its names for sizes, or none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..ir.diagnostic import Finding
from ..ir.types import Dim
from .open_sizes import symbols_of
from .types import Plan

Stated = tuple[Dim | None, ...]
"""Sizes, names of sizes, and None for those without a name."""

SHAPES = "shapes"
"""The option of a plan that holds (name, shape) of each input and output that the file writes in other words."""


def stated_shape(plan: Plan, value: str) -> Stated | None:
    """The shape of an input or output of a plan in the words of the model's file; None where its rank is unknown."""
    told: Any = plan.options.get(SHAPES, ())  # verified
    found: dict[str, Stated] = dict(told)
    return found[value] if value in found else plain_shape(plan, value)


def plain_shape(plan: Plan, value: str) -> Stated | None:
    """The same in the words of the plan, without formulas."""
    shape, names = plan.type(value).shape, symbols_of(plan)
    if shape is None:
        return None
    return tuple(dim if isinstance(dim, int) or dim in names else None for dim in shape)


def stated_shapes_fit(plan: Plan) -> Iterator[Finding]:
    """The shapes in the words of the file are such."""
    told = plan.options.get(SHAPES, ())
    if not isinstance(told, tuple) or not all(map(_is_row, told)):
        yield Finding(f"the option {SHAPES} is no list of names and shapes")


def _is_row(row: object) -> bool:
    match row:
        case (str(), tuple() as shape):
            return all(dim is None or type(dim) in (int, str) for dim in shape)
    return False
