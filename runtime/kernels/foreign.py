"""Foreign ops: the node as the user's model has it, run by the fallback."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...composer.plan import Step
from ...ir.ops.spec import Array
from ..shapes import row_inputs
from .base import Values
from .table import EvaluatedKernel, row_of

__all__ = ["ForeignKernel"]


class ForeignKernel(EvaluatedKernel):
    """An `Onnx` step.

    Args:
        step: the step.
        constants: data of the constants among its inputs.

    Raises:
        UnsupportedOp: nothing can run the op.
    """

    def __init__(self, step: Step, constants: Mapping[str, Array]) -> None:
        from ..fallback import run_step_foreign  # imports onnx.reference: only plans with a foreign op pay for it

        self._inputs = row_inputs(step, row_of(step))
        self._constants = constants
        self._run = run_step_foreign(step)

    def evaluate(self, values: Values) -> Sequence[Array]:
        """The outputs of the node."""
        return self._run([(self._constants[v] if v in self._constants else values[v]) if v else None for v in self._inputs])
