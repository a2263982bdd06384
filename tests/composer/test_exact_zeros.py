"""Where a scale and a shift change places, so that a value of 0 comes out as 0."""

from __future__ import annotations

import numpy as np
import pytest

from fqfuse.composer.formula.algebra import simplify
from fqfuse.composer.formula.exact_zeros import exact_zeros
from fqfuse.composer.formula.formula import BasicOp, BinaryOp, EltwiseOp, Round, ScaleBy, Shift, vec
from fqfuse.ir.telling import Told

SCALE, SHIFT = ScaleBy(vec(0.1)), Shift(vec(np.float64(0.1) * -3.0))  # codes with a zero point of 3
COMPARISON = BinaryOp("gt", "x")


def kinds(ops: list[BasicOp]) -> list[type]:
    return [type(op) for op in ops]


@pytest.mark.parametrize("between", [[], [EltwiseOp("relu")], [ScaleBy(vec(2.0))]])
def test_in_front_of_what_tells(between: list[BasicOp]) -> None:
    assert kinds(exact_zeros([SCALE, SHIFT, *between, COMPARISON]))[:2] == [Shift, ScaleBy]
    assert kinds(exact_zeros([SCALE, SHIFT, *between], told=Told.ZERO))[:2] == [Shift, ScaleBy]
    assert kinds(exact_zeros([SCALE, SHIFT, *between]))[:2] == [ScaleBy, Shift]


def test_not_in_front_of_a_rounding() -> None:
    """It makes the same whole number of 0 and of what is next to it; one linear is two post-ops
    otherwise.
    """
    chain = [SCALE, SHIFT, Round(), SCALE, SHIFT, COMPARISON]
    assert kinds(exact_zeros(chain)) == [ScaleBy, Shift, Round, Shift, ScaleBy, BinaryOp]
    assert kinds(exact_zeros(chain[:3], told=Told.ZERO)) == [ScaleBy, Shift, Round, Shift]


def test_what_is_added_to_codes_of_0_stays_behind_them_where_something_jumps() -> None:
    """In f32, as the model adds and multiplies it: 0.1 + 0.7, then times 3."""
    chain = simplify(
        [
            *(Shift(vec(-3.0)), ScaleBy(vec(0.1))),
            *(Shift(vec(np.float32(0.1))), Shift(vec(np.float32(0.7))), ScaleBy(vec(3.0))),
        ]
    )
    assert kinds(chain) == [ScaleBy, Shift]
    assert kinds(exact_zeros(chain, told=Told.ZERO)) == [ScaleBy, Shift]
    found = exact_zeros(chain, told=Told.ANY)
    assert kinds(found) == [Shift, ScaleBy, Shift]
    assert isinstance(last := found[-1], Shift)
    assert last.values == (np.float32(0.1) + np.float32(0.7)) * np.float32(3.0)


def test_without_a_factor_the_two_shifts_stay_apart() -> None:
    """q + (0.1 - 50) would round the sum of the two."""
    chain = simplify([Shift(vec(-50.0)), Shift(vec(np.float32(0.1)))])
    assert kinds(exact_zeros(chain, told=Told.ZERO)) == [Shift]
    assert kinds(exact_zeros(chain, told=Told.ANY)) == [Shift, Shift]


def test_the_rounding_of_a_quantizer_tells_nothing_and_that_of_the_model_does() -> None:
    chain = simplify([Shift(vec(-3.0)), ScaleBy(vec(0.1)), Shift(vec(2.5))])
    assert kinds(exact_zeros([*chain, Round()])) == [ScaleBy, Shift, Round]
    assert kinds(exact_zeros([*chain, Round(to_codes=False)])) == [Shift, ScaleBy, Shift, Round]


def test_a_zero_point_far_from_0_is_taken_off_first_although_nothing_tells() -> None:
    """The rounding of -12750 is 2^-11, in front of a rounding to codes as much of a step."""
    far = [ScaleBy(vec(50.0)), Shift(vec(-255 * 50.0))]
    assert kinds(exact_zeros(far)) == [Shift, ScaleBy]
    assert kinds(exact_zeros(far, step=1.0)) == [ScaleBy, Shift]
    assert kinds(exact_zeros(far, step=0.125)) == [Shift, ScaleBy]
    assert kinds(exact_zeros([*far, Round()])) == [ScaleBy, Shift, Round]
    assert kinds(exact_zeros([*far, ScaleBy(vec(8.0)), Round()])) == [
        *(Shift, ScaleBy, ScaleBy, Round)
    ]
    assert kinds(exact_zeros([*far, BinaryOp("add", "x"), ScaleBy(vec(0.001))])) == [
        *(ScaleBy, Shift, BinaryOp, ScaleBy)
    ]


def test_what_is_added_far_from_0_stays_behind() -> None:
    chain = simplify([Shift(vec(-255.0)), ScaleBy(vec(50.0)), Shift(vec(2.5))])
    assert kinds(exact_zeros(chain)) == [Shift, ScaleBy, Shift]


def test_a_number_that_is_taken_off_in_front_of_a_factor_stays_there() -> None:
    """(x - 1e6)*0.3 at 1000001: x*0.3 - 3e5 would be 0.312."""
    chain = simplify([Shift(vec(np.float32(-1e6))), ScaleBy(vec(np.float32(0.3)))])
    found = exact_zeros(chain)
    assert kinds(found) == [Shift, ScaleBy]
    assert isinstance(first := found[0], Shift)
    assert first.values == -1e6
    near = simplify([Shift(vec(np.float32(-123.675))), ScaleBy(vec(np.float32(0.017)))])
    assert kinds(exact_zeros(near)) == [ScaleBy, Shift]
    rough = [ScaleBy(vec(np.float32(0.3))), Shift(vec(-300_000.1))]  # no f32 gives this one
    assert kinds(exact_zeros(rough)) == [ScaleBy, Shift]
