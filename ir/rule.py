"""What all rules have in common: an equation for a name, what they claim, a docstring that argues
for them, and how they refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from .decision import Decision, Outcome

Found = TypeVar("Found")
Apply_co = TypeVar("Apply_co", bound=Callable[..., object], covariant=True)


@dataclass(frozen=True)
class Refusal:
    """Why a rule does not apply: the predicate that failed, what it needs and what it met.

    Attributes:
        reason, expected, found: as in `Decision`; the last two may be empty.
        hint: what the user can change, in the words of a quantizer or exporter; where nothing helps,
            or nothing is lost, a sentence that says so. Never empty.
    """

    reason: str
    expected: str
    found: str
    hint: str

    def at(self, rule: str, subject: str) -> Decision:
        """The decision of a rule that refused a node, by its name in the user's model."""
        why = (self.reason, self.expected, self.found, self.hint)
        return Decision(rule, subject, Outcome.REFUSED, *why)


@dataclass(frozen=True)
class Rule(Generic[Apply_co]):
    """One rule: what matches, its guard, and what it becomes.

    Attributes:
        name: the equation itself.
        apply: gives what the left side becomes, a `Refusal` where it matches and a guard fails,
            None where it does not match; its docstring says why the rule is legal and when it
            refuses.
        real: `identity` or `approximation` of real numbers.
        float: `bitwise`, `ties` or `ulp`: what holds in f32 when the constants are formed in f64
            and rounded once; see `Contract`.
    """

    name: str
    apply: Apply_co
    real: Literal["identity", "approximation"] = "identity"
    float: Literal["bitwise", "ties", "ulp"] = "ulp"


def first_fired(
    rules: Iterable[Rule[Callable[..., Found | Refusal | None]]], *arguments: object
) -> Found | Refusal | None:
    """What the first rule that fires gives; the last refusal where none does, None where none
    matches.
    """
    refusal: Refusal | None = None
    for rule in rules:
        found = rule.apply(*arguments)
        if isinstance(found, Refusal):
            refusal = found
        elif found is not None:
            return found
    return refusal
