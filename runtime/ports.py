"""Sequences and optionals that a caller feeds and gets: lists of arrays and None, as the arrays that hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..errors import InvalidInput
from ..ir.ops.spec import Array
from ..ir.ports import LIST, ROWS, TENSOR, Port, Ports, packed, unpacked
from ..ir.types import DType, TensorType
from ..plan.stated import Stated, stated_shapes
from ..plan.types import Plan
from .foreign_types import called, carried, conversion_of, foreign_type
from .like_onnxruntime import NodeArg, type_name

Fed = npt.ArrayLike | Sequence[npt.ArrayLike] | None
"""What a caller feeds for an input."""

_LISTS: Final = (list, tuple)
_LIST: Final = "feed a list of numpy.ndarray, which may be empty"


def ports_of(plan: Plan) -> Ports:
    """The inputs and outputs of the model."""
    if plan.ports is not None:
        return plan.ports
    inputs, outputs = (
        tuple(Port(name, TENSOR, (name,)) for name in names)
        for names in (plan.inputs, plan.outputs)
    )
    return Ports(inputs, outputs)


def described(plan: Plan, ports: Sequence[Port]) -> list[NodeArg]:
    """Inputs or outputs of the model, as ONNX Runtime describes them."""
    shapes = stated_shapes(plan, (port.name for port in ports if port.is_tensor))
    return [_node_arg(plan, port, shapes.get(port.name)) for port in ports]


def _node_arg(plan: Plan, port: Port, shape: Stated | None) -> NodeArg:
    dtype = plan.type(port.values[0]).dtype if port.values else DType.F32
    text = type_name(dtype)
    if port.is_tensor:
        return NodeArg(port.name, None if shape is None else list(shape), text)
    text = text if port.form == TENSOR else f"seq({text})"
    return NodeArg(port.name, [], f"optional({text})" if port.there else text)


def plan_feeds(plan: Plan, ports: Sequence[Port], feeds: Mapping[str, Any]) -> dict[str, Any]:
    """What a plan is fed, by the names of its inputs.

    Args:
        plan: the plan.
        ports: its inputs.
        feeds: an array, a list of arrays or None for each of the inputs of the model.

    Raises:
        InvalidInput: a list or None where there should be none, or the arrays in a list have other types,
            ranks or shapes.
    """
    arrays: dict[str, Any] = {}
    for port in ports:
        given = feeds[port.name]
        if port.is_tensor:
            arrays[port.name] = given
            continue
        if port.there:
            arrays[port.there] = np.asarray(given is not None)
        elif given is None:
            raise InvalidInput("it is fed None, and is no optional", where=_place(port), hint=_LIST)
        arrays |= zip(port.values, _arrays(plan, port, given), strict=True)
    return arrays


def _place(port: Port) -> str:
    return f"input {port.name}"


def _arrays(plan: Plan, port: Port, given: Any) -> list[Any]:
    types = [plan.type(value) for value in port.values]
    if port.form == TENSOR:
        return [_nothing(types[0]) if given is None else given]
    if given is not None and not isinstance(given, _LISTS):
        raise InvalidInput(
            f"a sequence is fed as a {type(given).__name__}", where=_place(port), hint=_LIST
        )
    dtype = types[0].dtype
    tensors = [_tensor(port, index, each, dtype) for index, each in enumerate(given or ())]
    return _rows(port, tensors, types[0]) if port.form == ROWS else _packed(port, tensors, types)


def _tensor(port: Port, index: int, given: Any, dtype: DType) -> Array:
    where = f"{_place(port)}, tensor {index}"
    try:
        array = np.asarray(given)
    except Exception as error:  # the caller's own object is asked, and may raise anything
        what = f"a {type(given).__name__} cannot be an array: {type(error).__name__}: {error}"
        raise InvalidInput(what, where=where, hint="feed a numpy.ndarray") from error
    array = carried(port.name, array, dtype)
    texts = dtype is DType.STRING and array.dtype.kind in "UO"
    if array.dtype != dtype.numpy and not texts:
        raise InvalidInput(
            f"it has elements of type {array.dtype}, expected {called(dtype)}",
            where=where,
            hint=conversion_of(array, dtype),
        )
    return array.astype(object) if texts else array


def _nothing(type_: TensorType) -> Array:
    """In the place of what an optional does not hold."""
    shape = (0,) if type_.shape is None else (d if isinstance(d, int) else 0 for d in type_.shape)
    return np.zeros(tuple(shape), type_.dtype.numpy)


def _rows(port: Port, tensors: Sequence[Array], type_: TensorType) -> list[Array]:
    shape = (type_.shape or ())[1:]
    for index, tensor in enumerate(tensors):
        if tensor.shape != shape:
            raise InvalidInput(
                f"it has the shape {list(tensor.shape)}, expected {list(shape)}",
                where=f"{_place(port)}, tensor {index}",
                hint="feed the shape that the model was made for, or export it without one",
            )
    rows = np.empty((len(tensors), *map(int, shape)), type_.dtype.numpy)
    for index, tensor in enumerate(tensors):
        rows[index, ...] = tensor  # a single text would go in as an array
    return [rows]


def _packed(port: Port, tensors: Sequence[Array], types: Sequence[TensorType]) -> list[Array]:
    told = types[1].shape
    rank = told[1] if told else 0
    ranks = {tensor.ndim for tensor in tensors} or {rank if isinstance(rank, int) else 0}
    if len(ranks) > 1 or (isinstance(rank, int) and ranks != {rank}):
        wanted = f"expected {rank}" if isinstance(rank, int) else "and they must be of one"
        raise InvalidInput(
            f"its tensors are of the ranks {', '.join(map(str, sorted(ranks)))}, {wanted}",
            where=_place(port),
            hint="reshape them, or add the dimensions of size 1",
        )
    return [*packed(tensors, types[0].dtype.numpy, *ranks)]


def returned(plan: Plan, port: Port, found: Mapping[str, Array]) -> Array | list[Array] | None:
    """What the caller gets for an output of the model, in the element types that the model states.

    Args:
        plan: the plan.
        port: the output.
        found: outputs of the plan, in the types that carry their elements.
    """
    if port.there and not found[port.there]:
        return None
    arrays = [_stated(found[value], plan.type(value).dtype) for value in port.values]
    if port.form == TENSOR:
        return arrays[0]
    if port.form == LIST:
        return arrays
    if port.form == ROWS:
        return [arrays[0][index, ...].copy() for index in range(len(arrays[0]))]
    return unpacked(*arrays)


def _stated(array: Array, dtype: DType) -> Array:
    foreign = foreign_type(dtype)
    return array if foreign is None else array.astype(foreign)
