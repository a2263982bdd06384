"""Concrete shapes of every value of a plan, from the shapes of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..errors import FqfuseError, InternalError, InvalidInput, PlanError
from ..ir.constants import as_held, for_types
from ..ir.ops import OPS, dims
from ..ir.ops.spec import Array, OpSpec, ShapeError
from ..ir.text_write import type_text
from ..ir.types import Dim, DType, TensorType
from .arguments import BLOCKS_OF_WEIGHTS, COUNTS, PACKED, positional
from .attributes import Binary, DepthwiseConv, Sum
from .types import Plan, Step

StaticShape = tuple[int, ...]

_KEEPING = frozenset({"QuantizeLinear", "DequantizeLinear"})
"""Foreign ops whose result has the shape of their first input, whatever their domain."""

_WEIGHTED = ("src", "weights")
_CODES = (DType.U8, DType.S8, DType.S32)

_SMALL = 4096
"""Elements up to which a value that depends on shapes alone is computed while binding."""


def bind_shapes(
    plan: Plan, input_shapes: Mapping[str, Sequence[int]]
) -> tuple[dict[str, StaticShape], Mapping[str, Array]]:
    """The shape of every value and constant that the shapes of the inputs decide, and the values
    whose data is settled: constants, and what was computed from shapes.

    Values whose shape depends on data (behind NonZero, say) are absent: their readers are bound
    while they run. What is computed from shapes (Shape -> Gather -> Concat -> Reshape) is followed.
    The shape behind a Squeeze may be known before its axes are. What the axes are is looked at
    where they are settled; otherwise the run has to.

    Args:
        plan: the plan.
        input_shapes: the shape of each input of the plan.

    Raises:
        InvalidInput: the shapes do not fit the model.
    """
    given = {name: tuple(input_shapes[name]) for name in plan.inputs}
    binder = _Binder(plan, given, plan.constants)
    found = binder.run()
    return found, binder.settled


def settled_results(plan: Plan, settled: Mapping[str, Array]) -> dict[str, Array]:
    """What the steps write whose results are all settled, so that no run need compute them again;
    steps that write outputs of the plan are left out.

    Args:
        plan: the plan.
        settled: as `bind_shapes` gives it.
    """
    return {
        value: np.ascontiguousarray(settled[value]).reshape(settled[value].shape)
        for step in plan.steps
        if all(_is_result(plan, value, settled) for value in step.outputs if value)
        for value in step.outputs
        if value
    }


def settled_steps(plan: Plan) -> frozenset[int]:
    """The steps that no run computes, see `settled_results`, with inputs of the sizes that the plan
    states, and 1 where it states none; none where these do not fit the model.
    """
    stated = {name: plan.type(name).shape or () for name in plan.inputs}
    sizes = {
        name: [d if isinstance(d, int) else 1 for d in shape] for name, shape in stated.items()
    }
    try:
        _, settled = bind_shapes(plan, sizes)
    except InvalidInput:
        return frozenset()
    found = settled_results(plan, settled)
    return frozenset(
        index
        for index, step in enumerate(plan.steps)
        if all(value in found for value in step.outputs if value)
    )


def _is_result(plan: Plan, value: str, settled: Mapping[str, Array]) -> bool:
    data = settled.get(value)
    return (
        data is not None
        and value not in plan.outputs
        and data.dtype == plan.type(value).dtype.numpy
    )


def step_shapes(plan: Plan, step: Step, arrays: Mapping[str, Array]) -> dict[str, StaticShape]:
    """The shapes of a step's outputs, given all its inputs.

    Args:
        plan: the plan of the step.
        step: the step.
        arrays: an array for each of its inputs.

    Raises:
        InvalidInput: the shapes do not fit the step.
    """
    binder = _Binder(plan, {}, arrays)
    found = binder.step(step)
    return {
        value: shape
        for value, shape in zip(step.outputs, found, strict=False)
        if value and shape is not None
    }


def step_types(
    step: Step,
    type_of: Callable[[str], TensorType],
    data_of: Callable[[str], Array | None],
    *,
    exact: bool,
) -> tuple[TensorType, ...]:
    """Types of the outputs of a step whose roles fit, by the op table; of a fused primitive the shape counts
    only.

    Args:
        step: the step.
        type_of: the type of each value that it reads.
        data_of: the data of those that are known.
        exact: codes do not stand for reals.

    Raises:
        ShapeError: the arguments do not fit the op.
    """
    if step.primitive in ("eltwise", "reorder"):
        return (type_of(step.arg("src") or ""),)
    row = OPS["Add" if step.primitive == "binary" else step.op]
    values = row_inputs(step, row)
    exact = exact or step.op == PACKED
    counts = {value for role, value in step.args if role in COUNTS}
    types = [
        None if not v else type_of(v) if exact or v in counts else _decoded(type_of(v))
        for v in values
    ]
    data = [data_of(v) if v else None for v in values]
    found = row.infer(types, row.known(step.params), data)
    if step.primitive == "matmul":
        _check_matmul(step, type_of, found[0])
    depthwise = [op for op in step.attr.post_ops if isinstance(op, DepthwiseConv)]
    return (_behind_depthwise(step, type_of, found[0], depthwise),) if depthwise else found


def row_inputs(step: Step, spec: OpSpec) -> Sequence[str]:
    """The values that a step reads, in the order of its op's row ('' where an optional one is
    absent).

    Raises:
        InternalError: the row has no such inputs.
    """
    values = [value for _, value in step.args]
    if step.primitive in ("binary", "concat"):
        return values
    if step.op == PACKED:
        return [step.arg(role) or "" for role in (*_WEIGHTED, *BLOCKS_OF_WEIGHTS)]
    if step.primitive in ("convolution", "deconvolution", "matmul"):
        own = [value for role, value in step.args if role in (*_WEIGHTED, "bias")]
        return own[: len(spec.inputs)]  # a MatMul has no bias
    named = ((spec.inputs[0].name if role == "src" else role, value) for role, value in step.args)
    found = positional(spec, tuple(named))
    if found is None:
        roles = ", ".join(role for role, _ in step.args)
        raise InternalError(f"step {step.name}: {step.op} has no inputs {roles}")
    return found


def _check_matmul(step: Step, type_of: Callable[[str], TensorType], result: TensorType) -> None:
    """Factors of two dimensions and more, and a bias along the last dimension, or one number."""
    for role in _WEIGHTED:
        factor = type_of(step.arg(role) or "")
        if factor.shape is not None and len(factor.shape) < 2:
            raise ShapeError(f"{role} is {type_text(factor)}, and matmul takes matrices")
    bias = step.arg("bias")
    shape = None if bias is None else type_of(bias).shape
    if shape is None or result.shape is None:
        return
    if (
        len(shape) > len(result.shape)
        or any(d != 1 for d in shape[:-1])
        or (shape and shape[-1] not in (1, result.shape[-1]))
    ):
        raise ShapeError(
            f"its bias {type_text(type_of(bias or ''))} does not run along the columns of {type_text(result)}"
        )


def _behind_depthwise(
    step: Step,
    type_of: Callable[[str], TensorType],
    between: TensorType,
    ops: list[DepthwiseConv],
) -> TensorType:
    """The type behind a depthwise post-op, which a 1x1 convolution of feature maps has."""
    op, shape, weights = ops[0], between.shape, type_of(ops[0].weights)
    kernel = type_of(step.arg("weights") or "").shape or ()
    if len(ops) > 1 or shape is None or len(shape) != 4 or kernel[2:] != (1, 1):
        raise ShapeError(
            "a depthwise post-op stands once, behind a 1x1 convolution of two spatial dimensions"
        )
    if any(
        step.params.get(name, ()) not in ((), one)
        for name, one in (("strides", (1, 1)), ("pads", (0, 0, 0, 0)))
    ):
        raise ShapeError(
            "a depthwise post-op stands behind a 1x1 convolution without strides and pads"
        )
    if op.kernel < 1 or op.stride < 1 or op.padding < 0:
        raise ShapeError(
            f"a depthwise post-op with the kernel {op.kernel}, stride {op.stride} and padding {op.padding}"
        )
    channels = shape[1]
    if weights.shape != (channels, 1, op.kernel, op.kernel):
        raise ShapeError(
            f"a depthwise post-op with a kernel of {op.kernel} takes weights [{channels}, 1, {op.kernel}, {op.kernel}]"
        )
    bias = type_of(op.bias) if op.bias else None
    if bias is not None and (bias.shape != (channels,) or bias.dtype is not DType.F32):
        raise ShapeError(
            f"the bias of a depthwise post-op is {type_text(bias)}, and there are {channels} channels"
        )
    pads: Mapping[str, tuple[int, ...]] = {"strides": (op.stride,) * 2, "pads": (op.padding,) * 4}
    row = OPS["Conv"]
    given = [_decoded(between), replace(weights, dtype=DType.F32, quant=None)]
    return row.infer(given, row.complete({**pads, "group": channels}), [None, None])[0]


def _decoded(type_: TensorType) -> TensorType:
    """Codes count as the reals that they stand for: rows of arithmetic ops speak of f32."""
    return replace(type_, dtype=DType.F32, quant=None) if type_.dtype in _CODES else type_


class UnlikeSizes(InvalidInput):
    """Inputs give one size of the plan several values."""


def symbol_sizes(plan: Plan, input_shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The size of every symbolic dimension that an input of the plan names.

    Raises:
        UnlikeSizes: two inputs give one symbol different sizes.
    """
    sizes: dict[str, int] = {}
    origin: dict[str, str] = {}
    for name in plan.inputs:
        for axis, (dim, size) in enumerate(
            zip(plan.type(name).shape or (), input_shapes[name], strict=False)
        ):
            if isinstance(dim, str) and dim != dims.UNKNOWN:
                place = f"{name}, dimension {axis}"
                if sizes.setdefault(dim, size) != size:
                    raise UnlikeSizes(
                        f"dimension {dim} is {sizes[dim]} in one input and {size} in another",
                        where=f"{origin[dim]}; {place}",
                        hint=f"feed both with the same {dim}, or run the model in place of its plan",
                    )
                origin.setdefault(dim, place)
    for dim, size in sizes.items():
        if not dim.isidentifier() and (
            meant := _evaluated(dim, {name: n for name, n in sizes.items() if name != dim})
        ) not in (None, size):
            raise UnlikeSizes(
                f"dimension {dim} is {size}, and the sizes in other inputs make it {meant}",
                where=origin[dim],
                hint=f"feed a size of {meant}, or give the dimension a name in the model that is no formula of others",
            )
    return sizes


def _evaluated(dim: Dim, sizes: Mapping[str, int]) -> int | None:
    """The size of a dimension; None where the sizes of the names in it are not known, or divide by
    0.
    """
    try:
        return dims.evaluate(dim, sizes)
    except (KeyError, ZeroDivisionError):
        return None


def bound_otherwise(plan: Plan, value: str, array: Array, expected: str) -> FqfuseError:
    """The error of a step on NumPy that gives another array than the plan says: those who read it
    were bound for what it says.

    Of a foreign op the plan has the model's word alone.

    Args:
        plan: the plan.
        value: what the step wrote.
        array: what it is.
        expected: type and shape that it should have, as text.
    """
    step = next(step for step in plan.steps if value in step.outputs)
    what = f"{value} is {array.dtype}{list(array.shape)}, and the plan says {expected}"
    if step.op == "Onnx":
        where = ", ".join(step.origin) or step.name
        return InvalidInput(
            what, where=where, hint="correct what value_info says of this value in the model"
        )
    return PlanError(what, where=value, hint="compile the model again")


class _Binder:
    """One walk over the steps."""

    def __init__(
        self, plan: Plan, input_shapes: Mapping[str, Sequence[int]], data: Mapping[str, Array]
    ) -> None:
        self._plan = plan
        self._shapes: dict[str, StaticShape] = {
            name: tuple(array.shape) for name, array in as_held(data).items()
        }
        self._shapes |= {name: tuple(int(d) for d in shape) for name, shape in input_shapes.items()}
        self._known: dict[str, Array] = {
            name: array for name in data if (array := for_types(data, name)) is not None
        }
        self._sizes = symbol_sizes(plan, input_shapes) if input_shapes else {}

    @property
    def settled(self) -> Mapping[str, Array]:
        """The values whose data is known."""
        return self._known

    def run(self) -> dict[str, StaticShape]:
        for step in self._plan.steps:
            found = self.step(step)
            for value, shape in zip(step.outputs, found, strict=False):
                if value and shape is not None:
                    self._shapes[value] = shape
        return self._shapes

    def step(self, step: Step) -> Sequence[StaticShape | None]:
        """Shapes of the outputs of one step; None where data decides."""
        found = self._outputs(step)
        self._check_operands(step, found[0])
        for value, shape in zip(step.outputs, found, strict=False):
            if value and shape is not None and not self._is_as_stated(value, shape):
                known = [v for v in step.inputs if v in self._shapes]
                raise self._refusal(
                    step,
                    known,
                    f"the result is {list(shape)}, and the model says {self._plan.type(value)}",
                )
        return found

    def _outputs(self, step: Step) -> Sequence[StaticShape | None]:
        if step.op == "Onnx":
            declared = [self._declared(value) for value in step.outputs]
            if declared == [None] and step.params.get("op_type") in _KEEPING:
                return [self._shapes.get(step.args[0][1])]
            return declared
        if step.op not in OPS:
            raise InternalError(f"step {step.name} names the op {step.op}, which has no row")
        values = row_inputs(step, OPS[step.op])
        if any(value and value not in self._shapes for value in values):
            return [self._declared(value) for value in step.outputs]
        return self._infer(step, values)

    def _check_operands(self, step: Step, shape: StaticShape | None) -> None:
        """What the plan takes for granted of post-ops holds for these shapes, too: an operand makes
        no result larger, a sum's fills it.
        """
        for op in step.attr.post_ops if shape is not None else ():
            if (
                not isinstance(op, Sum | Binary)
                or shape is None
                or (operand := self._shapes.get(op.operand)) is None
            ):
                continue
            if not (operand == shape if isinstance(op, Sum) else dims.fits(operand, shape)):
                raise self._refusal(
                    step,
                    (op.operand,),
                    f"what is combined with a result of {list(shape)} must have its sizes",
                )

    def _refusal(self, step: Step, values: Sequence[str], why: str) -> InvalidInput:
        shapes = ", ".join(f"{v} {list(self._shapes[v])}" for v in values if v)
        return InvalidInput(
            f"{step.op} cannot take these shapes: {why}",
            where=", ".join(step.origin) or step.name,
            hint=f"its inputs are {shapes}",
        )

    def _is_as_stated(self, value: str, shape: StaticShape) -> bool:
        """True when the plan's own word on a value, as far as it is known, is this shape."""
        stated = self._plan.values[value].shape
        if stated is None:
            return True
        sizes = [_evaluated(dim, self._sizes) for dim in stated]
        return len(sizes) == len(shape) and all(
            size in (None, found) for size, found in zip(sizes, shape, strict=True)
        )

    def _declared(self, value: str) -> StaticShape | None:
        """The plan's own word, with the sizes that the inputs gave its symbols."""
        shape = self._plan.values[value].shape if value else None
        if shape is None:
            return None
        found = tuple(size for d in shape if (size := _evaluated(d, self._sizes)) is not None)
        return found if len(found) == len(shape) else None

    def _infer(self, step: Step, values: Sequence[str]) -> list[StaticShape | None]:
        compute = step.primitive.startswith("onnx.")
        try:
            found = step_types(step, self._type, self._known.get, exact=compute)
        except ShapeError as error:
            raise self._refusal(step, values, str(error)) from error
        if compute:
            known = [self._known.get(v) if v else None for v in values]
            self._follow(step, OPS[step.op], values, known)
        result: list[StaticShape | None] = []
        for value, type_ in zip(step.outputs, found, strict=False):
            if value and value in self._known:
                result.append(tuple(self._known[value].shape))
            elif type_.shape is None or not all(isinstance(d, int) for d in type_.shape):
                result.append(self._declared(value))
            else:
                result.append(tuple(d for d in type_.shape if isinstance(d, int)))
        return result

    def _type(self, value: str) -> TensorType:
        stated = self._plan.type(value)
        return TensorType(stated.dtype, self._shapes.get(value, stated.shape))

    def _follow(
        self, step: Step, spec: OpSpec, values: Sequence[str], known: Sequence[Array | None]
    ) -> None:
        """Computes what depends on shapes alone, so that a Reshape behind it has a static shape."""
        if step.op == "Shape":
            start, end = step.params.get("start", 0), step.params.get("end")
            cut = slice(
                start if isinstance(start, int) else 0, end if isinstance(end, int) else None
            )
            self._known[step.output] = np.asarray(self._shapes[values[0]][cut], np.int64)
        elif step.op == "Size":
            self._known[step.output] = np.asarray(np.prod(self._shapes[values[0]], dtype=np.int64))
        elif (
            spec.evaluate is not None
            and values
            and all(_small(k) for k, v in zip(known, values, strict=True) if v)
        ):
            try:
                found = spec.evaluate(known, spec.complete(step.params))
            except (ValueError, IndexError, TypeError, ZeroDivisionError, OverflowError):
                return  # the run meets the same error, and names the node
            self._known |= {
                value: data
                for value, data in zip(step.outputs, found, strict=False)
                if value and _small(data)
            }


def _small(data: Array | None) -> bool:
    return data is not None and data.size <= _SMALL
