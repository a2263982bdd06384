"""Rules about one operand, and about vectors: what each gives, where it refuses, and that it is
what it claims.
"""

from __future__ import annotations

from fractions import Fraction
from math import inf

import numpy as np
import pytest
from laws.formulas import store
from laws.programs import Draws, in_f32, source
from laws.rational import after_all, entry
from laws.rule_cases import Fires, Refuses, check_fires, check_refuses, refusing

from fqfuse.composer.formula.formula import (
    ONE_ENTRY,
    BinaryOp,
    Clip,
    CodesOp,
    EltwiseOp,
    PreluOp,
    Round,
    ScaleBy,
    Shift,
    Store,
    vec,
)
from fqfuse.composer.formula.unary_rules import (
    UNARY,
    Bounds,
    Decoding,
    Negation,
    Power,
    RoundedFirst,
    Slopes,
    Unary,
)
from fqfuse.composer.steps.prelu import PRELU, PreluOfSource
from fqfuse.ir.types import DType

RULES = {rule.name: rule for rule in (ONE_ENTRY, *UNARY, PRELU)}
EACH = vec([1.0, 2.0, 4.0])


def slopes(values: object) -> Slopes:
    return Slopes(vec(values), lambda: "slopes", 2)


def prelu(values: object, codes: tuple[DType, float, float] | None = None) -> PreluOfSource:
    return PreluOfSource(vec(values), "x", codes, lambda: "factors")


FIRES: Fires = {
    "[a, a, ...] = a": ((np.asarray([3.0, 3.0, 3.0]),), vec(3.0)),
    "-x = x*(-1)": ((Negation(),), (ScaleBy(vec(-1.0)),)),
    "x^2 = square(x)": ((Power(2.0),), (EltwiseOp("square"),)),
    "x^p = pow(x, 1, p)": ((Power(3.0),), (EltwiseOp("pow", 1.0, 3.0),)),
    "min(max(x, l), h) = clip(x, min(l, h), h)": ((Bounds(4.0, 1.0),), (Clip(vec(1.0), vec(1.0)),)),
    "prelu(x, a) = relu(x, a)": ((slopes([0.5, 0.5]),), (EltwiseOp("relu", 0.5),)),
    "prelu(x, [a, ...]) = prelu(x, t), t = [a, ...]": ((slopes(EACH),), (PreluOp("slopes", 2),)),
    "(q-z)*s = (q + (-z))*s": ((Decoding(EACH, vec(3.0)),), (Shift(vec(-3.0)), ScaleBy(EACH))),
    "round(x/s) + z = store(x, s, z), z even": (
        (RoundedFirst(store(0.5, 4.0)),),
        (store(0.5, 4.0),),
    ),
    "round(x/s) + z = store(round(x*(1/s)), 1, z), z odd": (
        (RoundedFirst(store(0.5, 3.0)),),
        (ScaleBy(vec(2.0)), Round(), store(1.0, 3.0)),
    ),
    PRELU.name: (
        (prelu([0.5, 0.0], (DType.S8, 0.25, 3.0)),),
        (BinaryOp("mul", "factors"), CodesOp("max", "x", DType.S8, 0.25, 3.0)),
    ),
}

REFUSES: Refuses = {
    "[a, a, ...] = a": [((EACH,), "needs equal entries")],
    "x^2 = square(x)": [((Power(3.0),), "second power")],
    "prelu(x, a) = relu(x, a)": [((slopes(EACH),), "needs one slope")],
    "round(x/s) + z = store(x, s, z), z even": [
        ((RoundedFirst(store(0.5, 3.0)),), "needs an even z"),
        ((RoundedFirst(store(0.5, [2.0, 3.0, 4.0])),), "needs an even z"),
    ],
    "round(x/s) + z = store(round(x*(1/s)), 1, z), z odd": [
        ((RoundedFirst(store(0.5, 4.0)),), "for even z")
    ],
    PRELU.name: [((prelu([0.5, 1.5]),), "needs a <= 1"), ((prelu([0.5, 0.0]),), "needs a <= 1")],
}


def test_every_rule_has_a_place_where_it_fires() -> None:
    assert FIRES.keys() == RULES.keys()
    assert REFUSES.keys() <= RULES.keys()


@pytest.mark.parametrize("name", FIRES)
def test_rule_fires(name: str) -> None:
    check_fires(RULES[name], *FIRES[name])


@pytest.mark.parametrize(("name", "arguments", "reason"), refusing(REFUSES))
def test_rule_refuses_with_its_reason(
    name: str, arguments: tuple[object, ...], reason: str
) -> None:
    check_refuses(RULES[name], arguments, reason)


@pytest.mark.parametrize("name", [rule.name for rule in UNARY])
def test_rule_says_nothing_elsewhere(name: str) -> None:
    assert RULES[name].apply(Power(2.0) if name.startswith("-x") else Negation()) is None


def test_equal_entries_serve_each_channel_alike() -> None:
    for values in (np.asarray([0.3] * 3), np.asarray([-inf] * 3), np.asarray([0.7])):
        found = ONE_ENTRY.apply(values)
        assert isinstance(found, np.ndarray)
        assert found.size == 1
        assert all(
            entry(found, channel) == entry(values, channel) for channel in range(values.size)
        )


# -- one operand -----------------------------------------------------------------------------------


def drawn(draws: Draws) -> Unary:
    draw = draws.random.choice
    end = draws._store()
    whole = vec(np.rint(end.zero_point))
    low, high = draws._number(), draws._number()
    return draw(
        [
            Negation(),
            Power(draw([2.0, 2.0, 3.0, 4.0])),
            Bounds(draw([low, -inf]), draw([high, inf])),
            slopes(draw([0.25, -2.0, EACH])),
            Decoding(draws._scale().values, draws._shift().values),
            RoundedFirst(Store(end.dtype, end.scale, whole, end.low, end.high)),
        ]
    )


def defined(op: Unary, x: Fraction, channel: int) -> Fraction:
    """What the operation is, of real numbers."""
    at = lambda values: Fraction(entry(values, channel))  # noqa: E731
    match op:
        case Negation():
            return -x
        case Power(exponent):
            return x ** int(exponent)
        case Bounds(low, high):
            return min(max(x, low), high)
        case Slopes(values):
            return x if x >= 0 else at(values) * x
        case Decoding(scale, zero):
            return (x - at(zero)) * at(scale)
        case RoundedFirst(end):
            return min(max(round(x / at(end.scale)) + at(end.zero_point), end.low), end.high)


@pytest.mark.parametrize("name", [rule.name for rule in UNARY])
def test_operations_of_one_operand_hold_in_fractions(name: str) -> None:
    draws, fired = Draws(source(0)), 0
    for _ in range(1000):
        op = drawn(draws)
        found = RULES[name].apply(op)
        if not isinstance(found, tuple):
            continue
        fired += 1
        ties = [Fraction(n, 2) for n in range(-9, 10)]
        if isinstance(op, RoundedFirst):
            if any(Fraction(1) / Fraction(s) != Fraction(1 / s) for s in op.store.scale.tolist()):
                continue  # a reciprocal that f64 rounds
            ties = [tie * Fraction(s) for tie in ties for s in op.store.scale.tolist()]
        for channel in range(3):
            held = {"slopes": Fraction(entry(op.values, channel))} if isinstance(op, Slopes) else {}
            for x in (*draws.numbers(), *ties):
                assert after_all(found, x, channel, held) == defined(op, x, channel), (
                    f"{op} as {found}, x = {x}"
                )
    assert fired >= 50


def in_definition(op: Unary, x: np.ndarray) -> np.ndarray:
    """What the operation is in f32, per tensor."""
    f32 = lambda values: np.float32(entry(values, 0))  # noqa: E731
    match op:
        case Negation():
            return -x
        case Bounds(low, high):
            return np.minimum(np.fmax(x, np.float32(low)), np.float32(high))
        case Decoding(scale, zero):
            return (x - f32(zero)) * f32(scale)
        case RoundedFirst(end):
            return np.clip(np.rint(x / f32(end.scale)) + f32(end.zero_point), end.low, end.high)
    raise AssertionError(op)


FLOATS = np.concatenate(
    [
        np.random.default_rng(0).uniform(-300, 300, 4096),
        [inf, -inf, np.nan, 0.0, -0.0, 1e-45, -3e38],
    ]
).astype(np.float32)


@pytest.mark.parametrize("name", [rule.name for rule in UNARY if rule.float == "bitwise"])
def test_bitwise_operations_of_one_operand(name: str) -> None:
    draws, fired = Draws(source(1), rough=True), 0
    for _ in range(500):
        op = drawn(draws)
        found = RULES[name].apply(op)
        if isinstance(found, tuple):
            fired += 1
            with np.errstate(all="ignore"):
                both = in_definition(op, FLOATS), in_f32(found, FLOATS, 0, {})
            # A NaN has a sign, too, which nothing reads.
            bits = [
                np.where(np.isnan(values), np.float32(np.nan), values + np.float32(0)).view(
                    np.uint32
                )
                for values in both
            ]
            np.testing.assert_array_equal(*bits, err_msg=f"{op} as {found}")
    assert fired >= 20


@pytest.mark.parametrize("name", [rule.name for rule in UNARY if rule.float == "ties"])
def test_quantizers_that_round_first_part_at_ties_only(name: str) -> None:
    draws, fired, parted = Draws(source(2), rough=True), 0, 0
    numbers = np.random.default_rng(2).integers(-600, 600, 2048).astype(np.float32) / 2
    for _ in range(2000):
        op = drawn(draws)
        found = RULES[name].apply(op)
        if not (isinstance(op, RoundedFirst) and isinstance(found, tuple)):
            continue
        fired += 1
        scale = entry(op.store.scale, 0)
        x = numbers * np.float32(scale)
        one, other = in_definition(op, x), in_f32(found, x, 0, {})
        far = one != other
        parted += int(far.sum())
        assert (np.abs(one - other)[far] == 1).all()
        quotients = x[far].astype(np.float64) / scale
        # A quotient by a rounded reciprocal is off by three roundings, a sum with the zero point by
        # one of up to |zero point| more.
        most = 4 * 2.0**-24 * (np.abs(quotients) + abs(entry(op.store.zero_point, 0)))
        assert (np.abs(quotients % 1 - 0.5) <= most).all()
    assert fired >= 50
    assert parted


def test_a_prelu_as_a_maximum_holds_in_fractions() -> None:
    draws = Draws(source(3))
    draw = draws.random.choice
    for _ in range(200):
        kind = draw([None, (DType.U8, draw([0.5, -0.25]), 3.0)])
        given = prelu(
            draw([[0.25, -2.0, 0.5], [1.0, 2.0, 4.0], 0.75] + ([[0.0, 0.5, 1.0]] if kind else [])),
            kind,
        )
        found = PRELU.apply(given)
        assert isinstance(found, tuple)
        for channel in range(3):
            slope = Fraction(entry(given.slopes, channel))
            for held in (Fraction(draws.random.randint(0, 255)), Fraction(0)):
                x = held if kind is None else Fraction(kind[1]) * (held - Fraction(kind[2]))
                wanted = x if x >= 0 else slope * x
                assert after_all(found, x, channel, {"x": held, "factors": slope}) == wanted, (
                    f"{found}, x = {x}"
                )
