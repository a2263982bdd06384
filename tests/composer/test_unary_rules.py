"""Rules about one operand, and about vectors: what each gives, where it refuses, and that it is
what it claims.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import inf

import numpy as np
import pytest
from laws.build import Net
from laws.formulas import V3, conv, store
from laws.programs import Draws, in_f32, source
from laws.rational import after_all, entry
from laws.rule_cases import Fires, Refuses, rule_tests

from fqfuse.composer.formula.definitions import ROUNDED_FIRST, rounded_first
from fqfuse.composer.formula.formula import (
    BinaryOp,
    ChainOp,
    Clip,
    CodesOp,
    EltwiseOp,
    PreluOp,
    ScaleBy,
    Store,
    decoding,
    vec,
)
from fqfuse.composer.mapping.post_ops_composer import PostOpsComposer
from fqfuse.composer.steps.chain import operations_of
from fqfuse.composer.steps.prelu import PRELU, PreluOfSource
from fqfuse.composer.steps.two_operands import End
from fqfuse.ir.types import DType

RULES = {rule.name: rule for rule in (ROUNDED_FIRST, PRELU)}
EACH = vec([1.0, 2.0, 4.0])


def prelu(values: object, codes: tuple[DType, float, float] | None = None) -> PreluOfSource:
    return PreluOfSource(vec(values), "x", codes, lambda: "factors")


FIRES: Fires = {
    ROUNDED_FIRST.name: ((store(0.5, 4.0),), store(0.5, 4.0)),
    PRELU.name: (
        (prelu([0.5, 0.0], (DType.S8, 0.25, 3.0)),),
        (BinaryOp("mul", "factors"), CodesOp("max", "x", DType.S8, 0.25, 3.0)),
    ),
}

REFUSES: Refuses = {
    ROUNDED_FIRST.name: [
        ((store(0.5, 3.0),), "needs an even z"),
        ((store(0.5, [2.0, 3.0, 4.0]),), "needs an even z"),
    ],
    PRELU.name: [((prelu([0.5, 1.5]),), "needs a <= 1"), ((prelu([0.5, 0.0]),), "needs a <= 1")],
}


(
    test_every_rule_has_a_place_where_it_fires,
    test_rule_fires,
    test_rule_refuses_with_its_reason,
) = rule_tests(RULES, FIRES, REFUSES)


def test_equal_entries_serve_each_channel_alike() -> None:
    for values in (np.asarray([0.3] * 3), np.asarray([-inf] * 3), np.asarray([0.7])):
        found = vec(values)
        assert found.size == 1
        assert all(
            entry(found, channel) == entry(values, channel) for channel in range(values.size)
        )
    assert vec(EACH).size == 3


# -- one operand -----------------------------------------------------------------------------------


def written(op: str, *constants: object, **attrs: object) -> list[ChainOp]:
    """The basic operations of a node behind a convolution of three channels."""
    n = Net()
    x = n.input(("N", 3, 4, 4))
    y = n.op(op, x, *(np.asarray(value, np.float32) for value in constants), **attrs)
    graph = n.done(y)
    node = graph.producer(graph.outputs[0])
    assert node is not None
    found = operations_of(End(graph, node, node.inputs[0], PostOpsComposer(V3, conv()), node))
    assert isinstance(found, tuple)
    return found[0]


UNARY: dict[str, tuple[list[ChainOp], list[ChainOp], Callable[[Fraction], Fraction]]] = {
    "-x": (written("Neg"), [ScaleBy(vec(-1.0))], lambda x: -x),
    "x^2": (written("Pow", 2.0), [EltwiseOp("square")], lambda x: x * x),
    "x^3": (written("Pow", 3.0), [EltwiseOp("pow", 1.0, 3.0)], lambda x: x**3),
    "clip": (
        written("Clip", -1.5, 6.0),
        [Clip(vec(-1.5), vec(6.0))],
        lambda x: min(max(x, Fraction(-3, 2)), Fraction(6)),
    ),
    "bounds in the wrong order": (
        written("Clip", 4.0, 1.0),
        [Clip(vec(1.0), vec(1.0))],
        lambda x: min(max(x, Fraction(4)), Fraction(1)),
    ),
    "one slope": (
        written("PRelu", [[[0.5]], [[0.5]], [[0.5]]]),
        [EltwiseOp("relu", 0.5)],
        lambda x: x if x >= 0 else x / 2,
    ),
}


@pytest.mark.parametrize("name", UNARY)
def test_operations_of_one_operand_hold_in_fractions(name: str) -> None:
    found, expected, defined = UNARY[name]
    assert repr(found) == repr(expected)
    ties = [Fraction(n, 2) for n in range(-9, 10)]
    for x in (*Draws(source(0)).numbers(), *ties):
        assert after_all(found, x, 0, {}) == defined(x), f"{found}, x = {x}"


def test_a_slope_for_each_channel_is_a_prelu() -> None:
    (found,) = written("PRelu", EACH.reshape(3, 1, 1))
    assert isinstance(found, PreluOp)
    assert found.mask == 2


def test_codes_are_decoded_exactly() -> None:
    draws = Draws(source(0))
    for _ in range(100):
        scale, zero = draws._scale().values, draws._shift().values
        for channel in range(3):
            for x in draws.numbers():
                wanted = (x - Fraction(entry(zero, channel))) * Fraction(entry(scale, channel))
                assert after_all(decoding(scale, zero), x, channel, {}) == wanted


FLOATS = np.concatenate(
    [
        np.random.default_rng(0).uniform(-300, 300, 4096),
        [inf, -inf, np.nan, 0.0, -0.0, 1e-45, -3e38],
    ]
).astype(np.float32)


def same_bits(one: np.ndarray, other: np.ndarray) -> None:
    """A NaN has a sign, too, which nothing reads; and so has a zero."""
    bits = [
        np.where(np.isnan(values), np.float32(np.nan), values + np.float32(0)).view(np.uint32)
        for values in (one, other)
    ]
    np.testing.assert_array_equal(*bits)


def test_negations_and_clips_are_bitwise() -> None:
    f32 = np.float32
    with np.errstate(all="ignore"):
        same_bits(in_f32(UNARY["-x"][0], FLOATS, 0, {}), -FLOATS)
        for name, low, high in (("clip", -1.5, 6.0), ("bounds in the wrong order", 4.0, 1.0)):
            wanted = np.minimum(np.fmax(FLOATS, f32(low)), f32(high))
            same_bits(in_f32(UNARY[name][0], FLOATS, 0, {}), wanted)


def test_decoding_is_bitwise() -> None:
    draws = Draws(source(1), rough=True)
    for _ in range(100):
        scale, zero = draws._scale().values, draws._shift().values
        with np.errstate(all="ignore"):
            wanted = (FLOATS - np.float32(zero[0])) * np.float32(scale[0])
            same_bits(in_f32(decoding(scale, zero), FLOATS, 0, {}), wanted)


# -- quantizers that round first -------------------------------------------------------------------


def drawn(draws: Draws) -> Store:
    end = draws._store()
    return Store(end.dtype, end.scale, vec(np.rint(end.zero_point)), end.low, end.high)


def test_quantizers_that_round_first_hold_in_fractions() -> None:
    draws, stores = Draws(source(0)), 0
    for _ in range(400):
        end = drawn(draws)
        if any(Fraction(1) / Fraction(s) != Fraction(1 / s) for s in end.scale.tolist()):
            continue  # a reciprocal that f64 rounds
        found = rounded_first(end)
        stores += len(found) == 1
        ties = [Fraction(n, 2) * Fraction(s) for n in range(-9, 10) for s in end.scale.tolist()]
        for channel in range(3):
            scale, zero = (
                Fraction(entry(values, channel)) for values in (end.scale, end.zero_point)
            )
            for x in (*draws.numbers(), *ties):
                wanted = min(max(round(x / scale) + zero, end.low), end.high)
                assert after_all(found, x, channel, {}) == wanted, f"{end} as {found}, x = {x}"
    assert 50 <= stores <= 350


def test_quantizers_that_round_first_part_at_ties_only() -> None:
    draws, fired, parted = Draws(source(2), rough=True), {1: 0, 3: 0}, {1: 0, 3: 0}
    numbers = np.random.default_rng(2).integers(-600, 600, 2048).astype(np.float32) / 2
    for _ in range(400):
        end = drawn(draws)
        found = rounded_first(end)
        fired[len(found)] += 1
        scale, zero = np.float32(entry(end.scale, 0)), np.float32(entry(end.zero_point, 0))
        x = numbers * scale
        one, other = np.clip(np.rint(x / scale) + zero, end.low, end.high), in_f32(found, x, 0, {})
        far = one != other
        parted[len(found)] += int(far.sum())
        assert (np.abs(one - other)[far] == 1).all()
        quotients = x[far].astype(np.float64) / entry(end.scale, 0)
        # A quotient by a rounded reciprocal is off by three roundings, a sum with the zero point by
        # one of up to |zero point| more.
        most = 4 * 2.0**-24 * (np.abs(quotients) + abs(entry(end.zero_point, 0)))
        assert (np.abs(quotients % 1 - 0.5) <= most).all()
    assert min(fired.values()) >= 50
    assert min(parted.values())


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
