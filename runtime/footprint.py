"""How much memory a session holds and a run takes, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidInput, printable
from ..ir.constants import as_held
from ..plan.types import Step


@dataclass(frozen=True, repr=False)
class StepMemory:
    """What one step needs, in bytes.

    Attributes:
        index: its place in the plan.
        step: the step.
        weights: the constants that it reads, as its kernel wants them: packed, or as in the plan;
            constants that an earlier step reads count there; of plans in bodies as in the plan.
        results: what it writes. Steps whose results never live at the same time share memory; 0
            for another view of a value, and where only a run tells the size.
        scratchpad: what it needs while it runs; all steps share the largest.
    """

    index: int
    step: Step
    weights: int
    results: int
    scratchpad: int

    def __repr__(self) -> str:
        name = printable(self.step.origin[0] if self.step.origin else self.step.name)
        return (
            f"<StepMemory {self.index} {name}: weights {self.weights:,}, results {self.results:,}, "
            f"scratchpad {self.scratchpad:,} bytes>"
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data: `index`, `name`, `primitive`, `op`, `layers` (names of the model's nodes),
        `weights`, `results`, `scratchpad`.
        """
        return {
            "index": self.index,
            "name": self.step.name,
            "primitive": self.step.primitive,
            "op": self.step.op,
            "layers": list(self.step.origin),
            "weights": self.weights,
            "results": self.results,
            "scratchpad": self.scratchpad,
        }


@dataclass(frozen=True, repr=False)
class SessionMemory:
    """What a session holds for the shapes that were bound last, in bytes.

    Attributes:
        weights: constants, held once for all runs and shapes.
        arena: the values of one run, and the results that it hands out without a copy; each run at
            the same time takes its own.
        scratchpad: what the steps of one run share.
        steps: in the order of the plan.
    """

    weights: int
    arena: int
    scratchpad: int
    steps: tuple[StepMemory, ...]

    def __repr__(self) -> str:
        return (
            f"<SessionMemory: weights {self.weights:,}, arena {self.arena:,}, "
            f"scratchpad {self.scratchpad:,} bytes, {len(self.steps)} steps>"
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as JSON takes it: `weights`, `arena`, `scratchpad` and `steps` (a list of
        dictionaries, which pandas takes, see `StepMemory.as_dict`).
        """
        return {
            "weights": self.weights,
            "arena": self.arena,
            "scratchpad": self.scratchpad,
            "steps": [step.as_dict() for step in self.steps],
        }


def nothing_bound() -> InvalidInput:
    """The refusal of a question that only bound shapes answer."""
    return InvalidInput(
        "nothing is bound yet",
        hint="run the session once: the answer may depend on the shapes",
    )


def bytes_within(step: Step) -> int:
    """The constants of the plans in a step's bodies, as these have them."""
    plans = () if step.bodies is None else step.bodies.plans
    parts = [part for plan in plans for part in (plan, *(body for _, body in plan.within))]
    return sum(data.nbytes for part in parts for data in as_held(part.constants).values())


def steps_memory(
    steps: Sequence[Step],
    weights: Mapping[str, int],
    results: Iterable[int],
    scratchpads: Iterable[int],
) -> tuple[StepMemory, ...]:
    """The rows of a plan's steps.

    Args:
        steps: in the order of the plan.
        weights: constant -> its bytes in all forms in which it is held.
        results: the bytes that each step writes.
        scratchpads: the bytes that each step needs while it runs.
    """
    left, rows = dict(weights), []
    for index, (step, written, scratch) in enumerate(zip(steps, results, scratchpads, strict=True)):
        read = sum(left.pop(name, 0) for name in step.inputs) + bytes_within(step)
        rows.append(StepMemory(index, step, read, written, scratch))
    return tuple(rows)
