"""Rules that compare a chain with codes: what each gives, where it refuses, and that it is what it
claims, on all pairs of codes.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from fractions import Fraction
from math import inf

import numpy as np
import pytest
from laws.formulas import conv, store
from laws.programs import Draws, in_f32, source
from laws.rational import after_all
from laws.rule_cases import Fires, Refuses, rule_tests

from fqfuse.composer.formula.formula import (
    BinaryOp,
    ChainOp,
    CodesOp,
    EltwiseOp,
    Round,
    ScaleBy,
    Shift,
    vec,
)
from fqfuse.composer.formula.writing import Written
from fqfuse.composer.mapping.compared_codes import DECODED_WITH_CODES, DIFFERENCE, on_codes
from fqfuse.composer.mapping.composed import Front
from fqfuse.ir.types import DType

RULES = {rule.name: rule for rule in (DECODED_WITH_CODES, DIFFERENCE)}
CODES = Front("binary", "b", DType.U8, 4)
MAX = float(np.finfo(np.float32).max)


def decoded(zero: float, scale: float) -> list[ChainOp]:
    return [Shift(vec(-zero)), ScaleBy(vec(scale))]


def codes(algorithm: str, scale: float = 0.5, zero: float = 3.0, nothing: str = "") -> CodesOp:
    return CodesOp(algorithm, "q", DType.U8, scale, zero, nothing)


FIRES: Fires = {
    DECODED_WITH_CODES.name: (
        (CODES, [*decoded(5.0, 0.25), codes("gt")]),
        Written(3, (EltwiseOp("linear", 0.5, 0.5), BinaryOp("gt", "q"))),
    ),
    DIFFERENCE.name: (
        (BinaryOp("ge", "t"), lambda: "zero"),
        (BinaryOp("sub", "t"), BinaryOp("ge", "zero")),
    ),
}

REFUSES: Refuses = {
    DECODED_WITH_CODES.name: [
        ((conv(), [*decoded(5.0, 0.25), codes("gt")]), "decoded codes"),
        ((CODES, [Shift(vec([1.0, 2.0, 4.0])), ScaleBy(vec(0.25)), codes("gt")]), "decoded codes"),
        ((CODES, [*decoded(5.0, 2.0**70), codes("gt")]), "decoded codes"),
        ((conv(), [*decoded(5.0, 0.25), codes("max")]), "decoded codes"),
    ],
}


@pytest.mark.parametrize("scale", [0.5, 0.25])
def test_a_maximum_of_decoded_codes_is_decoded_behind(scale: float) -> None:
    linear = EltwiseOp("linear", scale / 0.5, -2.0 if scale == 0.5 else 0.5)
    found = on_codes(CODES, [*decoded(5.0, scale), codes("max")])
    assert repr(found) == repr(Written(3, (linear, BinaryOp("max", "q"), *decoded(3.0, 0.5))))


def test_any_other_chain_is_brought_to_the_grid() -> None:
    turned = (
        ScaleBy(vec(-2.0)),
        EltwiseOp("linear", 1.0, 3.0),
        BinaryOp("sub", "q"),
        BinaryOp("lt", "zero"),
    )
    found = on_codes(conv(), [Round(), codes("gt", -0.5, nothing="zero")])
    assert repr(found) == repr(Written(1, turned))
    maximum = (ScaleBy(vec(2.0)), Shift(vec(3.0)), BinaryOp("max", "q"), *decoded(3.0, 0.5))
    found = on_codes(conv(), [Round(), codes("max")])
    assert repr(found) == repr(Written(1, maximum))


(
    test_every_rule_has_a_place_where_it_fires,
    test_rule_fires,
    test_rule_refuses_with_its_reason,
) = rule_tests(RULES, FIRES, REFUSES)


@pytest.mark.parametrize("name", RULES)
def test_rule_says_nothing_elsewhere(name: str) -> None:
    rule = RULES[name]
    arguments = (
        (BinaryOp("add", "t"), str)
        if rule is DIFFERENCE
        else (conv(), [Round(), BinaryOp("gt", "t")])
    )
    assert rule.apply(*arguments) is None


# -- codes -----------------------------------------------------------------------------------------


def _with_codes(
    draws: Draws, algorithms: Sequence[str], *, rough: bool = False
) -> tuple[Front, list[ChainOp]]:
    draw = draws.random.choice
    scales = [0.1, -0.0371, 0.3] if rough else [0.5, -2.0, 0.25]
    op = codes(
        draw(algorithms),
        draw(scales),
        draw([0.0, 3.0, 127.5]),
        draw(["", "nothing"]) if algorithms[0] == "gt" else "",
    )
    behind = [
        *decoded(draw([0.0, 5.0, 128.0]), op.scale if draw([True, False]) else draw(scales)),
        op,
    ]
    return draw(
        [
            (CODES, behind),
            (CODES, [*decoded(0.0, 1.0), store(0.5, 4.0), *behind]),
            (conv(), [draws._shift(), Round(), op]),
        ]
    )


@pytest.mark.parametrize(
    "algorithms", [("max", "min"), ("gt", "ge", "lt", "le", "eq")], ids=["extremes", "comparisons"]
)
def test_operations_with_codes_hold_in_fractions(algorithms: Sequence[str]) -> None:
    draws, forms = Draws(source(4)), {1: 0, 3: 0}
    for _ in range(800):
        front, chain = _with_codes(draws, algorithms)
        found = on_codes(front, chain)
        forms[found.replaced] += 1
        for _ in range(20):
            x, q = (Fraction(draws.random.randint(0, 255)) for _ in range(2))
            held = {"q": draws.random.choice([x, q]), "nothing": Fraction(0)}
            values = [
                after_all(ops, x, 0, held)
                for ops in (chain, [*chain[: -found.replaced], *found.ops])
            ]
            assert values[0] == values[1], f"x = {x}, {held}: {chain} as {found}"
    assert min(forms.values()) >= 50


PAIRS = np.meshgrid(*[np.arange(256, dtype=np.float32)] * 2)


def _run(ops: Sequence[ChainOp], x: np.ndarray, q: np.ndarray) -> np.ndarray:
    """A chain in f32 with codes q; each operation rounds once."""
    for op in ops:
        match op:
            case CodesOp(algorithm, _, _, scale, zero):
                other = (q - np.float32(zero)) * np.float32(scale)
            case BinaryOp(algorithm, name):
                other = q if name == "q" else np.float32(0)
            case EltwiseOp("linear", alpha, beta):
                x = x * np.float32(alpha) + np.float32(beta)
                continue
            case _:
                x = in_f32([op], x, 0, {})
                continue
        call = {
            "max": np.maximum,
            "min": np.minimum,
            "sub": np.subtract,
            "eq": np.equal,
            "gt": np.greater,
            "lt": np.less,
        }
        call |= {"ge": np.greater_equal, "le": np.less_equal}
        x = call[algorithm](x, other).astype(np.float32)
    return x


def test_the_maximum_of_codes_of_one_scale_is_bitwise() -> None:
    fired, draws = 0, Draws(source(5))
    for _ in range(60):
        front, chain = _with_codes(draws, ("max", "min"), rough=True)
        found = DECODED_WITH_CODES.apply(front, chain)
        scales = {
            op.values[0] if isinstance(op, ScaleBy) else getattr(op, "scale", 0)
            for op in chain[-2:]
        }
        if isinstance(found, Written) and len(scales) == 1:
            fired += 1
            both = [_run(ops, *PAIRS) for ops in (chain, [*chain[: -found.replaced], *found.ops])]
            np.testing.assert_array_equal(*both, err_msg=f"{chain} as {found}")
    assert fired >= 10


def test_comparisons_with_codes_part_where_both_are_equal_within_rounding() -> None:
    """Behind codes that the step reads, a form is only taken where it is exact, see `codes_differ`."""
    fired, parted = {1: 0, 3: 0}, {1: 0, 3: 0}
    draws = Draws(source(6))
    for _ in range(240):
        front, chain = _with_codes(draws, ("gt", "ge", "lt", "le", "eq"), rough=True)
        found = on_codes(front, chain)
        fired[found.replaced] += 1
        one, other = (_run(ops, *PAIRS) for ops in (chain, [*chain[: -found.replaced], *found.ops]))
        op, x = chain[-1], _run(chain[:-1], *PAIRS).astype(np.float64)
        assert isinstance(op, CodesOp)
        apart = np.abs(x - (PAIRS[1] - op.zero_point) * op.scale)
        # Four roundings on either side, of terms up to 256 scales.
        assert (
            apart[one != other] <= 8 * 2.0**-24 * (np.abs(x[one != other]) + 256 * abs(op.scale))
        ).all(), f"{chain} as {found}"
        parted[found.replaced] += int((one != other).sum())
    assert min(fired.values()) >= 20
    assert min(parted.values())


FLOATS = np.concatenate(
    [
        np.random.default_rng(0).uniform(-300, 300, 4096),
        [inf, -inf, np.nan, 0.0, -0.0, 1e-45, -3e38],
    ]
).astype(np.float32)


def test_comparisons_by_difference_are_bitwise() -> None:
    edges = np.asarray(
        [
            0.0,
            1e-45,
            -1e-45,
            1.1754944e-38,
            1.1754942e-38,
            MAX,
            -MAX,
            1.0,
            np.nextafter(np.float32(1), np.float32(2)),
            inf,
        ]
    )
    x, t = np.meshgrid(
        np.concatenate([edges, FLOATS[:64]]).astype(np.float32),
        np.concatenate([-edges, edges, FLOATS[:64]]).astype(np.float32),
    )
    told = ~((x == t) & np.isinf(x))  # two infinities of one sign have no difference
    for algorithm in ("gt", "ge", "lt", "le", "eq"):
        subtraction, comparison = DIFFERENCE.apply(BinaryOp(algorithm, "t"), lambda: "zero")
        assert (subtraction, comparison) == (BinaryOp("sub", "t"), BinaryOp(algorithm, "zero"))
        compare = getattr(operator, algorithm)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(compare(x, t)[told], compare(x - t, np.float32(0))[told])
