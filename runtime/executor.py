"""What a backend gives to a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ..ir.ops.spec import Array

__all__ = ["Executor"]


class Executor(Protocol):
    """Runs one plan. Every method may be called by many threads at once."""

    def bind(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Prepares for these shapes of the inputs (weights, buffers, primitives), so that the first
        run is as fast as the others.

        Raises:
            InvalidInput: the shapes do not fit the model.
        """
        ...

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """The outputs of the plan, in its order, for checked feeds; the arrays belong to the
        caller.

        Raises:
            InvalidInput: a step cannot be computed on what it is given.
        """
        ...

    def run_all(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Every value that a step of the plan writes, in execution order; the arrays belong to the
        caller.
        """
        ...
