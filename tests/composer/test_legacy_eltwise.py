"""Rules about the eltwise of oneDNN 2, which has one set of parameters for each algorithm: what
they give, and that it is the same.
"""

from __future__ import annotations

from fractions import Fraction

import pytest
from laws.programs import Draws, source
from laws.rational import binary, eltwise
from laws.rule_cases import Fires, Refuses, rule_tests

from fqfuse.composer.mapping.to_post_ops import SECOND_ELTWISE
from fqfuse.plan.attributes import Eltwise

RULES = {SECOND_ELTWISE.name: SECOND_ELTWISE}

FIRES: Fires = {
    SECOND_ELTWISE.name: (
        (Eltwise("elu", 0.5, scale=3.0), Eltwise("elu", 0.5)),
        (Eltwise("elu", 0.5), ("mul", 3.0)),
    ),
}

REFUSES: Refuses = {
    SECOND_ELTWISE.name: [
        ((Eltwise("elu", 0.5), Eltwise("elu", 0.25)), "the parameters of the first"),
        ((Eltwise("relu", 0.5), Eltwise("relu")), "of the first"),
    ]
}


@pytest.mark.parametrize(
    ("op", "used", "expected"),
    [
        (
            Eltwise("linear", 2.0, 3.0, 4.0),
            Eltwise("linear"),
            (("mul", 2.0), ("add", 3.0), ("mul", 4.0)),
        ),
        (
            Eltwise("clip", -1.0, 6.0, 2.0),
            Eltwise("clip", 0.0, 6.0),
            (("max", -1.0), ("min", 6.0), ("mul", 2.0)),
        ),
    ],
)
def test_others_are_binaries(op: Eltwise, used: Eltwise, expected: object) -> None:
    assert SECOND_ELTWISE.apply(op, used) == expected


(
    test_every_rule_has_a_place_where_it_fires,
    test_rule_fires,
    test_rule_refuses_with_its_reason,
) = rule_tests(RULES, FIRES, REFUSES)


@pytest.mark.parametrize("algorithm", ["linear", "clip", "relu", "abs", "square"])
def test_a_second_eltwise_holds_in_fractions(algorithm: str) -> None:
    draws, fired = Draws(source(7)), 0
    draw = draws.random.choice
    for _ in range(600):
        alpha, beta = {
            "clip": (-1.5, 6.0),
            "linear": (draw([2.0, -0.5]), 3.0),
            "relu": (0.0, 0.0),
        }.get(algorithm, (0.0, 0.0))
        op = Eltwise(algorithm, alpha, beta, draw([1.0, 3.0, -0.5]))
        used = Eltwise(algorithm, alpha, draw([beta, beta + 1]))
        found = SECOND_ELTWISE.apply(op, used)
        if not isinstance(found, tuple):
            continue
        fired += 1
        for x in (*draws.numbers(), Fraction(0), Fraction(-3, 2), Fraction(6)):
            y = x
            for part in found:
                if isinstance(part, Eltwise):
                    y = Fraction(part.scale) * eltwise(part.algorithm, y, part.alpha, part.beta)
                else:
                    y = binary(part[0], y, Fraction(part[1]))
            assert y == Fraction(op.scale) * eltwise(op.algorithm, x, op.alpha, op.beta), (
                f"{op} behind {used} as {found}, x = {x}"
            )
    assert fired >= 50
