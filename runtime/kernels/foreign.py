"""Foreign ops: the node as the user's model has it, run by the fallback."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...composer.plan import Plan, Step
from ...errors import PlanError
from ...ir.ops.spec import Array
from ...ir.types import DType, TensorType
from ..shapes import row_inputs
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
        from ..fallback import run_step_foreign  # imports onnx.reference: only plans with a foreign op pay for it

        self._step = step
        self._inputs = row_inputs(step, row_of(step))
        self._constants: Mapping[str, Array] = plan.constants
        self._types = [plan.values[value] if value else None for value in step.outputs]
        self._run = run_step_foreign(step)

    def evaluate(self, values: Values) -> Sequence[Array]:
        """The outputs of the node.

        Raises:
            PlanError: an output is of another type than the plan says: those who read it were bound for that.
        """
        found = self._run([(self._constants[v] if v in self._constants else values[v]) if v else None for v in self._inputs])
        for value, array, type_ in zip(self._step.outputs, found, self._types, strict=True):
            if type_ is not None and not _is_of(array, type_):
                what = f"{value} is {type_} in the plan, and {self._step.primitive} gives {array.dtype}{list(array.shape)}"
                raise PlanError(what, where=", ".join(self._step.origin) or self._step.name, hint="compile the model again")
        return found


def _is_of(array: Array, type_: TensorType) -> bool:
    if array.dtype != type_.dtype.numpy and not (type_.dtype is DType.STRING and array.dtype.kind in "OU"):
        return False
    if type_.shape is None:
        return True
    if array.ndim != len(type_.shape):
        return False
    return all(isinstance(dim, str) or dim == size for dim, size in zip(type_.shape, array.shape, strict=True))
