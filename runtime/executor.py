"""What a backend gives to a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..ir.ops.spec import Array
from .footprint import SessionMemory


@dataclass(frozen=True)
class StepTimes:
    """How long the steps of one run took.

    Attributes:
        started: when the first step began, as `time.perf_counter_ns` has it.
        nanoseconds: one number for each step of the plan, which run one after the other; what only
            is another view of a value takes none.
    """

    started: int
    nanoseconds: tuple[int, ...]


class Executor(Protocol):
    """Runs one plan. Every method may be called by many threads at once."""

    def bind(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Prepares for these shapes of the inputs (weights, buffers, primitives), so that the first
        run is as fast as the others.

        Raises:
            InvalidInput: the shapes do not fit the model.
        """
        ...

    def run(
        self, feeds: Mapping[str, Array], behind: Callable[[int], None] | None = None
    ) -> list[Array]:
        """The outputs of the plan, in its order, for checked feeds; the arrays belong to the
        caller.

        Args:
            feeds: an array for each input.
            behind: called before the first step and behind each; what it raises ends the run.

        Raises:
            InvalidInput: a step cannot be computed on what it is given.
        """
        ...

    def run_all(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Every value that a step of the plan writes, in execution order; the arrays belong to the
        caller.
        """
        ...

    def run_timed(self, feeds: Mapping[str, Array]) -> StepTimes:
        """Runs as `run` does, looks at the clock behind each step, and forgets the outputs."""
        ...

    def memory(self) -> SessionMemory:
        """What the executor holds, and a run takes, for the shapes that were bound last.

        Raises:
            InvalidInput: nothing is bound yet.
        """
        ...
