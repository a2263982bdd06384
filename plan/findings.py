"""What rows of the plan verifier are made of: problems of a step, and the types that a plan states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ..ir.diagnostic import Finding
from ..ir.text_write import name_text
from ..ir.types import TensorType
from .targets import TARGETS, Target
from .types import Plan, Step

Problems = Iterable[str | None]
"""What is wrong with a step, as the ends of sentences that begin with its name; None: nothing."""


def called(step: Step) -> str:
    """A step in messages."""
    return f"{step.primitive} {name_text(step.name)}"


def about(step: Step, problem: str, token: str | None = None) -> Finding:
    """A finding about a step; `token`: what to underline instead of its primitive."""
    return Finding(
        f"{called(step)} {problem}",
        step.name,
        token=step.primitive if token is None else token,
    )


def of_steps(problems: Callable[[Plan, Step], Problems]) -> Callable[[Plan], Iterator[Finding]]:
    """The row that looks at each step by itself."""

    def find(plan: Plan) -> Iterator[Finding]:
        for step in plan.steps:
            yield from (about(step, problem) for problem in problems(plan, step) if problem)

    find.__doc__ = problems.__doc__
    return find


def of_target(
    problems: Callable[[Plan, Step, Target], Problems],
) -> Callable[[Plan], Iterator[Finding]]:
    """The row that holds each step against the target; another row speaks of unknown targets."""
    return of_steps(
        lambda plan, step: (
            problems(plan, step, TARGETS[plan.target]) if plan.target in TARGETS else ()
        )
    )


def destination(plan: Plan, step: Step) -> TensorType | None:
    """The type of the step's first output, or None where the plan does not say it."""
    return plan.find(step.outputs[0] if step.outputs else None)
