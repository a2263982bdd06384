"""Rules from the attributes of oneDNN 2 to those of oneDNN 3: what each gives, where it refuses,
and that it is what it claims.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from laws.programs import Draws, source
from laws.rational import after_post_op
from laws.rule_cases import Fires, Refuses, rule_tests

from fqfuse.composer.formula.formula import vec
from fqfuse.plan.attributes import Binary, Eltwise, PostOp, Prelu, Scale, Sum
from fqfuse.plan.conversion.output_scale import FACTOR, OF_ARGUMENT, UNSCALED
from fqfuse.plan.conversion.real_domain import REAL, TAKEN_APART, LeavesF32, Scales, rounded

RULES = {rule.name: rule for rule in (OF_ARGUMENT, FACTOR, UNSCALED, *REAL, TAKEN_APART)}
SUM, HOMOGENEOUS, WITH_CONSTANT, RECTIFIED, LINEAR, OTHERWISE = (rule.name for rule in REAL)
EACH = Scale((0.5, 0.25), 2)


def filed(array: np.ndarray) -> str:
    return f"{array.tolist()}"


def times(domain: float, *, constant: bool = True):
    return lambda operand: f"{operand}*{domain:g}" if constant else None


def behind(op: PostOp, domain: float = 4.0, *, constant: bool = True) -> tuple[object, ...]:
    return op, domain, times(domain, constant=constant)


def scales(output: object, *, src: float = 0.5, dst: float = 0.25, mask: int | None = 1) -> Scales:
    return Scales(vec(output), mask, src, dst)


FIRES: Fires = {
    OF_ARGUMENT.name: ((EACH, 1, None), Scale((0.5, 0.25), 1)),
    FACTOR.name: ((EACH, 4, filed), Binary("mul", "[[[[0.5]], [[0.25]]]]")),
    UNSCALED.name: ((Eltwise("tanh", scale=3.0),), (Eltwise("tanh"), Eltwise("linear", 3.0, 0.0))),
    SUM: (behind(Sum("skip", 0.5, 3)), (4.0, (Sum("skip", 2.0, 3),))),
    HOMOGENEOUS: (behind(Prelu("slope")), (4.0, (Prelu("slope"),))),
    WITH_CONSTANT: (behind(Binary("max", "c")), (4.0, (Binary("max", "c*4"),))),
    RECTIFIED: (behind(Eltwise("clip", -1.0, 6.0, 2.0)), (8.0, (Eltwise("clip", -8.0, 48.0),))),
    LINEAR: (behind(Eltwise("linear", 3.0, 5.0, 2.0)), (24.0, (Eltwise("linear", 1.0, 40.0),))),
    OTHERWISE: (
        behind(Eltwise("tanh", scale=2.0)),
        (1.0, (Eltwise("tanh"), Eltwise("linear", 8.0, 0.0))),
    ),
    TAKEN_APART.name: (
        (scales([0.5, 1.0]), 0.25),
        {"src": Scale((0.5,)), "dst": Scale((0.25,)), "weights": Scale((0.25, 0.5), 1)},
    ),
}

REFUSES: Refuses = {
    OF_ARGUMENT.name: [
        ((EACH, 1, "b"), "an accumulator alone"),
        ((EACH, None, None), "a dimension that s has"),
    ],
    WITH_CONSTANT: [(behind(Binary("add", "t"), constant=False), "needs a constant")],
    RECTIFIED: [
        (behind(Eltwise(name, 0.0, 6.0, factor)), "above 0")
        for name in ("relu", "clip")
        for factor in (-1.0, 0.0, math.inf)
    ],
    LINEAR: [(behind(Eltwise("linear", -3.0)), "above 0")],
    TAKEN_APART.name: [((scales(3.0, mask=None), 0.25), "is not the source's scale")],
}


(
    test_every_rule_has_a_place_where_it_fires,
    test_rule_fires,
    test_rule_refuses_with_its_reason,
) = rule_tests(RULES, FIRES, REFUSES)


@pytest.mark.parametrize("name", [rule.name for rule in REAL[:-1]])
def test_rule_says_nothing_elsewhere(name: str) -> None:
    assert RULES[name].apply(*behind(Binary("ge", "t"))) is None


# -- the same numbers ------------------------------------------------------------------------------

# accumulators with a bias, in f32
SUMS = np.random.default_rng(0).integers(-(2**20), 2**20, 4096).astype(np.float32)


def same_bits(one: np.ndarray, other: np.ndarray) -> None:
    """But for the sign of a zero."""
    np.testing.assert_array_equal(*((y + np.float32(0)).view(np.uint32) for y in (one, other)))


def test_the_scale_of_an_argument_is_the_output_scale() -> None:
    """It multiplies the accumulator, or the source, and is the same number."""
    for values in ((0.1,), (3.0, -0.1, 1e-30)):
        assert OF_ARGUMENT.apply(Scale(values, 4), 2, None) == Scale(values, 2)


@pytest.mark.parametrize("axis", range(4))
def test_a_factor_in_front_keeps_the_bits(axis: int) -> None:
    rng, shape = np.random.default_rng(1), [4, 8, 8, 16]
    sums = SUMS.reshape(shape)
    for _ in range(20):
        each = rng.normal(0, 1, shape[axis]).astype(np.float32)
        one = float(each[0])
        factors = each.reshape([-1 if index == axis else 1 for index in range(4)])
        assert FACTOR.apply(Scale(tuple(each.tolist()), 1 << axis), 4, filed) == Binary(
            "mul", filed(factors)
        )
        same_bits(np.moveaxis(np.moveaxis(sums, axis, -1) * each, -1, axis), sums * factors)
        linear = FACTOR.apply(Scale((one,), 1 << axis), 4, filed)
        assert linear == Eltwise("linear", one, 0.0)
        same_bits(sums * np.float32(one), sums * np.float32(linear.alpha) + np.float32(linear.beta))


def test_the_scale_of_an_eltwise_keeps_the_bits() -> None:
    for scale in (3.0, -0.1, 1e-30):
        eltwise, linear = UNSCALED.apply(Eltwise("relu", 0.1, scale=scale))
        assert (eltwise, linear) == (Eltwise("relu", 0.1), Eltwise("linear", scale, 0.0))
        same_bits(SUMS * np.float32(scale), SUMS * np.float32(scale) + np.float32(0))


# -- real numbers ----------------------------------------------------------------------------------


def drawn(draws: Draws) -> PostOp:
    draw = draws.random.choice
    scale = draw([1.0, 2.0, -0.5])
    return draw(
        [
            Sum("skip", scale, 3),
            Prelu("slope"),
            Binary(draw(["mul", "div", "add", "sub", "max", "min", "gt", "le"]), "other"),
            Eltwise("relu", draw([0.0, 0.25]), scale=scale),
            Eltwise("abs", scale=scale),
            Eltwise("clip", -1.5, 6.0, scale),
            Eltwise("linear", draw([2.0, -0.5]), draw([0.0, 3.0]), scale),
            Eltwise("square", scale=scale),
            Eltwise("round", scale=scale),
        ]
    )


@pytest.mark.parametrize("name", [rule.name for rule in REAL])
def test_post_ops_in_the_real_domain_hold_in_fractions(name: str) -> None:
    draws, fired = Draws(source(0)), 0
    for _ in range(1500):
        op, domain, held = (
            drawn(draws),
            draws.random.choice([0.5, 4.0, 1.0, 0.125]),
            draws.operands(),
        )
        held["other*"] = held["other"] * Fraction(domain)
        found = RULES[name].apply(op, domain, lambda operand: f"{operand}*")
        if not isinstance(found, tuple):
            continue
        fired += 1
        front, parts = found
        assert front > 0, "the next rule needs it"
        for x in (*draws.numbers(), Fraction(0), Fraction(-3, 2), Fraction(6), held["other"]):
            y = Fraction(front) * x
            for part in parts:
                y = after_post_op(part, y, held)
            assert y == Fraction(domain) * after_post_op(op, x, held), (
                f"{op} in {domain} as {found}, x = {x}, {held}"
            )
    assert fired >= 20


@pytest.mark.parametrize(
    "apply",
    [
        lambda: rounded(1e39),
        lambda: rounded((1.0, -1e-39)),
        lambda: REAL[0].apply(Sum("skip", 1e-30), 1e-30, times(1.0)),
        lambda: REAL[3].apply(Eltwise("clip", 0.0, 1e30), 1e30, times(1.0)),
        lambda: REAL[4].apply(Eltwise("linear", 1.0, 1e-30), 1e-30, times(1.0)),
        lambda: REAL[5].apply(Eltwise("tanh", scale=1e30), 1e30, times(1.0)),
        lambda: TAKEN_APART.apply(scales(1e-38), 0.25),
        lambda: TAKEN_APART.apply(scales(1e-30, src=1e-30), 1e-10),
    ],
)
def test_what_leaves_f32_is_not_rounded(apply) -> None:
    with pytest.raises(LeavesF32, match=r"^-?[0-9.e+-]+$"):
        apply()


def test_infinite_bounds_and_zeros_stay() -> None:
    assert rounded((0.0, -np.inf, np.inf, 1.5)).tolist() == [0.0, -np.inf, np.inf, 1.5]
    assert REAL[3].apply(Eltwise("clip", 0.0, np.inf), 4.0, times(4.0)) == (
        4.0,
        (Eltwise("clip", 0.0, np.inf),),
    )


def test_an_output_scale_taken_apart_holds_in_fractions() -> None:
    draw = source(1).choice
    for _ in range(200):
        given = scales(
            [draw([0.5, 3.0, 0.125]), draw([0.25, 5.0])],
            src=draw([0.5, 2.0]),
            dst=draw([0.25, 1.0]),
        )
        domain = draw([given.dst, 1.0])
        found = TAKEN_APART.apply(given, domain)
        assert isinstance(found, dict)
        src = Fraction(found["src"].values[0] if "src" in found else 1)
        assert [src * Fraction(w) for w in found["weights"].values] == [
            Fraction(o) * Fraction(domain) for o in given.output.tolist()
        ]
        assert ("dst" in found) == (given.dst != 1)


def test_an_output_scale_taken_apart_parts_at_ties_only() -> None:
    rng, parted = np.random.default_rng(2), 0
    sums = rng.integers(-(2**16), 2**16, 1 << 16).astype(np.float32)
    for _ in range(20):
        src, dst = (float(np.float32(v)) for v in rng.uniform(0.001, 0.004, 2))
        output_scale = float(rng.choice([2.0**-9, 3 * 2.0**-10]))  # exact products, with many ties
        found = TAKEN_APART.apply(scales(output_scale, src=src, dst=dst), dst)
        assert isinstance(found, dict)
        s, w, d = (np.float32(found[role].values[0]) for role in ("src", "weights", "dst"))
        one, other = np.rint(sums * np.float32(output_scale)), np.rint(sums * (s * w) / d)
        far = one != other
        exact = sums[far].astype(np.float64) * output_scale
        assert (np.abs(one - other)[far] == 1).all()
        # Rounded: w, s*w, the product, the quotient; and the product by the output scale.
        assert (np.abs(exact % 1 - 0.5) <= 6 * 2.0**-24 * np.abs(exact)).all()
        parted += int(far.sum())
    assert TAKEN_APART.float == "ties"
    assert parted
