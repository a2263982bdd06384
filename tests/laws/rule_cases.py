"""Golden cases of rules: what one gives for its arguments, and why it refuses others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fqfuse.composer.registry import AnyRule
from fqfuse.ir.rule import Refusal

__all__ = ["Fires", "Refuses", "check_fires", "check_refuses", "refusing"]

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
