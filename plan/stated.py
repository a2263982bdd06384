"""The shapes of inputs and outputs as the model's file writes them: with its names for sizes, or none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..ir.diagnostic import Finding
from ..ir.types import Dim
from .open_sizes import USUAL, symbols_of
from .types import Plan

Stated = tuple[Dim | None, ...]
"""Sizes, names of sizes, and None for those without a name."""

_LARGEST = 100_000  # size that metadata tell

SHAPES = "shapes"
"""The option of a plan that holds (name, shape) of each input and output that the file writes in other words."""


def stated_shapes(plan: Plan, values: Iterable[str]) -> dict[str, Stated | None]:
    """The shapes of inputs and outputs of a plan in the words of the model's file; None where a rank is unknown."""
    told: Any = plan.options.get(SHAPES, ())  # verified
    return plain_shapes(plan, values) | dict(told)


def plain_shapes(plan: Plan, values: Iterable[str]) -> dict[str, Stated | None]:
    """The same in the words of the plan, without formulas."""
    names = frozenset(symbols_of(plan))
    shapes = {value: plan.type(value).shape for value in values}
    return {
        value: None
        if shape is None
        else tuple(dim if isinstance(dim, int) or dim in names else None for dim in shape)
        for value, shape in shapes.items()
    }


def stated_shapes_fit(plan: Plan) -> Iterator[Finding]:
    """The shapes in the words of the file are such, and the sizes that it tells."""
    for option, is_row in ((SHAPES, _is_shape), (USUAL, _is_size)):
        told = plan.options.get(option, ())
        if not isinstance(told, tuple) or not all(map(is_row, told)):
            yield Finding(f"the option {option} is no list of names and {option.split('_')[-1]}")


def _is_shape(row: object) -> bool:
    match row:
        case (str(), tuple() as shape):
            return all(dim is None or type(dim) in (int, str) for dim in shape)
    return False


def _is_size(row: object) -> bool:
    match row:
        case (str(), int() as size):
            return 0 <= size < _LARGEST
    return False
