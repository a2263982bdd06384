"""Foreign ops: the node as the user's model has it, run by the fallback."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.ops.spec import Array
from ...ir.types import DType, TensorType
from ...plan.types import Plan, Step
from ..shapes import bound_otherwise, row_inputs
from .base import Values
from .table import EvaluatedKernel, row_of

__all__ = ["ForeignKernel"]


class ForeignKernel(EvaluatedKernel):
    """An `Onnx` step.

    Args:
        plan: the plan.
        step: the step.

    Raises:
        UnsupportedOp: nothing can run the op.
    """

    def __init__(self, plan: Plan, step: Step) -> None:
        from ..fallback import (
            run_step_foreign,
        )  # imports onnx.reference: only plans with a foreign op pay for it

        self._plan, self._step = plan, step
        self._inputs = row_inputs(step, row_of(step))
        self._types = [plan.values[value] if value else None for value in step.outputs]
        self._run = run_step_foreign(step)

    def evaluate(self, values: Values) -> Sequence[Array]:
        """The outputs of the node.

        Raises:
            InvalidInput: an output is of another type than the model says: those who read it were
                bound for that.
        """
        constants = self._plan.constants
        found = self._run(
            [(constants[v] if v in constants else values[v]) if v else None for v in self._inputs]
        )
        for value, array, type_ in zip(self._step.outputs, found, self._types, strict=True):
            if type_ is not None and not _is_of(array, type_):
                raise bound_otherwise(self._plan, value, array, str(type_))
        return found


def _is_of(array: Array, type_: TensorType) -> bool:
    if array.dtype != type_.dtype.numpy and not (
        type_.dtype is DType.STRING and array.dtype.kind in "OU"
    ):
        return False
    if type_.shape is None:
        return True
    if array.ndim != len(type_.shape):
        return False
    return all(
        isinstance(dim, str) or dim == size
        for dim, size in zip(type_.shape, array.shape, strict=True)
    )
