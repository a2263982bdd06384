"""What is known of the integers that a model computes with shapes.

Exporters spell `x.view(x.shape[0], -1)` as Shape, Gather, Unsqueeze, Concat and Reshape. The
entries of such tensors are followed here as sizes, numbers or symbolic; size_inputs.py gives them
to the ops that read them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..ir.node import Node
from ..ir.ops import dims
from ..ir.ops.spec import Array
from ..ir.types import Dim, DType, Shape, TensorType

Known = npt.NDArray[Any]
"""An array of objects: sizes (int, or str for symbolic ones; `?` where nothing is known)."""

KnownOf = Callable[[str], Known | None]
"""Value -> what is known of its entries, None when it is no small tensor of integers, or nothing
is.
"""

MOST_ENTRIES: Final = 256
"""Larger tensors are no shapes."""

_LONGEST: Final = 200
"""A formula longer than this counts as unknown: products of products grow exponentially."""


def entries_of(data: Array) -> Known | None:
    """The entries of a constant; None when it is large or not of integers or bools."""
    if data.dtype.kind not in "biu" or data.size > MOST_ENTRIES:
        return None
    return (data.astype(np.int8) if data.dtype.kind == "b" else data).astype(object)


def numbers(array: Known | None) -> list[int] | None:
    """The entries in order when all of them are numbers."""
    if array is None or not all(isinstance(entry, int) for entry in array.reshape(-1)):
        return None
    return [int(entry) for entry in array.reshape(-1)]


def known_outputs(
    node: Node, types: Mapping[str, TensorType], known: KnownOf
) -> Sequence[Known | None]:
    """What is known of a node's outputs, in order; empty when its op is not followed."""
    rule = _FOLLOWED.get(node.op)
    if rule is None or not node.inputs:
        return ()
    try:
        found = rule(_Followed(node, types, known))
    except (
        _UnknownError,
        ValueError,
        IndexError,
        OverflowError,
    ):  # NumPy refuses what the row has not checked: nothing is known then
        return ()
    arrays = found if isinstance(found, list) else [found]
    return [
        _bounded(array, types[name].dtype) if name else None
        for name, array in zip(node.outputs, arrays, strict=False)
    ]


def _bounded(array: Known, dtype: DType) -> Known | None:
    """Without what is too long to follow, or overflows its type; None for what is no small tensor
    of integers.
    """
    if array.size > MOST_ENTRIES or not (dtype.is_integer or dtype is DType.BOOL):
        return None
    low, high = dtype.range if dtype.is_integer else (0, 1)
    flat = [
        dims.UNKNOWN if _too_much(entry, low, high) else entry
        for entry in array.reshape(-1).tolist()
    ]
    return _objects(flat).reshape(array.shape)


def _too_much(entry: Dim, low: int, high: int) -> bool:
    return len(entry) > _LONGEST if isinstance(entry, str) else not low <= entry <= high


def _objects(entries: Sequence[Any]) -> Known:
    result = np.empty(len(entries), object)
    result[:] = entries
    return result


# -- ops that are followed -------------------------------------------------------------------------


class _UnknownError(Exception):
    """Nothing is known of an input that the outcome depends on."""


@dataclass(frozen=True)
class _Followed:
    """A node that is followed; each method raises _UnknownError when there is no answer."""

    node: Node
    types: Mapping[str, TensorType]
    known: KnownOf

    def data(self, index: int) -> Known:
        """What is known of an input."""
        found = self.known(self.node.inputs[index]) if index < len(self.node.inputs) else None
        if found is None:
            raise _UnknownError
        return found

    def numbers(self, index: int) -> list[int] | None:
        """The numbers of an input; None when it is absent."""
        if index >= len(self.node.inputs) or not self.node.inputs[index]:
            return None
        found = numbers(self.data(index))
        if found is None:
            raise _UnknownError
        return found

    def shape(self, value: str) -> Shape:
        """The shape of a value."""
        found = self.types[value].shape
        if found is None:
            raise _UnknownError
        return found

    def integer(self, name: str) -> int:
        """An integer attribute."""
        value = self.node.attrs[name]
        if not isinstance(value, int):
            raise _UnknownError
        return value


_Rule = Callable[[_Followed], Known | list[Known]]


def _shape(call: _Followed) -> Known:
    shape = call.shape(call.node.inputs[0])
    end = call.integer("end") if call.node.attrs["end"] is not None else len(shape)
    return _objects(shape[call.integer("start") : end])


def _gather(call: _Followed) -> Known:
    indices = np.asarray(call.numbers(1), np.int64).reshape(call.data(1).shape)
    return np.asarray(np.take(call.data(0), indices, axis=call.integer("axis")), object)


def _slice(call: _Followed) -> Known:
    data, starts, ends = call.data(0), call.numbers(1), call.numbers(2)
    axes, steps = call.numbers(3), call.numbers(4) or [1]
    if (
        data.ndim != 1
        or starts is None
        or ends is None
        or len(starts) != 1
        or axes not in (None, [0], [-1])
    ):
        raise _UnknownError
    end = None if steps[0] < 0 and ends[0] < -data.size else ends[0]
    return data[starts[0] : end : steps[0]]


def _squeeze(call: _Followed) -> Known:
    axes = call.numbers(1)
    return np.squeeze(call.data(0)) if axes is None else np.squeeze(call.data(0), tuple(axes))


def _concat(call: _Followed) -> Known:
    """Entries of unknown parts of known length are unknown; the others stay."""
    return np.concatenate(
        [_part(call, index) for index in range(len(call.node.inputs))], axis=call.integer("axis")
    )


def _part(call: _Followed, index: int) -> Known:
    found, shape = call.known(call.node.inputs[index]), call.shape(call.node.inputs[index])
    if found is not None:
        return found
    if len(shape) != 1 or not isinstance(shape[0], int) or shape[0] > MOST_ENTRIES:
        raise _UnknownError
    return _objects([dims.UNKNOWN] * shape[0])


def _cast(call: _Followed) -> Known:
    if call.node.attrs["to"] not in {DType.S64, DType.S32}:
        raise _UnknownError
    return call.data(0)


def _arithmetic(function: Callable[[Dim, Dim], Dim]) -> _Rule:
    return lambda call: np.asarray(
        np.frompyfunc(function, 2, 1)(call.data(0), call.data(1)), object
    )


def _divide(a: Dim, b: Dim) -> Dim:
    """Integer division as ONNX has it: towards zero, which is floor where nothing is negative."""
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else dims.UNKNOWN
    if _not_negative(a) and isinstance(b, int) and b > 0:
        return dims.floor_div(a, b)
    return dims.UNKNOWN


def _not_negative(a: Dim) -> bool:
    return a != dims.UNKNOWN and dims.positive(a) == a


def _equal(a: Dim, b: Dim) -> Dim:
    """1 or 0 where it is sure. Sizes are never negative, so `-1` differs from all of them."""
    if dims.same(a, b):
        return 1
    if dims.differ(a, b) or any(
        isinstance(p, int) and p < 0 and _not_negative(q) for p, q in ((a, b), (b, a))
    ):
        return 0
    return dims.UNKNOWN


def _choose(condition: Dim, a: Dim, b: Dim) -> Dim:
    if dims.same(a, b):
        return a
    return dims.UNKNOWN if condition == dims.UNKNOWN else a if condition else b


def _where(call: _Followed) -> Known:
    return np.asarray(
        np.frompyfunc(_choose, 3, 1)(call.data(0), call.data(1), call.data(2)), object
    )


def _constant_of_shape(call: _Followed) -> Known:
    shape = call.numbers(0)
    if shape is None or math.prod(shape) > MOST_ENTRIES:
        raise _UnknownError
    return np.full(shape, call.integer("value"), object)


def _product(call: _Followed) -> Known:
    data = call.data(0)
    if data.ndim != 1:
        raise _UnknownError
    result = np.asarray(dims.product(data.tolist()), object)
    return result.reshape(1) if call.node.attrs["keepdims"] else result


def _split(call: _Followed) -> list[Known]:
    data = call.data(0)
    lengths = [call.shape(name)[0] for name in call.node.outputs if name and data.ndim == 1]
    ends = np.cumsum([length for length in lengths if isinstance(length, int)])
    if len(ends) != len(call.node.outputs) or ends[-1] != data.size:
        raise _UnknownError
    return np.split(data, ends[:-1])


_FOLLOWED: Final[Mapping[str, _Rule]] = {
    "Add": _arithmetic(dims.add),
    "Cast": _cast,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Div": _arithmetic(_divide),
    "Equal": _arithmetic(_equal),
    "Gather": _gather,
    "Identity": lambda call: call.data(0),
    "Mul": _arithmetic(dims.multiply),
    "ReduceProd": _product,
    "Reshape": lambda call: call.data(0).reshape(call.numbers(1) or []),
    "Shape": _shape,
    "Size": lambda call: np.asarray(dims.product(call.shape(call.node.inputs[0])), object),
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Sub": _arithmetic(dims.subtract),
    "Unsqueeze": lambda call: np.expand_dims(call.data(0), tuple(call.numbers(1) or [])),
    "Where": _where,
}
