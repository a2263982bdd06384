"""Rules that write, fold and place operations: what each becomes, and the refusal with its reason
where it may not.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from laws.formulas import UNIFIED, V2, V3, conv, store
from laws.rule_cases import Fires, Refuses, rule_tests

from fqfuse.composer.formula.definitions import (
    PRODUCT_OF_CODES,
    with_constant,
    with_itself,
    with_tensor,
)
from fqfuse.composer.formula.exact_zeros import EXACT_ZERO
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
from fqfuse.composer.formula.store_rules import (
    NARROW_STORE,
    scale_apart,
    with_factor,
    written_out,
    zero_point_apart,
)
from fqfuse.composer.formula.writing import ADDING, Written, zero_point_in_front
from fqfuse.composer.mapping.scale_propagation import FOLDING
from fqfuse.composer.mapping.to_post_ops import ELTWISE_SCALE, place
from fqfuse.composer.steps.fake_quantize import FAKE_QUANTIZE
from fqfuse.ir.ranges import Ranges
from fqfuse.ir.telling import Told
from fqfuse.ir.types import DType
from fqfuse.plan.attributes import Binary, Eltwise, PostOp, Prelu, Scale, Sum
from fqfuse.plan.targets import Target

MAX = float(np.finfo(np.float32).max)
ADD, ADD_HALF = (Add("skip", DType.U8, 0.5, zero, in_place=True) for zero in (3.0, 1.5))
EACH, ALL_2 = vec([1.0, 2.0, 4.0]), vec(2.0)
RULES = {
    rule.name: rule
    for rule in (
        PRODUCT_OF_CODES,
        *ADDING,
        NARROW_STORE,
        *FOLDING,
        ELTWISE_SCALE,
        EXACT_ZERO,
        FAKE_QUANTIZE,
    )
}


def ranges(low: float, high: float, levels: int = 5) -> Ranges:
    return Ranges(vec(low), vec(high), vec(0.0), vec(2.0), None, levels)


FIRES: Fires = {
    FAKE_QUANTIZE.name: (
        (ranges(-1.0, 1.0), str),
        [
            ScaleBy(vec(2.0)),
            Shift(vec(2.0)),
            Clip(vec(0.0), vec(4.0)),
            Round(),
            ScaleBy(vec(0.5)),
            Shift(vec(0.0)),
        ],
    ),
    PRODUCT_OF_CODES.name: (
        ("div", Add("q", DType.S8, 0.5), True),
        [ScaleBy(vec(2.0)), BinaryOp("div", "q")],
    ),
    "x + k*(q-z) = ((x*(1/k) - z) + q)*k": (
        ([Round(), ADD],),
        Written(
            1, (ScaleBy(vec(2.0)), Shift(vec(-3.0)), BinaryOp("add", "skip"), ScaleBy(vec(0.5)))
        ),
    ),
    "(x+b)*a + k*(q-z) = (((x+b)*(a/k) - z) + q)*k": (
        ([Shift(vec(-7.0)), ScaleBy(vec(0.25)), ADD],),
        Written(
            3,
            (
                EltwiseOp("linear", 1.0, -7.0),
                EltwiseOp("linear", 0.5, -3.0),
                BinaryOp("add", "skip"),
                ScaleBy(vec(0.5)),
            ),
        ),
    ),
    "(x+b)*[a, ...] + k*(q-z) = (((x+b)*[a/k, ...] + q) - z)*k": (
        ([Shift(vec(-7.0)), ScaleBy(EACH), ScaleBy(vec(0.5)), ADD],),
        Written(
            1,
            (
                ScaleBy(vec(2.0)),
                BinaryOp("add", "skip"),
                EltwiseOp("linear", 1.0, -3.0),
                ScaleBy(vec(0.5)),
            ),
        ),
    ),
    NARROW_STORE.name: (
        (store(0.5, 1.0, DType.S8, low=-127),),
        (Clip(vec(-64.0), vec(63.0)), store(0.5, 1.0, DType.S8)),
    ),
    "(a*x + b)*c = (a*c)*x + b*c": (
        (conv(), ScaleBy(ALL_2)),
        conv(scale=vec([1.0, 0.5, 0.25]), bias=vec([2.0, 4.0, 6.0])),
    ),
    "(a*x + b) + c = a*x + (b + c)": ((conv(), Shift(EACH)), conv(bias=vec([2.0, 4.0, 7.0]))),
    EXACT_ZERO.name: (
        (ScaleBy(vec(0.1)), Shift(vec(-0.1 * 128)).then(Shift(vec(10.0))), Told.ANY),
        (Shift(vec(-128.0)), ScaleBy(vec(0.1)), Shift(vec(10.0))),
    ),
    ELTWISE_SCALE.name: (
        (V2, Eltwise("tanh", scale=0.5), ScaleBy(ALL_2)),
        Eltwise("tanh", scale=1.0),
    ),
}

REFUSES: Refuses = {
    FAKE_QUANTIZE.name: [
        ((ranges(-1.0, inf), str), "not finite"),
        ((ranges(1e9, 1e9 + 1), str), "so far from zero"),
    ],
    PRODUCT_OF_CODES.name: [
        ((algorithm, Add("q", DType.U8, 0.5, 3.0), True), "need x twice")
        for algorithm in ("mul", "div")
    ],
    "x + k*(q-z) = ((x*(1/k) - z) + q)*k": [
        (([Add("skip", DType.U8, 1e-40)],), "needs 1/k in f32")
    ],
    "(x+b)*a + k*(q-z) = (((x+b)*(a/k) - z) + q)*k": [
        (([ADD],), "decoded codes"),
        (([EltwiseOp("tanh"), Shift(vec(-7.0)), ScaleBy(vec(0.25)), ADD],), "decoded codes"),
        (([Shift(vec(-7.0)), ScaleBy(EACH), ADD],), "one factor and one shift"),
    ],
    "(x+b)*[a, ...] + k*(q-z) = (((x+b)*[a/k, ...] + q) - z)*k": [
        (([ADD],), "decoded codes"),
        (([Shift(vec(-7.0)), ScaleBy(EACH), Add("skip", DType.U8, 1e-40)],), "needs 1/k in f32"),
    ],
    NARROW_STORE.name: [((store([0.5, -0.5], low=1),), "needs s > 0")],
    "(a*x + b)*c = (a*c)*x + b*c": [
        ((conv(scale=None), ScaleBy(ALL_2)), "no place for a factor"),
        ((conv(per_channel=False), ScaleBy(EACH)), "one scale for the tensor"),
        ((conv(positive=True), ScaleBy(vec(-1.0))), "negated operands"),
        ((conv(bias=None), ScaleBy(ALL_2)), "computed at run time"),
        ((conv(), ScaleBy(vec(1e-38))), "f32 does not hold"),
    ],
    "(a*x + b) + c = a*x + (b + c)": [((conv(bias=None), Shift(ALL_2)), "no place for a shift")],
    EXACT_ZERO.name: [
        ((ScaleBy(vec(0.1)), Shift(vec(-0.1)).then(Shift(vec(10.0))), Told.ZERO), "V is told"),
        ((ScaleBy(vec(0.1)), Shift(vec(0.3141))), "24 bits"),
        ((ScaleBy(vec(1.0)), Shift(vec(16777217.0))), "24 bits"),
    ],
    ELTWISE_SCALE.name: [
        ((V3, Eltwise("tanh"), ScaleBy(ALL_2)), "where that has a scale"),
        ((V2, Binary("mul", "t"), ScaleBy(ALL_2)), "where that has a scale"),
        ((V2, Eltwise("tanh"), ScaleBy(EACH)), "where A stands alone"),
        ((V2, Eltwise("tanh", scale=1e30), ScaleBy(vec(1e30))), "where f32 holds its scale"),
    ],
}


(
    test_every_rule_has_a_place_where_it_fires,
    test_rule_fires,
    test_rule_refuses_with_its_reason,
) = rule_tests(RULES, FIRES, REFUSES)


@pytest.mark.parametrize("rule", [*ADDING, *FOLDING, EXACT_ZERO], ids=lambda rule: rule.name)
def test_rule_says_nothing_elsewhere(rule) -> None:
    other = EltwiseOp("tanh")
    arguments = {**dict.fromkeys(ADDING, ([other],)), **dict.fromkeys(FOLDING, (conv(), other))}
    assert rule.apply(*arguments.get(rule, (other, other))) is None


# -- definitions -----------------------------------------------------------------------------------


def constant(algorithm: str, values: object, *, first: bool = True) -> list[BasicOp]:
    return with_constant(algorithm, vec(values), lambda: f"constant {values}", first=first)


KEPT, READ = Add("t", DType.F32, why_not="read later"), Add("q", DType.S8, 0.5, 3.0, in_place=True)

DEFINED: list[tuple[object, object]] = [
    (with_itself("add"), [ScaleBy(vec(2.0))]),
    (with_itself("mul"), [EltwiseOp("square")]),
    (with_itself("gt"), None),
    (constant("sub", [1.0, 2.0]), [Shift(vec([-1.0, -2.0]))]),
    (constant("sub", 3.0, first=False), [ScaleBy(vec(-1.0)), Shift(vec(3.0))]),
    (constant("div", [2.0, 4.0]), [ScaleBy(vec([0.5, 0.25]))]),
    (constant("div", 3.0, first=False), [EltwiseOp("pow", 3.0, -1.0)]),
    (
        constant("div", [1.0, 2.0], first=False),
        [EltwiseOp("pow", 1.0, -1.0), BinaryOp("mul", "constant [1.0, 2.0]")],
    ),
    (constant("max", 3.0), [Clip(vec(3.0), vec(inf))]),
    (constant("min", 3.0), [Clip(vec(-inf), vec(3.0))]),
    (constant("mul", [0.0, 2.0]), [BinaryOp("mul", "constant [0.0, 2.0]")]),
    (constant("div", [0.0, 2.0]), [BinaryOp("div", "constant [0.0, 2.0]")]),
    (constant("gt", 2.0), [BinaryOp("gt", "constant 2.0")]),
    (with_tensor("sub", KEPT, first=False), [ScaleBy(vec(-1.0)), KEPT]),
    (
        with_tensor("div", KEPT, first=False),
        [EltwiseOp("pow", 1.0, -1.0), BinaryOp("mul", "t")],
    ),
    (with_tensor("sub", KEPT), [BinaryOp("sub", "t")]),
    (with_tensor("sub", READ, first=False), [ScaleBy(vec(-1.0)), READ]),
    (with_tensor("sub", READ), [Add("q", DType.S8, -0.5, 3.0, in_place=True)]),
    (
        zero_point_in_front(ADD_HALF),
        (Shift(vec(-0.75)), Add("skip", DType.U8, 0.5, 0.0, in_place=True)),
    ),
    (
        written_out(store(0.5, 3.0, low=1)),
        [ScaleBy(vec(2.0)), Shift(vec(3.0)), Round(), Clip(vec(1.0), vec(255.0))],
    ),
    (
        written_out(replace(store(0.5, 3.0), exact=True)),
        [ScaleBy(vec(2.0)), Shift(vec(3.0))],
    ),
    (scale_apart(store([0.5, 0.25], 3.0)), (ScaleBy(vec([2.0, 4.0])), store(1.0, 3.0))),
    (zero_point_apart(store(0.5, 1.5)), (Shift(vec(0.75)), store(0.5, 0.0))),
    (with_factor(ScaleBy(vec(4.0)), store(0.5, 3.0)), store(0.125, 3.0)),
    (with_factor(ScaleBy(EACH), store(0.5)), None),
    (with_factor(ScaleBy(ALL_2), store([0.5, 0.25])), None),
    (with_factor(ScaleBy(vec(1e30)), store(1e-20)), None),
    (with_factor(Shift(ALL_2), store(0.5)), None),
]


@pytest.mark.parametrize(("found", "expected"), DEFINED)
def test_what_an_operation_is(found: object, expected: object) -> None:
    """Vectors are equal when they are written alike."""
    assert repr(found) == repr(expected)


# -- post-ops --------------------------------------------------------------------------------------

PLACED: list[tuple[Target, list[BasicOp], list[PostOp]]] = [
    (V3, [ScaleBy(ALL_2), Shift(vec(3.0))], [Eltwise("linear", 2.0, 3.0)]),
    (
        V3,
        [ScaleBy(ALL_2), Shift(EACH)],
        [Eltwise("linear", 2.0, 0.0), Binary("add", "conv/post_op1")],
    ),
    (
        V3,
        [ScaleBy(EACH), Shift(ALL_2)],
        [Binary("mul", "conv/post_op0"), Eltwise("linear", 1.0, 2.0)],
    ),
    (
        V2,
        [EltwiseOp("tanh"), ScaleBy(ALL_2), Shift(EACH)],
        [Eltwise("tanh", scale=2.0), Binary("add", "conv/post_op1")],
    ),
    (
        V2,
        [EltwiseOp("tanh"), ScaleBy(ALL_2), Shift(vec(1.0))],
        [Eltwise("tanh"), Eltwise("linear", 2.0, 1.0)],
    ),
    (V3, [Clip(vec(-inf), vec(inf))], []),
    (V3, [Clip(vec(0.0), vec(inf))], [Eltwise("relu")]),
    (V3, [Clip(vec(0.0), vec(6.0))], [Eltwise("clip", 0.0, 6.0)]),
    (V3, [Clip(vec(-1.0), vec(inf))], [Eltwise("clip", -1.0, MAX)]),
    (V3, [Clip(vec(-1.0), EACH)], [Binary("max", "conv/post_op0"), Binary("min", "conv/post_op1")]),
    (V3, [Clip(vec(-inf), EACH)], [Binary("min", "conv/post_op0")]),
    (V3, [Round()], [Eltwise("round")]),
    (
        V2,
        [EltwiseOp("hardsigmoid", 0.25, 0.5)],
        [Eltwise("linear", 0.25, 0.5), Eltwise("clip", 0.0, 1.0)],
    ),
    (V3, [EltwiseOp("hardsigmoid", 0.25, 0.5)], [Eltwise("hardsigmoid", 0.25, 0.5)]),
    (V3, [EltwiseOp("elu", 0.75)], [Eltwise("elu", 0.75)]),
    (V3, [PreluOp("slope", 2)], [Prelu("slope", 2)]),
    (UNIFIED, [BinaryOp("add", "t", 0.5)], [Binary("add", "t", Scale((0.5,)))]),
    (V3, [ADD], [Sum("skip", 0.5, 3, DType.U8)]),
]


@pytest.mark.parametrize(("target", "ops", "expected"), PLACED)
def test_the_shortest_form_is_placed(
    target: Target, ops: list[BasicOp], expected: list[PostOp]
) -> None:
    """A factor with a shift is one linear, not two; a clip at 0 is a relu."""
    found = place(target, conv(), DType.S8, ops)
    assert isinstance(found, tuple)
    assert [*found[0]] == expected
    assert {*found[2]} == {
        op.operand for op in expected if getattr(op, "operand", "").startswith("conv/")
    }
