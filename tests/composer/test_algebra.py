"""Every rule of the algebra: exact as an identity of rational numbers, as close in f32 as it
claims, refused where it would be wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws.rational import after_all, entry
from laws.rule_cases import ARITHMETIC

from fqfuse.composer.formula.algebra import COMMUTING, SIMPLIFYING, merged, simplify
from fqfuse.composer.formula.formula import (
    Add,
    BasicOp,
    BinaryOp,
    Clip,
    EltwiseOp,
    PreluOp,
    Round,
    ScaleBy,
    Shift,
    vec,
)
from fqfuse.composer.mapping.scale_propagation import forward
from fqfuse.ir.rule import Refusal, Rule
from fqfuse.ir.types import DType

CHANNELS = 3
MANY = settings(max_examples=4 * settings.default.max_examples)
RULES: dict[str, Rule] = {rule.name: rule for rule in (*SIMPLIFYING, *COMMUTING, *ARITHMETIC)}


def rule_of(case: str) -> Rule:
    """The rule of a case: of one rule there may be several, each with a word of its own behind."""
    return RULES[case.split(" | ", maxsplit=1)[0]]


def names(cases: Iterable[str]) -> set[str]:
    return {rule_of(case).name for case in cases}


# Numbers of few bits: the rules form constants in f64, which is exact for them, so that the
# identity must hold to the last bit.
factors = st.sampled_from([0.5, 2.0, 0.25, 4.0, -1.0, -0.5, -2.0, 1.0])
shifts = st.integers(-24, 24).map(lambda n: n / 8)
slopes = st.integers(-16, 16).map(lambda n: n / 8)
numbers = st.fractions(-40, 40, max_denominator=64)


def vectors(entries: st.SearchStrategy[float]) -> st.SearchStrategy[np.ndarray]:
    """One entry, or one for each channel."""
    return entries.map(vec) | st.lists(entries, min_size=CHANNELS, max_size=CHANNELS).map(vec)


@st.composite
def clips(draw: st.DrawFn) -> Clip:
    low, width = draw(vectors(shifts)), draw(vectors(st.integers(0, 24).map(lambda n: n / 8)))
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return Clip(vec(-math.inf), low)
    return Clip(low, vec(math.inf)) if kind == 1 else Clip(low, vec(low + width))


scale_bys = vectors(factors).map(ScaleBy)
shift_bys = vectors(shifts).map(Shift)
relus = st.sampled_from([EltwiseOp("relu"), EltwiseOp("relu", 0.125), EltwiseOp("relu", -0.5)])
prelus = st.just(PreluOp("slope", 2))
binaries = st.sampled_from(["add", "sub", "mul", "div", "max", "min"]).map(
    lambda algorithm: BinaryOp(algorithm, "other")
)
scaled_binaries = st.builds(
    BinaryOp, st.sampled_from(["add", "sub"]), st.just("other"), st.sampled_from([0.5, -2.0, 4.0])
)
adds = st.builds(
    Add,
    st.just("skip"),
    st.sampled_from([DType.U8, DType.S8]),
    factors,
    st.integers(-3, 130).map(float),
    st.booleans(),
)
others = st.sampled_from(
    [EltwiseOp("abs"), EltwiseOp("square"), EltwiseOp("hardswish", 0.125, 0.5), Round()]
)
operations = st.one_of(
    scale_bys, shift_bys, clips(), relus, prelus, binaries, scaled_binaries, adds, others
)

eighths = st.sampled_from([Fraction(n, 8) for n in range(-16, 17) if n])
operands = st.fixed_dictionaries(
    {"slope": slopes.map(Fraction), "other": eighths, "skip": st.integers(0, 255).map(Fraction)}
)


def meaning(
    ops: list[BasicOp] | tuple[BasicOp, ...], x: Fraction, held: dict[str, Fraction]
) -> list[Fraction]:
    """What a chain computes, for each channel."""
    return [after_all(ops, x, channel, held) for channel in range(CHANNELS)]


_A, _B, _NEGATIVE = (
    ScaleBy(vec([0.5, 2.0, -1.0])),
    Shift(vec([1.0, -2.0, 0.25])),
    ScaleBy(vec(-2.0)),
)
_POSITIVE = ScaleBy(vec([0.5, 2.0, 4.0]))
_SUM = Add("skip", DType.U8, 0.5, 3.0, in_place=True)
_CLIP = Clip(vec(-1.0), vec([1.0, 2.0, math.inf]))

FIRES: dict[str, tuple[BasicOp, BasicOp]] = {
    "x*A*C = x*(A*C)": (_A, _POSITIVE),
    "x+A+C = x+(A+C)": (_B, Shift(vec(3.0))),
    "(x+B)*C = x*C + B*C": (_B, _A),
    "clip(clip(x,a,b),c,d) = clip(x,clip(a,c,d),clip(b,c,d))": (_CLIP, Clip(vec(0.5), vec(7.0))),
    "clip(clip(x,a,b),c,d) = clip(x,clip(a,c,d),clip(b,c,d)) | relu": (EltwiseOp("relu"), _CLIP),
    "f(f(x)) = f(x), f = relu, round": (EltwiseOp("relu"), EltwiseOp("relu")),
    "x*1 = x": (Round(), ScaleBy(vec(1.0))),
    "x+0 = x": (Round(), Shift(vec(0.0))),
    "f(f(x)) = f(x), f = relu, round | round": (Round(), Round()),
    "round(clip(x,a,b)) = clip(round(x),round(a),round(b))": (_CLIP, Round()),
    "clip(x,l,h) + b = clip(x+b,l+b,h+b)": (_CLIP, _B),
    "round(x) + n = round(x + n), n even": (Round(), Shift(vec([2.0, -4.0, 0.0]))),
    "f(x)*s = f(x*s), f = relu, prelu, clip, s > 0": (EltwiseOp("relu", 0.125), _POSITIVE),
    "f(x)*s = f(x*s), f = relu, prelu, clip, s > 0 | prelu": (PreluOp("slope", 2), _POSITIVE),
    "f(x)*s = f(x*s), f = relu, prelu, clip, s > 0 | clip": (_CLIP, _POSITIVE),
    "(x + k*t)*s = x*s + k*s*t | sum": (_SUM, _NEGATIVE),
    "(x + k*(dst-z)) + b = (x + b) + k*(dst-z)": (_SUM, _B),
    "(x + t) + b = (x + b) + t": (BinaryOp("sub", "other"), _B),
    "(x + k*t)*s = x*s + k*s*t": (BinaryOp("add", "other", 0.5), _NEGATIVE),
    "(x + k*t)*s = x*s + k*s*t | of channels": (BinaryOp("add", "other", 0.5), _A),
    "(x * t) * s = (x * s) * t": (BinaryOp("div", "other"), _A),
    "x*A + B = (x + B/A)*A": (_A, _B),
}

REFUSES: dict[str, tuple[BasicOp, BasicOp, str]] = {
    "f(x)*s = f(x*s), f = relu, prelu, clip, s > 0": (EltwiseOp("relu"), _A, "needs s > 0"),
    "f(x)*s = f(x*s), f = relu, prelu, clip, s > 0 | prelu": (
        PreluOp("slope", 2),
        _NEGATIVE,
        "needs s > 0",
    ),
    "f(x)*s = f(x*s), f = relu, prelu, clip, s > 0 | clip": (_CLIP, _NEGATIVE, "needs s > 0"),
    "(x + k*t)*s = x*s + k*s*t": (_SUM, _A, "needs one s"),
    "x*A + B = (x + B/A)*A": (ScaleBy(vec([1.0, 0.0, 2.0])), _B, "needs A != 0"),
    "round(x) + n = round(x + n), n even": (Round(), Shift(vec(3.0)), "needs even n"),
}


def test_every_rule_has_a_place_where_it_fires() -> None:
    assert names(FIRES) == RULES.keys()


@pytest.mark.parametrize("name", FIRES)
def test_rule_fires(name: str) -> None:
    found = rule_of(name).apply(*FIRES[name])
    assert isinstance(found, tuple)
    assert len(found) <= 2


@pytest.mark.parametrize("name", REFUSES)
def test_rule_refuses_with_its_reason(name: str) -> None:
    a, b, reason = REFUSES[name]
    found = rule_of(name).apply(a, b)
    assert isinstance(found, Refusal)
    assert reason in found.reason
    assert found.expected
    assert found.found


@pytest.mark.parametrize("name", RULES)
def test_rule_says_nothing_elsewhere(name: str) -> None:
    assert RULES[name].apply(Round(), EltwiseOp("tanh")) is None


@pytest.mark.parametrize(
    ("rule", "pair"),
    [
        ("x*A*C = x*(A*C)", (ScaleBy(vec(1e25)), ScaleBy(vec(1e25)))),
        ("x*A*C = x*(A*C)", (ScaleBy(vec(1e-25)), ScaleBy(vec(1e-25)))),
        ("(x+B)*C = x*C + B*C", (Shift(vec(1e25)), ScaleBy(vec(1e25)))),
        ("x*A + B = (x + B/A)*A", (ScaleBy(vec(1e-25)), Shift(vec(1e25)))),
        (
            "round(clip(x,a,b)) = clip(round(x),round(a),round(b))",
            (Clip(vec(1.5 - 2.0**-40), vec(7.0)), Round()),
        ),
        (
            "round(clip(x,a,b)) = clip(round(x),round(a),round(b))",
            (Clip(vec(0.0), vec([2.5 + 2.0**-40, 7.0, 7.0])), Round()),
        ),
        # the quantizer's rounding stays: its codes of -0 decode to +0
        ("f(f(x)) = f(x), f = relu, round", (Round(to_codes=False), Round())),
    ],
)
def test_rule_leaves_what_f32_does_not_hold(rule: str, pair: tuple[BasicOp, BasicOp]) -> None:
    assert RULES[rule].apply(*pair) is None


# -- in f32 ----------------------------------------------------------------------------------------


def in_f32(
    ops: tuple[BasicOp, ...], x: np.float32, channel: int, held: dict[str, np.float32]
) -> tuple[np.float32, float]:
    """What a chain computes when every operation rounds to f32, and the largest magnitude on the
    way.
    """
    y, largest = x, abs(float(x))
    for op in ops:
        if isinstance(op, ScaleBy):
            y = y * np.float32(entry(op.values, channel))
        elif isinstance(op, Shift):
            largest = max(largest, abs(entry(op.values, channel)))
            y = y + np.float32(entry(op.values, channel))
        elif isinstance(op, Clip):
            y = min(max(y, np.float32(entry(op.low, channel))), np.float32(entry(op.high, channel)))
        elif isinstance(op, Round):
            y = np.rint(y)
        elif isinstance(op, EltwiseOp):
            y = y if y > 0 else y * np.float32(op.alpha)
        elif isinstance(op, PreluOp):
            y = y if y >= 0 else y * held[op.operand]
        elif isinstance(op, BinaryOp):
            other = held[op.operand] * np.float32(op.scale)
            y = {"add": y + other, "sub": y - other, "mul": y * other, "div": y / other}[
                op.algorithm
            ]
            largest = max(largest, abs(float(other)))
        else:
            assert isinstance(op, Add)
            other = np.float32(op.scale) * (held[op.operand] - np.float32(op.zero_point))
            y = y + other
            largest = max(largest, abs(float(other)))
        largest = max(largest, abs(float(y)))
    return np.float32(y), largest


Pair = tuple[st.SearchStrategy[BasicOp], st.SearchStrategy[BasicOp]]


def pairs(
    any_factor: st.SearchStrategy[float], any_shift: st.SearchStrategy[float]
) -> dict[str, Pair]:
    """For each rule the neighbours that it is about."""
    scale, shift, positive = (
        vectors(any_factor).map(ScaleBy),
        vectors(any_shift).map(Shift),
        vectors(any_factor.map(abs)).map(ScaleBy),
    )
    one = any_factor.map(lambda value: ScaleBy(vec(value)))
    relu, plus_minus, times_over = st.just(EltwiseOp("relu")), ("add", "sub"), ("mul", "div")

    def named(algorithms: tuple[str, ...]) -> st.SearchStrategy[BinaryOp]:
        return st.sampled_from([BinaryOp(algorithm, "other") for algorithm in algorithms])

    return {
        "x*A*C = x*(A*C)": (scale, scale),
        "x+A+C = x+(A+C)": (shift, shift),
        "(x+B)*C = x*C + B*C": (shift, scale),
        "clip(clip(x,a,b),c,d) = clip(x,clip(a,c,d),clip(b,c,d))": (clips(), clips()),
        "clip(clip(x,a,b),c,d) = clip(x,clip(a,c,d),clip(b,c,d)) | relu": (relu, clips()),
        "f(f(x)) = f(x), f = relu, round": (relu, relu),
        "x*1 = x": (relus, st.just(ScaleBy(vec([1.0, 1.0, 1.0])))),
        "x+0 = x": (relus, st.just(Shift(vec(0.0)))),
        "f(f(x)) = f(x), f = relu, round | round": (st.just(Round()), st.just(Round())),
        "round(clip(x,a,b)) = clip(round(x),round(a),round(b))": (clips(), st.just(Round())),
        "clip(x,l,h) + b = clip(x+b,l+b,h+b)": (clips(), shift),
        "round(x) + n = round(x + n), n even": (
            st.just(Round()),
            vectors(st.integers(-50, 50).map(lambda n: 2.0 * n)).map(Shift),
        ),
        "f(x)*s = f(x*s), f = relu, prelu, clip, s > 0": (relus, positive),
        "f(x)*s = f(x*s), f = relu, prelu, clip, s > 0 | prelu": (prelus, positive),
        "f(x)*s = f(x*s), f = relu, prelu, clip, s > 0 | clip": (clips(), positive),
        "(x + k*t)*s = x*s + k*s*t | sum": (adds, one),
        "(x + k*(dst-z)) + b = (x + b) + k*(dst-z)": (adds, shift),
        "(x + t) + b = (x + b) + t": (named(plus_minus), shift),
        "(x + k*t)*s = x*s + k*s*t": (scaled_binaries, one),
        "(x * t) * s = (x * s) * t": (named(times_over), scale),
        "x*A + B = (x + B/A)*A": (scale, shift),
    }


def one_of(table: dict[str, Pair]) -> st.SearchStrategy[tuple[Rule, BasicOp, BasicOp]]:
    """A rule with neighbours that it is about."""
    return st.sampled_from(sorted(table)).flatmap(
        lambda name: st.tuples(st.just(rule_of(name)), *table[name])
    )


EXACT = pairs(factors, shifts)


def _of_either_sign(values: st.SearchStrategy[float]) -> st.SearchStrategy[float]:
    return st.tuples(values, st.sampled_from([1, -1])).map(math.prod)


# Shifts too far apart for one f32 stay two, and what is subnormal rounds by more than its 24th bit.
ROUNDED = pairs(
    _of_either_sign(st.floats(2**-7, 128, width=32)),
    _of_either_sign(st.just(0.0) | st.floats(2**-7, 100, width=32)),
)


@pytest.mark.parametrize("table", [EXACT, ROUNDED], ids=["exact", "rounded"])
def test_every_rule_is_drawn(table: dict[str, Pair]) -> None:
    assert names(table) == RULES.keys()


@given(case=one_of(EXACT), x=numbers, held=operands)
@MANY
def test_rule_is_an_identity_of_rational_numbers(
    case: tuple[Rule, BasicOp, BasicOp], x: Fraction, held: dict[str, Fraction]
) -> None:
    rule, a, b = case
    found = rule.apply(a, b)
    assert rule.real == "identity"
    assert isinstance(found, tuple)
    assert meaning(found, x, held) == meaning((a, b), x, held)


@given(
    case=one_of(ROUNDED),
    x=_of_either_sign(st.just(0.0) | st.floats(2**-20, 1000, width=32)),
    held=operands,
)
@MANY
def test_rule_holds_in_f32_as_it_claims(
    case: tuple[Rule, BasicOp, BasicOp], x: float, held: dict[str, Fraction]
) -> None:
    rule, a, b = case
    found, start = rule.apply(a, b), np.float32(x)
    assert isinstance(found, tuple)
    arrays = {key: np.float32(float(value)) for key, value in held.items()}
    for channel in range(CHANNELS):
        before, most = in_f32((a, b), start, channel, arrays)
        then, also = in_f32(found, start, channel, arrays)
        if rule.float == "bitwise":
            assert before == then  # only -0 and 0 may take each other's place
        elif rule.float == "ties":
            near = abs(abs(x - math.floor(x)) - 0.5) <= 2.0**-23 * max(most, also)
            assert abs(float(before) - float(then)) <= (1 if near else 0)
        else:
            # Each side rounds at most four times, and its constants once, relative to an
            # intermediate that a factor behind may enlarge.
            factor = max(
                1.0,
                *(abs(entry(op.values, channel)) for op in (a, b) if isinstance(op, ScaleBy)),
                1.0,
            )
            assert abs(float(before) - float(then)) <= 8 * 2.0**-24 * max(most, also) * factor


# -- whole chains ----------------------------------------------------------------------------------

chains = st.lists(operations, max_size=7)


@given(ops=chains, x=numbers, held=operands)
def test_simplify_keeps_the_meaning(
    ops: list[BasicOp], x: Fraction, held: dict[str, Fraction]
) -> None:
    assert meaning(simplify(ops), x, held) == meaning(ops, x, held)


@given(ops=chains)
def test_simplify_twice_is_once(ops: list[BasicOp]) -> None:
    once = simplify(ops)
    assert [repr(op) for op in simplify(once)] == [repr(op) for op in once]


@given(ops=chains)
def test_simplify_leaves_no_two_neighbours_that_join(ops: list[BasicOp]) -> None:
    once = simplify(ops)
    for a, b in pairwise(once):
        assert merged(a, b) is None
    assert not any(isinstance(op, ScaleBy) and (op.values == 1).all() for op in once)
    assert not any(isinstance(op, Shift) and not op.values.any() for op in once)


@given(ops=chains, op=scale_bys | shift_bys, x=numbers, held=operands)
def test_moving_forward_keeps_the_meaning(
    ops: list[BasicOp], op: ScaleBy | Shift, x: Fraction, held: dict[str, Fraction]
) -> None:
    moved, joint = forward(ops, op)
    if isinstance(moved, list):
        assert isinstance(moved[0], ScaleBy | Shift)
        assert len(moved) == len(ops) + 1
        assert meaning(moved, x, held) == meaning([*ops, op], x, held)
    if joint is not None:
        assert isinstance(joint[0][joint[1]], ScaleBy | Shift)
        assert meaning(joint[0], x, held) == meaning([*ops, op], x, held)


def test_moving_forward_says_why_a_factor_stays() -> None:
    found, _ = forward([EltwiseOp("relu")], _NEGATIVE)
    assert isinstance(found, Refusal)
    assert found.expected == "s > 0"
    assert forward([EltwiseOp("tanh")], _NEGATIVE)[0] is None, "nothing a user could change"


def test_moving_forward_changes_nothing_in_place() -> None:
    ops: list[BasicOp] = [EltwiseOp("relu")]
    forward(ops, _POSITIVE)
    assert ops == [EltwiseOp("relu")]
