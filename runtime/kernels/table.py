"""Steps whose meaning is a row of the op table: `onnx.<Op>` as it is, and the rarer primitives with
the shared epilogue behind the row.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from ...errors import FqfuseError, InternalError, InvalidInput
from ...ir.ops import OPS
from ...ir.ops.spec import Array, Attr, Evaluate, OpSpec
from ...plan.types import Step
from ..shapes import row_inputs
from .base import Binding, Kernel, Recorder, Result, Tasks, Values, nbytes, part_of, tiles
from .epilogue import Anchor, Epilogue, along

__all__ = ["EvaluatedKernel", "OnnxKernel", "RowKernel", "row_of"]

_TILE = 1 << 15


def row_of(step: Step) -> OpSpec:
    """The op-table row of a step.

    Raises:
        InternalError: there is none.
    """
    spec = OPS.get(step.op)
    if spec is None:
        raise InternalError(f"step {step.name} names the op {step.op}, which has no row")
    return spec


class EvaluatedKernel(Kernel):
    """A kernel that returns arrays of its own: they may be views of its inputs, and their shapes
    may depend on data.
    """

    @abstractmethod
    def evaluate(self, values: Values) -> Sequence[Array]:
        """The outputs."""

    def tasks(self, values: Values, outputs: Sequence[Array]) -> Tasks:
        """One task: copies what `evaluate` returns into the outputs."""

        def copy() -> None:
            for out, array in zip(outputs, self.evaluate(values), strict=False):
                np.copyto(out, array)

        return Tasks(1, lambda _, record: record(copy))


class OnnxKernel(EvaluatedKernel):
    """`onnx.<Op>`: the row's own evaluation, in whatever element type.

    Args:
        step: the step.
        constants: data of the constants among its inputs.
    """

    def __init__(self, step: Step, constants: Mapping[str, Array]) -> None:
        spec = row_of(step)
        if spec.evaluate is None:
            raise InternalError(f"step {step.name}: the row {spec.name} cannot be evaluated")
        self._step, self._evaluate, self._constants = step, spec.evaluate, constants
        self._inputs = row_inputs(step, spec)
        self._attrs = spec.complete(step.params)

    def evaluate(self, values: Values) -> Sequence[Array]:
        """The outputs of the row's evaluation."""
        arrays = [
            (self._constants[v] if v in self._constants else values[v]) if v else None
            for v in self._inputs
        ]
        return call_row(self._step, self._evaluate, arrays, self._attrs)


def call_row(
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
            where=", ".join(step.origin) or step.name,
            hint="check the shapes of the inputs against those that the model was made for",
        ) from error


class RowKernel(Kernel):
    """softmax, layer_normalization, batch_normalization, resampling, reduction, prelu, shuffle,
    lrn: the row in f32, then the epilogue.

    The scale of src multiplies the *result* of the row (oneDNN's softmax and layer_normalization do
    so), not its input.
    """

    def __init__(self, binding: Binding) -> None:
        step = binding.step
        spec = row_of(step)
        if spec.evaluate is None:
            raise binding.refuse(f"the row {spec.name} cannot be evaluated")
        self._step, self._evaluate = step, spec.evaluate
        self._attrs = spec.complete(
            {name: value for name, value in step.params.items() if name in spec.attrs}
        )
        self._operands = [binding.operands[v] if v else None for v in row_inputs(step, spec)]
        shape = binding.shapes[0]
        result = Result(binding.dtypes[0], shape)
        self.results = (result,)
        scale = step.attr.scales.get("src")
        factors = (
            ()
            if scale is None
            else (
                along(scale.array, scale.mask.bit_length() - 1 if scale.mask else None, len(shape)),
            )
        )
        self._epilogue = Epilogue(binding, result, Anchor(magnitude=math.inf, scales=factors))
        self._tiles = tiles(shape, _TILE)
        cells = max((math.prod(c.stop - c.start for c in t) for t in self._tiles), default=0)
        self.local_bytes = (
            nbytes(shape, np.float32)
            + nbytes((cells,), np.float32)
            + self._epilogue.scratch_bytes(cells)
        )

    def tasks(self, values: Values, outputs: Sequence[Array]) -> Tasks:
        """One task: the row in f32, then the epilogue tile by tile."""
        operands = self._epilogue.operands(values)
        arrays = [None if operand is None else operand.read(values) for operand in self._operands]

        def task(_: int, record: Recorder) -> None:
            full = record.take(outputs[0].shape, np.float32)
            record(self._evaluate_into, arrays, full)
            for tile in self._tiles:
                mark = record.scratch.mark()
                y = record.take([c.stop - c.start for c in tile], np.float32)
                record(np.copyto, y, part_of(full, tile))
                self._epilogue.record(y, outputs[0], tile, operands, record)
                record.scratch.release(mark)

        return Tasks(1, task)

    def _evaluate_into(self, arrays: Sequence[Array | None], target: Array) -> None:
        floats = [None if array is None else _codes_as_f32(array) for array in arrays]
        np.copyto(target, call_row(self._step, self._evaluate, floats, self._attrs)[0])


def _codes_as_f32(array: Array) -> Array:
    """Codes become f32; what is no data (axes, sizes: s64) stays."""
    return array.astype(np.float32) if array.dtype in (np.uint8, np.int8, np.int32) else array
