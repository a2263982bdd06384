"""Golden cases of rules: what one gives for its arguments, and why it refuses others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from fqfuse.composer.formula.algebra import composed, in_front
from fqfuse.composer.formula.formula import (
    Add,
    BasicOp,
    BinaryOp,
    ChainOp,
    Clip,
    ScaleBy,
    Shift,
    Store,
)
from fqfuse.composer.formula.store_rules import (
    scale_apart,
    with_factor,
    written_out,
    zero_point_apart,
)
from fqfuse.composer.formula.writing import Written, zero_point_in_front
from fqfuse.composer.registry import AnyRule
from fqfuse.ir.rule import Refusal, Rule

Fires = Mapping[str, tuple[tuple[object, ...], object]]
"""The rule's name -> arguments, and what it makes of them."""

Refuses = Mapping[str, Sequence[tuple[tuple[object, ...], str]]]
"""The rule's name -> arguments and a part of the reason, for each case."""


def check_fires(rule: AnyRule, arguments: tuple[object, ...], expected: object) -> None:
    """Vectors are equal when they are written alike."""
    assert repr(rule.apply(*arguments)) == repr(expected)  # type: ignore[arg-type]


def check_refuses(rule: AnyRule, arguments: tuple[object, ...], reason: str) -> None:
    """A refusal says what was needed and what was met."""
    found = rule.apply(*arguments)  # type: ignore[arg-type]
    assert isinstance(found, Refusal)
    assert reason in found.reason
    assert found.expected
    assert found.found


def refusing(cases: Refuses) -> list[tuple[str, tuple[object, ...], str]]:
    """Each case with the rule's name, for parametrize."""
    return [(name, *case) for name, found in cases.items() for case in found]


def rule_tests(
    rules: Mapping[str, AnyRule], fires: Fires, refuses: Refuses
) -> tuple[Callable[..., None], Callable[..., None], Callable[..., None]]:
    """The three tests of a table of rules: each has a place where it fires, fires there, and refuses
    elsewhere with its reason.
    """

    def test_every_rule_has_a_place_where_it_fires() -> None:
        assert fires.keys() == rules.keys()
        assert refuses.keys() <= rules.keys()

    @pytest.mark.parametrize("name", fires)
    def test_rule_fires(name: str) -> None:
        check_fires(rules[name], *fires[name])

    @pytest.mark.parametrize(("name", "arguments", "reason"), refusing(refuses))
    def test_rule_refuses_with_its_reason(
        name: str, arguments: tuple[object, ...], reason: str
    ) -> None:
        check_refuses(rules[name], arguments, reason)

    return (
        test_every_rule_has_a_place_where_it_fires,
        test_rule_fires,
        test_rule_refuses_with_its_reason,
    )


def _where(
    apply: Callable[..., object], fits: Callable[[BasicOp, BasicOp], object]
) -> Callable[..., object]:
    return lambda a, b: apply(a, b) if fits(a, b) else None


def _pair(first: type, second: type) -> Callable[[BasicOp, BasicOp], bool]:
    return lambda a, b: isinstance(a, first) and isinstance(b, second)


ARITHMETIC: tuple[Rule, ...] = (
    Rule(
        "x*1 = x",
        _where(composed, lambda _, b: isinstance(b, ScaleBy) and (b.values == 1).all()),
        float="bitwise",
    ),
    Rule(
        "x+0 = x",
        _where(composed, lambda _, b: isinstance(b, Shift) and not b.values.any()),
        float="bitwise",
    ),
    Rule("x*A*C = x*(A*C)", _where(composed, _pair(ScaleBy, ScaleBy))),
    Rule("x+A+C = x+(A+C)", _where(composed, _pair(Shift, Shift))),
    Rule("(x+B)*C = x*C + B*C", _where(in_front, _pair(Shift, ScaleBy))),
    Rule("(x + k*(dst-z)) + b = (x + b) + k*(dst-z)", _where(in_front, _pair(Add, Shift))),
    Rule("(x + t) + b = (x + b) + t", _where(in_front, _pair(BinaryOp, Shift))),
    Rule(
        "(x * t) * s = (x * s) * t",
        _where(
            in_front,
            lambda a, b: (
                _pair(BinaryOp, ScaleBy)(a, b) and getattr(a, "algorithm", "") in ("mul", "div")
            ),
        ),
    ),
    Rule("clip(x,l,h) + b = clip(x+b,l+b,h+b)", _where(in_front, _pair(Clip, Shift))),
)
"""What is arithmetic, and no rule: held to equality and to a contract all the same."""


def _at_end(
    kind: type, write: Callable[..., Sequence[ChainOp] | None], length: int = 1
) -> Callable[[Sequence[ChainOp]], Written | None]:
    def apply(chain: Sequence[ChainOp]) -> Written | None:
        ops = (
            write(*chain[-length:])
            if len(chain) >= length and isinstance(chain[-1], kind)
            else None
        )
        return None if ops is None else Written(length, tuple(ops))

    return apply


def _joined(factor: ChainOp, store: Store) -> Sequence[ChainOp] | None:
    found = with_factor(factor, store)
    return None if found is None else [found]


STORES_AND_ADDS: tuple[Rule, ...] = (
    Rule(
        "store(x, s, z, l, h) = clip(round(x*(1/s) + z), l, h)",
        _at_end(Store, written_out),
        float="ties",
    ),
    Rule("store(x, s, z) = store(x*(1/s), 1, z)", _at_end(Store, scale_apart), float="ties"),
    Rule("store(x, s, z) = store(x + z*s, s, 0)", _at_end(Store, zero_point_apart), float="ties"),
    Rule("store(x*A, s) = store(x, s/A)", _at_end(Store, _joined, 2), float="ties"),
    Rule("x + k*(q-z) = (x - k*z) + k*q", _at_end(Add, zero_point_in_front)),
)
"""Likewise, about the end of a chain."""
