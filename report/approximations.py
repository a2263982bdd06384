"""Approximations: which a plan has, and what one would save, by the difference of two plans."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ..ir.approximations import APPROXIMATIONS
from ..ir.decision import Outcome
from ..plan.types import Plan
from .notation import count_text
from .verdict.shares import shares_of
from .verdict.view import View


@dataclass(frozen=True)
class Saving:
    """What an approximation saves.

    Attributes:
        name: of `APPROXIMATIONS`.
        steps, post_ops: how many fewer there are; below 0 where there are more.
        macs: multiply-adds that become int8.
    """

    name: str
    steps: int
    post_ops: int
    macs: int

    @property
    def order(self) -> tuple[int, int, int]:
        """The larger the saving, the smaller."""
        return -self.macs, -self.steps, -self.post_ops

    @property
    def text(self) -> str:
        """`2 steps, 48 post-ops`, what is saved of each."""
        parts = [count_text(self.steps, "step")] if self.steps > 0 else []
        parts += [count_text(self.post_ops, "post-op")] if self.post_ops > 0 else []
        parts += [f"{self.macs:,} multiply-adds of f32"] if self.macs > 0 else []
        return " and ".join(parts)


def saving_of(name: str, before: Plan, after: Plan) -> Saving | None:
    """What the approximation of that name saves between two plans; None where it is nothing."""
    found = Saving(
        name,
        len(before.steps) - len(after.steps),
        _post_ops(before) - _post_ops(after),
        _int8_macs(after) - _int8_macs(before),
    )
    return found if found.text else None


def _post_ops(plan: Plan) -> int:
    return sum(len(step.attr.post_ops) for step in plan.steps)


def _int8_macs(plan: Plan) -> int:
    return shares_of(plan, View(plan)).int8_macs


def asked_for(plan: Plan) -> tuple[str, ...]:
    """The approximations that a plan was compiled with."""
    names = plan.options.get("approximate", ())
    return tuple(name for name in APPROXIMATIONS if isinstance(names, tuple) and name in names)


def approximated_text(plan: Plan) -> str:
    """Which approximations a plan has, and at how many places; empty without one."""
    made = Counter(
        decision.rule
        for decision in plan.decision_records
        if decision.outcome is Outcome.FIRED and decision.rule in APPROXIMATIONS
    )
    parts = [f"{name} at {count_text(made[name], 'place')}" for name in asked_for(plan)]
    return f"Approximated: {', '.join(parts)}; `inspect --decisions` says where." if parts else ""


def savings_text(savings: list[Saving]) -> str:
    """What approximations would save, in a sentence; empty where none saves anything."""
    parts = [f"{saving.name} {saving.text}" for saving in savings]
    return f"--approximate NAME would save: {'; '.join(parts)}." if parts else ""
