"""Where a scale and a shift change places, so that a value of 0 comes out as 0."""

from __future__ import annotations

import numpy as np
import pytest

from fqfuse.composer.formula.exact_zeros import exact_zeros
from fqfuse.composer.formula.formula import BasicOp, BinaryOp, EltwiseOp, Round, ScaleBy, Shift, vec

SCALE, SHIFT = ScaleBy(vec(0.1)), Shift(vec(np.float64(0.1) * -3.0))  # codes with a zero point of 3
COMPARISON = BinaryOp("gt", "x")


def kinds(ops: list[BasicOp]) -> list[type]:
    return [type(op) for op in ops]


@pytest.mark.parametrize("between", [[], [EltwiseOp("relu")], [ScaleBy(vec(2.0))]])
def test_in_front_of_what_tells(between: list[BasicOp]) -> None:
    assert kinds(exact_zeros([SCALE, SHIFT, *between, COMPARISON]))[:2] == [Shift, ScaleBy]
    assert kinds(exact_zeros([SCALE, SHIFT, *between], told=True))[:2] == [Shift, ScaleBy]
    assert kinds(exact_zeros([SCALE, SHIFT, *between]))[:2] == [ScaleBy, Shift]


def test_not_in_front_of_a_rounding() -> None:
    """It makes the same whole number of 0 and of what is next to it; one linear is two post-ops
    otherwise.
    """
    chain = [SCALE, SHIFT, Round(), SCALE, SHIFT, COMPARISON]
    assert kinds(exact_zeros(chain)) == [ScaleBy, Shift, Round, Shift, ScaleBy, BinaryOp]
    assert kinds(exact_zeros(chain[:3], told=True)) == [ScaleBy, Shift, Round]
