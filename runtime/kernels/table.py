"""Steps whose meaning is a row of the op table: `onnx.<Op>` as it is, and the rarer primitives with
the shared epilogue behind the row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...errors import FqfuseError, InternalError, InvalidInput
from ...ir.ops import OPS
from ...ir.ops.spec import Array, Attr, Evaluate, OpSpec
from ...ir.types import DType, TensorType
from ...plan.shapes import bound_otherwise, row_inputs
from ...plan.types import Plan, Step
from .base import BETWEEN, Binding, InTurn, Kernel, Operand, Result, Tasks, Values
from .elementwise import bind_elementwise
from .epilogue import Anchor, placed


def _row_of(step: Step) -> OpSpec:
    """The op-table row of a step.

    Raises:
        InternalError: there is none.
    """
    spec = OPS.get(step.op)
    if spec is None:
        raise InternalError(f"step {step.name} names the op {step.op}, which has no row")
    return spec


RunForeign = Callable[[Sequence[Array | None]], Sequence[Array]]


class EvaluatedKernel:
    """`onnx.<Op>`: the row's own evaluation, in whatever element type; of a foreign op the node as
    the user's model has it, run by the fallback.

    It returns arrays of its own: they may be views of its inputs, and their shapes may depend on
    data.

    Args:
        plan: the plan.
        step: the step.
        bodies: what runs steps with bodies, by their names.

    Raises:
        UnsupportedOp: nothing can run the op.
    """

    def __init__(self, plan: Plan, step: Step, bodies: Mapping[str, RunForeign]) -> None:
        spec = _row_of(step)
        self._plan, self._step = plan, step
        self._inputs = row_inputs(step, spec)
        self._constants = {v: plan.constants[v] for v in self._inputs if v in plan.constants}
        self._run: RunForeign
        if step.bodies is not None:
            self._run = bodies[step.name]
        elif step.op == "Onnx":
            # imports onnx.reference: only plans with a foreign op pay for it
            from ..fallback import foreign_op

            self._run = foreign_op(step.params, ", ".join(step.origin) or step.name)
        else:
            evaluate, attrs = _evaluation(step, spec), spec.complete(step.params)
            self._run = lambda arrays: _call_row(step, evaluate, arrays, attrs)

    def evaluate(self, values: Values) -> Sequence[Array]:
        """The outputs.

        Raises:
            InvalidInput: the arrays do not fit the op, or an output of a foreign op is of another
                type than the model says: those who read it were bound for that.
        """
        constants = self._constants
        found = self._run(
            [(constants[v] if v in constants else values[v]) if v else None for v in self._inputs]
        )
        if self._step.op == "Onnx":
            for value, array in zip(self._step.outputs, found, strict=True):
                if value and not _is_of(array, self._plan.values[value]):
                    raise bound_otherwise(self._plan, value, array, str(self._plan.values[value]))
        return found


def _evaluation(step: Step, spec: OpSpec) -> Evaluate:
    if spec.evaluate is None:
        raise InternalError(f"step {step.name}: the row {spec.name} cannot be evaluated")
    return spec.evaluate


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


def _call_row(
    step: Step, evaluate: Evaluate, arrays: Sequence[Array | None], attrs: Mapping[str, Attr]
) -> Sequence[Array]:
    """Runs a row's evaluation.

    Raises:
        InvalidInput: the arrays do not fit the op; the message names the node in the user's model.
    """
    try:
        return evaluate(arrays, attrs)
    except FqfuseError:
        raise
    except (
        ValueError,
        LookupError,
        TypeError,
        ArithmeticError,
        AttributeError,
        MemoryError,
    ) as error:
        shapes = ", ".join("absent" if a is None else f"{a.dtype}{list(a.shape)}" for a in arrays)
        raise InvalidInput(
            f"{step.op} cannot be computed on {shapes}: {error}",
            where=_place(step),
            hint="check the shapes of the inputs against those that the model was made for",
        ) from error


def _place(step: Step) -> str:
    """The nodes of the user's model, and which of their steps, where one of them has several."""
    origin = ", ".join(step.origin)
    if not origin or step.name in step.origin:
        return origin or step.name
    return f"{origin} (step {step.name})"


class _Row(Kernel):
    """The row of a primitive in f32."""

    def __init__(self, binding: Binding) -> None:
        self._step = step = binding.step
        spec = _row_of(step)
        self._evaluate, self._attrs = _evaluation(step, spec), spec.known(step.params)
        self._operands = [binding.operands[v] if v else None for v in row_inputs(step, spec)]
        self.results = (Result(DType.F32, binding.shapes[0]),)

    def tasks(self, values: Values, outputs: Sequence[Array]) -> Tasks:
        """One task."""
        arrays = [None if operand is None else operand.read(values) for operand in self._operands]
        return Tasks(1, lambda _, record: record(self._evaluate_into, arrays, outputs[0]))

    def _evaluate_into(self, arrays: Sequence[Array | None], target: Array) -> None:
        floats = [None if array is None else _codes_as_f32(array) for array in arrays]
        np.copyto(target, _call_row(self._step, self._evaluate, floats, self._attrs)[0])


class _Numbers(Kernel):
    """All results of a row, as they are."""

    def __init__(self, binding: Binding) -> None:
        self._step = step = binding.step
        spec = _row_of(step)
        self._evaluate, self._attrs = _evaluation(step, spec), spec.known(step.params)
        self._operands = [binding.operands[v] if v else None for v in row_inputs(step, spec)]
        self._wanted = [number for number, value in enumerate(step.outputs) if value]
        self.results = tuple(map(Result, binding.dtypes, binding.shapes))

    def tasks(self, values: Values, outputs: Sequence[Array]) -> Tasks:
        """One task."""
        arrays = [None if operand is None else operand.read(values) for operand in self._operands]
        return Tasks(1, lambda _, record: record(self._evaluate_into, arrays, outputs))

    def _evaluate_into(self, arrays: Sequence[Array | None], targets: Sequence[Array]) -> None:
        found = _call_row(self._step, self._evaluate, arrays, self._attrs)
        for target, number in zip(targets, self._wanted, strict=True):
            np.copyto(target, found[number])


def bind_numbers(binding: Binding) -> Kernel:
    """dynamic_range: the results of the row, without attributes."""
    return _Numbers(binding)


def _codes_as_f32(array: Array) -> Array:
    """Codes become f32; what is no data (axes, sizes: s64) stays."""
    return array.astype(np.float32) if array.dtype in (np.uint8, np.int8, np.int32) else array


def bind_row(binding: Binding) -> Kernel:
    """softmax, layer_normalization, batch_normalization, resampling, reduction, prelu, shuffle,
    lrn: the row in f32, then the epilogue.

    The scale of src multiplies the *result* of the row (oneDNN's softmax and layer_normalization do
    so), not its input.
    """
    shape, scale = binding.shapes[0], binding.step.attr.scales.get("src")
    anchor = Anchor(scales=() if scale is None else (placed(scale, shape),))
    behind = bind_elementwise(binding, [Operand(BETWEEN, DType.F32, shape)], anchor)
    return InTurn(_Row(binding), behind)
