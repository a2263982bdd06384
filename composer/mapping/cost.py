"""The cost model: what a home of an operation costs, in passes over the destination
tensor.

    cost = bytes moved / bytes of the destination + weights of post-ops in registers + CALL for each
    further primitive

One pass reads or writes the destination once. int8 networks are bound by memory and calls, so bytes
decide, and what is done in registers only breaks near ties; its weights are in the ratio that was
measured (docs/contributing/results.md). Nothing is timed: the same graph gives the same costs on every
machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...ir.algorithms import ELTWISE, Cost
from ...ir.decision import Alternative
from ...ir.types import DType, TensorType
from ...plan.attributes import Binary, Eltwise, PostOp, Prelu, Sum

CALL = 0.1
"""A further primitive: threads meet at a barrier once more, and arguments are set. It decides
between homes that move equal bytes.
"""

WRITE_ALLOCATE = 1.0
"""A destination apart from the operand: the cache reads its lines before they are written. A sum
writes to lines that it has just read.
"""

CHEAP = 0.01
"""One or two vector instructions for each element: a multiplication, an addition, a comparison."""

# scale, bias, zero point, or the store's own rounding and saturation: the primitive computes these
# anyway
_FOLDED = 0.0
# a load for each vector, besides: slopes or a constant for each channel; hardswish and hardsigmoid
# take as long
_OPERAND = 0.03
_COSTLY = 0.2  # a polynomial of 10 to 20 instructions, a root, a division or a table
_ELTWISE = {Cost.CHEAP: CHEAP, Cost.FEW: _OPERAND, Cost.MANY: _COSTLY}


@dataclass(frozen=True)
class Home:
    """A place for an operation.

    Attributes:
        name: `sum`, `binary`, `post-op`, `folded`, `own step` ...
        cost: in passes; without a meaning when it is illegal.
        why_not: why it is illegal; '' when it is legal.
    """

    name: str
    cost: float
    why_not: str = ""


class Saved(NamedTuple):
    """Parts of a chain, as `Part.of` has them, that cost nothing where they went, and what a post-op would."""

    of: int
    home: str
    post_op: float


def alternatives(homes: Sequence[Home]) -> tuple[Alternative, ...]:
    """What was weighed, for a decision: the chosen home, then the others, the cheapest first, the
    illegal ones at the end.
    """
    others = sorted(homes[1:], key=lambda home: (bool(home.why_not), home.cost))
    return tuple(
        Alternative(home.name, float(np.float32(home.cost)), home.why_not)
        for home in (homes[0], *others)
    )


def eltwise_cost(algorithm: str) -> float:
    """Passes that an eltwise post-op counts for, by the class of its algorithm."""
    return _ELTWISE[ELTWISE[algorithm].cost]


def operand_cost(operand: TensorType, dst: TensorType) -> float:
    """Passes over `dst` for reading `operand`: its share of elements times the ratio of the element
    sizes.

    A dimension that is broadcast, or has another size, counts by its share of the destination's.
    One that is symbolic counts as 1: no share is taken for granted.
    """
    share = operand.dtype.numpy.itemsize / dst.dtype.numpy.itemsize
    if operand.shape is None or dst.shape is None:
        return share
    aligned = (1,) * (len(dst.shape) - len(operand.shape)) + operand.shape
    for mine, full in zip(aligned, dst.shape, strict=False):
        if isinstance(mine, int) and isinstance(full, int) and full > 0 and mine != full:
            share = share * mine / full
    return share


def post_op_cost(op: PostOp) -> float:
    """Passes that a post-op counts for in registers, without the bytes of a second tensor."""
    if isinstance(op, Eltwise):
        return eltwise_cost(op.algorithm)
    if isinstance(op, Binary | Prelu):
        return _OPERAND
    return CHEAP if isinstance(op, Sum) else _FOLDED


def own_step_cost(
    between: DType, dst: TensorType, operand: float = 0.0, registers: float = 0.0
) -> float:
    """Passes that a step of its own costs: what lies between the steps is written and read once
    more, in `between`.
    """
    return 2.0 * between.numpy.itemsize / dst.dtype.numpy.itemsize + operand + registers + CALL
