"""Rules that write, fold and place operations: what each becomes, and the refusal with its reason
where it may not.
"""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from laws.formulas import UNIFIED, V2, V3, conv, store
from laws.rule_cases import Fires, Refuses, check_fires, check_refuses, refusing

from fqfuse.composer.formula.exact_zeros import EXACT_ZERO
from fqfuse.composer.formula.formula import (
    Add,
    BinaryOp,
    Clip,
    EltwiseOp,
    PreluOp,
    Round,
    ScaleBy,
    Shift,
    vec,
)
from fqfuse.composer.formula.operand_rules import (
    OPERANDS,
    WithCodes,
    WithConstant,
    WithItself,
    WithTensor,
)
from fqfuse.composer.formula.writing import WRITING, Written
from fqfuse.composer.mapping.folding import FOLDING
from fqfuse.composer.mapping.placing import PLACING, Placed, Slot
from fqfuse.composer.steps.fake_quantize import FAKE_QUANTIZE
from fqfuse.ir.ranges import Ranges
from fqfuse.ir.types import DType
from fqfuse.plan.attributes import Binary, Eltwise, PostOp, Prelu, Scale, Sum
from fqfuse.plan.targets import Target

MAX = float(np.finfo(np.float32).max)
ADD, ADD_HALF = (Add("skip", DType.U8, 0.5, zero, in_place=True) for zero in (3.0, 1.5))
EACH, ALL_2 = vec([1.0, 2.0, 4.0]), vec(2.0)
RULES = {
    rule.name: rule for rule in (*OPERANDS, *WRITING, *FOLDING, *PLACING, EXACT_ZERO, FAKE_QUANTIZE)
}


def slot(target: Target = V3, last: PostOp | None = None, dst: DType = DType.U8) -> Slot:
    return Slot(target, dst, last, lambda values, behind: f"constant{behind} {values.tolist()}")


def constant(algorithm: str, values: object, *, first: bool = True) -> WithConstant:
    return WithConstant(algorithm, vec(values), lambda: f"constant {values}", first)


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
    "x + x = x*2": ((WithItself("add"),), (ScaleBy(vec(2.0)),)),
    "x*x = square(x)": ((WithItself("mul"),), (EltwiseOp("square"),)),
    "x - c = x + (-c)": ((constant("sub", [1.0, 2.0]),), (Shift(vec([-1.0, -2.0])),)),
    "c - x = x*(-1) + c": (
        (constant("sub", 3.0, first=False),),
        (ScaleBy(vec(-1.0)), Shift(vec(3.0))),
    ),
    "x/c = x*(1/c), c != 0": ((constant("div", [2.0, 4.0]),), (ScaleBy(vec([0.5, 0.25])),)),
    "c/x = pow(x, c, -1)": ((constant("div", 3.0, first=False),), (EltwiseOp("pow", 3.0, -1.0),)),
    "[c, ...]/x = pow(x, 1, -1)*[c, ...]": (
        (constant("div", [1.0, 2.0], first=False),),
        (EltwiseOp("pow", 1.0, -1.0), BinaryOp("mul", "constant [1.0, 2.0]")),
    ),
    "max(x, c) = clip(x, c, inf)": ((constant("max", 3.0),), (Clip(vec(3.0), vec(inf)),)),
    "min(x, c) = clip(x, -inf, c)": ((constant("min", 3.0),), (Clip(vec(-inf), vec(3.0)),)),
    "f(x, c) = f(x, t), t = c": (
        (constant("mul", [0.0, 2.0]),),
        (BinaryOp("mul", "constant [0.0, 2.0]"),),
    ),
    "t - x = x*(-1) + 1*(t-0)": (
        (WithTensor("sub", "t", first=False, why_not="read later"),),
        (ScaleBy(vec(-1.0)), Add("t", DType.F32, why_not="read later")),
    ),
    "t/x = pow(x, 1, -1)*t": (
        (WithTensor("div", "t", first=False),),
        (EltwiseOp("pow", 1.0, -1.0), BinaryOp("mul", "t")),
    ),
    "f(x, t) = binary_f(x, t)": ((WithTensor("sub", "t"),), (BinaryOp("sub", "t"),)),
    "s*(q-z) - x = x*(-1) + s*(q-z)": (
        (WithCodes("sub", "q", DType.S8, 0.5, 3.0, first=False),),
        (ScaleBy(vec(-1.0)), Add("q", DType.S8, 0.5, 3.0, in_place=True)),
    ),
    "x*(s*q) = (x*s)*q": (
        (WithCodes("div", "q", DType.S8, 0.5, 0.0),),
        (ScaleBy(vec(2.0)), BinaryOp("div", "q")),
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
    "x + k*(q-z) = (x - k*z) + k*q": (
        ([ADD],),
        Written(1, (Shift(vec(-1.5)), BinaryOp("add", "skip", 0.5))),
    ),
    "x + k*(dst-z) = (x - k*z) + k*dst, z no integer": (
        ([ADD_HALF],),
        Written(1, (Shift(vec(-0.75)), Add("skip", DType.U8, 0.5, 0.0, in_place=True))),
    ),
    "store(x, s, z, l, h) = clip(round(x*(1/s) + z), l, h)": (
        ([Round(), store(0.5, 3.0, low=1)],),
        Written(1, (ScaleBy(vec(2.0)), Shift(vec(3.0)), Round(), Clip(vec(1.0), vec(255.0)))),
    ),
    "store(x, s, z) = store(x*(1/s), 1, z)": (
        ([store([0.5, 0.25], 3.0)],),
        Written(1, (ScaleBy(vec([2.0, 4.0])), store(1.0, 3.0))),
    ),
    "store(x, s, z) = store(x + z*s, s, 0)": (
        ([store(0.5, 1.5)],),
        Written(1, (Shift(vec(0.75)), store(0.5, 0.0))),
    ),
    "store(x, 1, z) = store(x + z, 1, 0)": (
        ([store(1.0, 1.5)],),
        Written(1, (Shift(vec(1.5)), store(1.0, 0.0))),
    ),
    "store(x, l, h) = store(clip(x, (l-z)*s, (h-z)*s)), s > 0": (
        ([store(0.5, 1.0, DType.S8, low=-127)],),
        Written(1, (Clip(vec(-64.0), vec(63.0)), store(0.5, 1.0, DType.S8))),
    ),
    "store(x*A, s) = store(x, s/A)": (
        ([ScaleBy(vec(4.0)), store(0.5, 3.0)],),
        Written(2, (store(0.125, 3.0),)),
    ),
    "(a*x + b)*c = (a*c)*x + b*c": (
        (conv(), ScaleBy(ALL_2)),
        conv(scale=vec([1.0, 0.5, 0.25]), bias=vec([2.0, 4.0, 6.0])),
    ),
    "(a*x + b) + c = a*x + (b + c)": ((conv(), Shift(EACH)), conv(bias=vec([2.0, 4.0, 7.0]))),
    "x*A - z*A = (x - z)*A, z of 24 bits": (
        (ScaleBy(vec(0.1)), Shift(vec(-0.1 * 128))),
        (Shift(vec(-128.0)), ScaleBy(vec(0.1))),
    ),
    "k*f(x)*A = (k*A)*f(x)": (
        ([ScaleBy(ALL_2), Shift(EACH)], slot(V2, Eltwise("tanh", scale=0.5))),
        Placed(1, (Eltwise("tanh", scale=1.0),), instead=True),
    ),
    "x*A + B = linear(x, A, B)": (
        ([ScaleBy(ALL_2), Shift(vec(3.0))], slot()),
        Placed(2, (Eltwise("linear", 2.0, 3.0),)),
    ),
    "x*A = linear(x, A, 0)": (
        ([ScaleBy(ALL_2), Shift(EACH)], slot()),
        Placed(1, (Eltwise("linear", 2.0, 0.0),)),
    ),
    "x*[a, b, ...] = binary_mul(x, [a, b, ...])": (
        ([ScaleBy(EACH)], slot()),
        Placed(1, (Binary("mul", "constant0 [1.0, 2.0, 4.0]"),)),
    ),
    "x + B = linear(x, 1, B)": (
        ([Shift(vec(3.0))], slot()),
        Placed(1, (Eltwise("linear", 1.0, 3.0),)),
    ),
    "x + [a, b, ...] = binary_add(x, [a, b, ...])": (
        ([Shift(EACH)], slot()),
        Placed(1, (Binary("add", "constant0 [1.0, 2.0, 4.0]"),)),
    ),
    "clip(x, -inf, inf) = x": (([Clip(vec(-inf), vec(inf))], slot()), Placed(1, ())),
    "clip(x, 0, inf) = relu(x)": (
        ([Clip(vec(0.0), vec(inf))], slot()),
        Placed(1, (Eltwise("relu"),)),
    ),
    "clip(x, l, h) = eltwise_clip(x, l, h)": (
        ([Clip(vec(-1.0), vec(inf))], slot()),
        Placed(1, (Eltwise("clip", -1.0, MAX),)),
    ),
    "clip(x, [l, ...], [h, ...]) = binary_min(binary_max(x, [l, ...]), [h, ...])": (
        ([Clip(vec(-1.0), EACH)], slot()),
        Placed(1, (Binary("max", "constant0 [-1.0]"), Binary("min", "constant1 [1.0, 2.0, 4.0]"))),
    ),
    "round(x) = eltwise_round(x)": (([Round()], slot()), Placed(1, (Eltwise("round"),))),
    "hardsigmoid(x, a, b) = clip(linear(x, a, b), 0, 1)": (
        ([EltwiseOp("hardsigmoid", 0.25, 0.5)], slot(V2)),
        Placed(1, (Eltwise("linear", 0.25, 0.5), Eltwise("clip", 0.0, 1.0))),
    ),
    "f(x, a, b) = eltwise_f(x, a, b)": (
        ([EltwiseOp("elu", 0.75)], slot()),
        Placed(1, (Eltwise("elu", 0.75),)),
    ),
    "prelu(x, slope) = prelu post-op(x, slope)": (
        ([PreluOp("slope", 2)], slot()),
        Placed(1, (Prelu("slope", 2),)),
    ),
    "f(x, k*t) = binary_f(x, k*t)": (
        ([BinaryOp("add", "t", 0.5)], slot(UNIFIED)),
        Placed(1, (Binary("add", "t", Scale((0.5,))),)),
    ),
    "x + k*(dst-z) = sum(x, k, z)": (
        ([ADD], slot(dst=DType.S8)),
        Placed(1, (Sum("skip", 0.5, 3, DType.U8),)),
    ),
}

REFUSES: Refuses = {
    FAKE_QUANTIZE.name: [
        ((ranges(-1.0, inf), str), "not finite"),
        ((ranges(1e9, 1e9 + 1), str), "so far from zero"),
    ],
    "x/c = x*(1/c), c != 0": [
        ((constant("mul", [0.0, 2.0]),), "not 0"),
        ((constant("div", [0.0, 2.0]),), "not 0"),
    ],
    "c/x = pow(x, c, -1)": [((constant("div", [1.0, 2.0], first=False),), "for one c")],
    "f(x, c) = f(x, t), t = c": [((constant("sub", 3.0, first=False),), "the chain in front")],
    "f(x, t) = binary_f(x, t)": [((WithTensor("div", "t", first=False),), "the chain in front")],
    "x*(s*q) = (x*s)*q": [
        ((WithCodes(algorithm, "q", DType.U8, 0.5, 3.0),), "need x twice")
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
    "x + k*(dst-z) = (x - k*z) + k*dst, z no integer": [(([ADD],), "takes the zero point")],
    "store(x, 1, z) = store(x + z, 1, 0)": [(([store(0.5, 1.5)],), "needs s = 1")],
    "store(x, l, h) = store(clip(x, (l-z)*s, (h-z)*s)), s > 0": [
        (([store([0.5, -0.5], low=1)],), "needs s > 0")
    ],
    "store(x*A, s) = store(x, s/A)": [
        (([ScaleBy(EACH), store(0.5)],), "needs one A and one s"),
        (([ScaleBy(ALL_2), store([0.5, 0.25])],), "needs one A and one s"),
        (([ScaleBy(vec(1e30)), store(1e-20)],), "needs s/A in f32"),
    ],
    "(a*x + b)*c = (a*c)*x + b*c": [
        ((conv(scale=None), ScaleBy(ALL_2)), "no place for a factor"),
        ((conv(per_channel=False), ScaleBy(EACH)), "one scale for the tensor"),
        ((conv(positive=True), ScaleBy(vec(-1.0))), "negated operands"),
        ((conv(bias=None), ScaleBy(ALL_2)), "computed at run time"),
        ((conv(), ScaleBy(vec(1e-38))), "f32 does not hold"),
    ],
    "(a*x + b) + c = a*x + (b + c)": [((conv(bias=None), Shift(ALL_2)), "no place for a shift")],
    "x*A - z*A = (x - z)*A, z of 24 bits": [
        ((ScaleBy(vec(0.1)), Shift(vec(0.3141))), "24 bits"),
        ((ScaleBy(vec(1.0)), Shift(vec(1000.0))), "24 bits"),
    ],
    "k*f(x)*A = (k*A)*f(x)": [
        (([ScaleBy(ALL_2)], slot(V3, Eltwise("tanh"))), "where that has a scale"),
        (([ScaleBy(ALL_2)], slot(V2, Binary("mul", "t"))), "where that has a scale"),
        (([ScaleBy(EACH)], slot(V2, Eltwise("tanh"))), "where A stands alone"),
        (([ScaleBy(ALL_2), Shift(vec(1.0))], slot(V2, Eltwise("tanh"))), "where A stands alone"),
        (
            ([ScaleBy(vec(1e30))], slot(V2, Eltwise("tanh", scale=1e30))),
            "where f32 holds its scale",
        ),
    ],
    "x*A + B = linear(x, A, B)": [
        (([ScaleBy(EACH), Shift(ALL_2)], slot()), "needs one A and one B"),
        (([ScaleBy(ALL_2), Shift(EACH)], slot()), "needs one A and one B"),
    ],
    "x*A = linear(x, A, 0)": [(([ScaleBy(EACH)], slot()), "needs one A")],
    "x + B = linear(x, 1, B)": [(([Shift(EACH)], slot()), "needs one B")],
    "clip(x, -inf, inf) = x": [(([Clip(vec(-inf), vec(1.0))], slot()), "clip(x, -inf, inf)")],
    "clip(x, 0, inf) = relu(x)": [
        (([Clip(vec(0.0), vec(6.0))], slot()), "relu(x)"),
        (([Clip(EACH, vec(inf))], slot()), "relu(x)"),
    ],
    "clip(x, l, h) = eltwise_clip(x, l, h)": [
        (([Clip(EACH, vec(6.0))], slot()), "needs one l and one h")
    ],
    "hardsigmoid(x, a, b) = clip(linear(x, a, b), 0, 1)": [
        (([EltwiseOp("hardsigmoid", 0.25, 0.5)], slot(V3)), "where the target lacks it")
    ],
    "x + k*(dst-z) = sum(x, k, z)": [(([ADD_HALF], slot()), "needs an integer z")],
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


@pytest.mark.parametrize("name", [name for name in RULES if name != FAKE_QUANTIZE.name])
def test_rule_says_nothing_elsewhere(name: str) -> None:
    rule = RULES[name]
    if rule in OPERANDS:
        assert rule.apply(WithItself("gt")) is None
        return
    nothing = EltwiseOp("tanh")
    other = Round() if name.startswith("f(x, a, b)") else nothing
    arguments = {
        **dict.fromkeys(WRITING, ([other],)),
        **dict.fromkeys(FOLDING, (conv(), other)),
        EXACT_ZERO: (other, other),
    }
    assert rule.apply(*arguments.get(rule, ([other], slot()))) is None


def test_codes_that_are_known_need_no_rounding() -> None:
    rule = RULES["store(x, s, z, l, h) = clip(round(x*(1/s) + z), l, h)"]
    end = store(0.5, 3.0)
    known = type(end)(end.dtype, end.scale, end.zero_point, end.low, end.high, exact=True)
    assert repr(rule.apply([known])) == repr(Written(1, (ScaleBy(vec(2.0)), Shift(vec(3.0)))))


def test_the_first_placing_rule_that_fires_is_the_shortest_form() -> None:
    """More general ones stand behind: a factor with a shift is one linear, not two; a clip at 0 is
    a relu.
    """
    firsts = {}
    for name, (arguments, _) in FIRES.items():
        if RULES[name] in PLACING:
            firsts[name] = next(
                rule.name for rule in PLACING if isinstance(rule.apply(*arguments), Placed)
            )
    assert all(name == first for name, first in firsts.items())
