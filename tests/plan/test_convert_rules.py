"""Rules from the attributes of oneDNN 2 to those of oneDNN 3: what each gives, where it refuses, and that it is what it claims."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from laws.programs import Draws, source
from laws.rational import after_post_op
from laws.rule_cases import Fires, Refuses, check_fires, check_refuses, refusing

from fqfuse.composer.formula.formula import vec
from fqfuse.plan.attributes import Binary, Eltwise, PostOp, Prelu, Scale, Sum
from fqfuse.plan.conversion.output_scale import OUTPUT_SCALE, UNSCALED, OutputScale, ScaleHome
from fqfuse.plan.conversion.real_domain import REAL, TAKEN_APART, Behind, Real, Scales

RULES = {rule.name: rule for rule in (*OUTPUT_SCALE, UNSCALED, *REAL, TAKEN_APART)}
EACH = Scale((0.5, 0.25), 2)


def output(scale: Scale, *, copied: bool = False, biased: bool = False) -> OutputScale:
    return OutputScale(scale, copied, biased, 1, 4, lambda array: f"{array.tolist()}")


def behind(domain: float, *, constant: bool = True) -> Behind:
    return Behind(domain, lambda operand: f"{operand}*{domain:g}" if constant else None)


def scales(output: object, *, src: float = 0.5, dst: float = 0.25, weighted: bool = True) -> Scales:
    return Scales(vec(output), 1, src, dst, weighted)


FIRES: Fires = {
    "o*x = s*x, s = o": ((output(EACH, copied=True),), ScaleHome({"src": EACH})),
    "o*acc = w*acc, w = o": ((output(EACH),), ScaleHome({"weights": Scale((0.5, 0.25), 1)})),
    "o*(acc + b) = linear(acc + b, o, 0)": ((output(Scale((0.5,)), biased=True),), ScaleHome(post_ops=(Eltwise("linear", 0.5, 0.0),))),
    "[o, ...]*(acc + b) = binary_mul(acc + b, [o, ...])": (
        (output(EACH, biased=True),),
        ScaleHome(post_ops=(Binary("mul", "[[[[0.5]], [[0.25]]]]"),)),
    ),
    "k*f(x) = linear(f(x), k, 0)": ((Eltwise("tanh", scale=3.0),), (Eltwise("tanh"), Eltwise("linear", 3.0, 0.0))),
    "(x + k*(dst-z))*d = x*d + (k*d)*(dst-z)": ((Sum("skip", 0.5, 3), behind(-4.0)), Real(-4.0, (Sum("skip", -2.0, 3),))),
    "prelu(x)*d = prelu(x*d), d > 0": ((Prelu("slope"), behind(4.0)), Real(4.0, (Prelu("slope"),))),
    "(x*t)*d = (x*d)*t": ((Binary("div", "t"), behind(-4.0)), Real(-4.0, (Binary("div", "t"),))),
    "f(x, c)*d = f(x*d, c*d), d > 0": ((Binary("max", "c"), behind(4.0)), Real(4.0, (Binary("max", "c*4"),))),
    "k*relu(x)*d = relu(x*(k*d)), k*d > 0": ((Eltwise("relu", 0.5, scale=-2.0), behind(-4.0)), Real(8.0, (Eltwise("relu", 0.5),))),
    "k*clip(x, l, h)*d = clip(x*(k*d), l*(k*d), h*(k*d)), k*d > 0": (
        (Eltwise("clip", -1.0, 6.0, 2.0), behind(4.0)),
        Real(8.0, (Eltwise("clip", -8.0, 48.0),)),
    ),
    "k*(a*x + b)*d = x*(k*a*d) + b*(k*d), k*a*d > 0": (
        (Eltwise("linear", 3.0, 5.0, 2.0), behind(4.0)),
        Real(24.0, (Eltwise("linear", 1.0, 40.0),)),
    ),
    "k*f(x)*d = linear(f(x), k*d, 0)": (
        (Eltwise("tanh", scale=2.0), behind(4.0)),
        Real(1.0, (Eltwise("tanh"), Eltwise("linear", 8.0, 0.0))),
    ),
    "f(x, t)*d = linear(f(x, t), d, 0)": ((Binary("ge", "t"), behind(4.0)), Real(1.0, (Binary("ge", "t"), Eltwise("linear", 4.0, 0.0)))),
    TAKEN_APART.name: (
        (scales([0.5, 1.0]), 0.25),
        {"src": Scale((0.5,)), "dst": Scale((0.25,)), "weights": Scale((0.25, 0.5), 1)},
    ),
}

REFUSES: Refuses = {
    "o*x = s*x, s = o": [((output(EACH),), "about a reorder")],
    "o*acc = w*acc, w = o": [((output(EACH, biased=True),), "an accumulator alone")],
    "o*(acc + b) = linear(acc + b, o, 0)": [((output(EACH, biased=True),), "needs one o")],
    "k*f(x) = linear(f(x), k, 0)": [((Eltwise("tanh"),), "about a factor")],
    "prelu(x)*d = prelu(x*d), d > 0": [((Prelu("slope"), behind(-4.0)), "above 0")],
    "f(x, c)*d = f(x*d, c*d), d > 0": [
        ((Binary("max", "c"), behind(-4.0)), "above 0"),
        ((Binary("add", "t"), behind(4.0, constant=False)), "needs c*d"),
    ],
    "k*relu(x)*d = relu(x*(k*d)), k*d > 0": [((Eltwise("relu"), behind(-4.0)), "above 0")],
    "k*clip(x, l, h)*d = clip(x*(k*d), l*(k*d), h*(k*d)), k*d > 0": [((Eltwise("clip", 0.0, 6.0, -1.0), behind(4.0)), "above 0")],
    "k*(a*x + b)*d = x*(k*a*d) + b*(k*d), k*a*d > 0": [((Eltwise("linear", -3.0), behind(4.0)), "above 0")],
    TAKEN_APART.name: [
        ((scales(1e-38), 0.25), "leave f32's range"),
        ((scales(3.0, weighted=False), 0.25), "is not the source's scale"),
    ],
}


def test_every_rule_has_a_place_where_it_fires() -> None:
    assert FIRES.keys() == RULES.keys()
    assert REFUSES.keys() <= RULES.keys()


@pytest.mark.parametrize("name", FIRES)
def test_rule_fires(name: str) -> None:
    check_fires(RULES[name], *FIRES[name])


@pytest.mark.parametrize(("name", "arguments", "reason"), refusing(REFUSES))
def test_rule_refuses_with_its_reason(name: str, arguments: tuple[object, ...], reason: str) -> None:
    check_refuses(RULES[name], arguments, reason)


@pytest.mark.parametrize("name", [UNSCALED.name, *(rule.name for rule in REAL[:-1])])
def test_rule_says_nothing_elsewhere(name: str) -> None:
    other = Binary("ge", "t")
    assert RULES[name].apply(*((other,) if name == UNSCALED.name else (other, behind(1.0)))) is None


# -- the same numbers --------------------------------------------------------------------------------------------------------------

SUMS = np.random.default_rng(0).integers(-(2**20), 2**20, 4096).astype(np.float32)  # accumulators with a bias, in f32


@pytest.mark.parametrize("name", [rule.name for rule in OUTPUT_SCALE])
def test_output_scales_keep_their_place_and_the_bits(name: str) -> None:
    """A scale of an argument multiplies the accumulator, or the source, and is the same number; a post-op multiplies what has the bias."""
    rng, fired = np.random.default_rng(1), 0
    for _ in range(200):
        many, copied = bool(rng.integers(2)), bool(rng.integers(2))
        values = tuple(np.float32(v).item() for v in rng.normal(0, 1, 2 if many else 1))
        given = output(Scale(values, 2 if many else 0), copied=copied, biased=not copied and bool(rng.integers(2)))
        found = RULES[name].apply(given)
        if not isinstance(found, ScaleHome):
            continue
        fired += 1
        assert bool(found.scales) != bool(found.post_ops)
        assert not (given.biased and found.scales), "the bias is in what o multiplies"
        assert [scale.values for scale in found.scales.values()] in ([], [values])
        for op in found.post_ops:
            factors = [op.alpha] if isinstance(op, Eltwise) else np.asarray(eval(op.operand)).ravel().tolist()  # noqa: S307
            shift = np.float32(op.beta if isinstance(op, Eltwise) else 0)
            for factor, wanted in zip(factors, values, strict=True):
                bits = [(y + np.float32(0)).view(np.uint32) for y in (SUMS * np.float32(wanted), SUMS * np.float32(factor) + shift)]
                np.testing.assert_array_equal(*bits)
    assert fired >= 20


def test_the_scale_of_an_eltwise_keeps_the_bits() -> None:
    for scale in (3.0, -0.1, 1e-30):
        eltwise, linear = UNSCALED.apply(Eltwise("relu", 0.1, scale=scale))
        assert (eltwise, linear) == (Eltwise("relu", 0.1), Eltwise("linear", scale, 0.0))
        bits = [(y + np.float32(0)).view(np.uint32) for y in (SUMS * np.float32(scale), SUMS * np.float32(scale) + np.float32(0))]
        np.testing.assert_array_equal(*bits)


# -- real numbers ------------------------------------------------------------------------------------------------------------------


def drawn(draws: Draws) -> PostOp:
    draw = draws.random.choice
    scale = draw([1.0, 2.0, -0.5])
    return draw(
        [
            Sum("skip", scale, 3), Prelu("slope"), Binary(draw(["mul", "div", "add", "sub", "max", "min", "gt", "le"]), "other"),
            Eltwise("relu", draw([0.0, 0.25]), scale=scale), Eltwise("abs", scale=scale), Eltwise("clip", -1.5, 6.0, scale),
            Eltwise("linear", draw([2.0, -0.5]), draw([0.0, 3.0]), scale), Eltwise("square", scale=scale), Eltwise("round", scale=scale),
        ]
    )  # fmt: skip


@pytest.mark.parametrize("name", [rule.name for rule in REAL])
def test_post_ops_in_the_real_domain_hold_in_fractions(name: str) -> None:
    draws, fired = Draws(source(0)), 0
    for _ in range(1500):
        op, domain, held = drawn(draws), draws.random.choice([0.5, 4.0, 1.0, -2.0]), draws.operands()
        held["other*"] = held["other"] * Fraction(domain)
        found = RULES[name].apply(op, Behind(domain, lambda operand: f"{operand}*"))
        if not isinstance(found, Real):
            continue
        fired += 1
        for x in (*draws.numbers(), Fraction(0), Fraction(-3, 2), Fraction(6), held["other"]):
            y = Fraction(found.domain) * x
            for part in found.post_ops:
                y = after_post_op(part, y, held)
            assert y == Fraction(domain) * after_post_op(op, x, held), f"{op} in {domain} as {found}, x = {x}, {held}"
    assert fired >= 20


def test_an_output_scale_taken_apart_holds_in_fractions() -> None:
    draw = source(1).choice
    for _ in range(200):
        given = scales([draw([0.5, 3.0, 0.125]), draw([0.25, 5.0])], src=draw([0.5, 2.0]), dst=draw([0.25, 1.0]))
        domain = draw([given.dst, 1.0])
        found = TAKEN_APART.apply(given, domain)
        assert isinstance(found, dict)
        src = Fraction(found["src"].values[0] if "src" in found else 1)
        assert [src * Fraction(w) for w in found["weights"].values] == [Fraction(o) * Fraction(domain) for o in given.output.tolist()]
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
