"""How a row of the op table is written: `row(...)` and what it gives to the functions of a row.

A row is written in halves that stay small: `shape` (shapes of the outputs), `result` (their element
types), `quant` (the quantization that survives) and `compute` (the NumPy meaning, with one argument
an input and the attributes last). `row` makes of them the `infer` and `evaluate` of an OpSpec and
does what all rows share: it counts inputs, demands those that are not optional, checks element
types, and gives outputs of unknown rank where an input's rank is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..types import DType, Quantization, Shape, TensorType, dimensions
from .spec import Array, Attr, Attrs, NotCovered, OpSpec, Param, Required, ShapeError, Trait

__all__ = [
    "ANY",
    "FLOATS",
    "INDICES",
    "INTEGERS",
    "LAYOUT",
    "NUMBERS",
    "A",
    "Call",
    "UnknownRankError",
    "flag",
    "integer",
    "integers",
    "not_covered",
    "number",
    "row",
    "text",
]

A = npt.NDArray[Any]
"""An array inside the functions of a row, where arithmetic would be refused on NDArray[generic]."""

FLOATS = frozenset({DType.F32, DType.F64, DType.F16, DType.BF16})
INTEGERS = frozenset(d for d in DType if d.is_integer)
NUMBERS = FLOATS | INTEGERS
ANY = frozenset(DType)
INDICES = frozenset({DType.S32, DType.S64})

LAYOUT = frozenset({Trait.LAYOUT_ONLY, Trait.SCALE_COMMUTING})
"""Traits of what moves, copies or drops elements: each output element is an input element."""


# -- attributes ------------------------------------------------------------------------------------


def integer(attrs: Attrs, name: str) -> int:
    """An integer attribute (ShapeError when it is no integer)."""
    value = attrs[name]
    if not isinstance(value, int) or isinstance(value, bool):
        raise ShapeError(f"attribute {name} must be an integer, found {value!r}")
    return value


def flag(attrs: Attrs, name: str) -> bool:
    """A switch that ONNX writes as the integer 0 or 1 (ShapeError otherwise)."""
    value = attrs[name]
    if value not in (0, 1) or not isinstance(value, int):
        raise ShapeError(f"attribute {name} must be 0 or 1, found {value!r}")
    return bool(value)


def integers(attrs: Attrs, name: str) -> tuple[int, ...]:
    """An attribute that is a tuple of integers (ShapeError otherwise)."""
    value = attrs[name]
    if not isinstance(value, tuple) or not all(isinstance(v, int) for v in value):
        raise ShapeError(f"attribute {name} must be a tuple of integers, found {value!r}")
    return tuple(v for v in value if isinstance(v, int))


def number(attrs: Attrs, name: str) -> float:
    """A numeric attribute as a float (ShapeError otherwise)."""
    value = attrs[name]
    if not isinstance(value, int | float):
        raise ShapeError(f"attribute {name} must be a number, found {value!r}")
    return float(value)


def text(attrs: Attrs, name: str, allowed: Collection[str] = ()) -> str:
    """A text attribute, one of `allowed` if that is given (ShapeError otherwise)."""
    value = attrs[name]
    if not isinstance(value, str) or (allowed and value not in allowed):
        expected = " or ".join(sorted(allowed)) or "a text"
        raise ShapeError(f"attribute {name} must be {expected}, found {value!r}")
    return value


# -- what shape functions are given ----------------------------------------------------------------


class UnknownRankError(Exception):
    """The rank of an output cannot be told (an input's is unknown); `row` answers with `outputs`
    outputs of unknown rank.
    """

    def __init__(self, outputs: int = 1) -> None:
        super().__init__(outputs)
        self.outputs = outputs


@dataclass(frozen=True)
class Call:
    """One use of an op, as `infer` sees it: as many types and constants as the row has inputs (or
    the node, for variadic ones).

    Attributes:
        params: the row's inputs.
        types: the type of each input; None for an absent one.
        attrs: complete attributes.
        data: the data of each input that is constant, else None.
    """

    params: tuple[Param, ...]
    types: tuple[TensorType | None, ...]
    attrs: Attrs
    data: tuple[Array | None, ...]

    def name(self, index: int) -> str:
        """The name of input number `index` in the row."""
        return self.params[min(index, len(self.params) - 1)].name

    def has(self, index: int) -> bool:
        """True when the input is there."""
        return index < len(self.types) and self.types[index] is not None

    def type(self, index: int = 0) -> TensorType:
        """The type of an input that must be there."""
        found = self.types[index] if index < len(self.types) else None
        if found is None:
            raise ShapeError(f"input {self.name(index)} is missing")
        return found

    def shape(self, index: int = 0) -> Shape:
        """The shape of an input (the whole answer becomes `unknown rank` when its rank is
        unknown).
        """
        shape = self.type(index).shape
        if shape is None:
            raise UnknownRankError
        return shape

    def rank(self, index: int, expected: int | tuple[int, ...], what: str = "") -> Shape:
        """The shape of an input, which must have `expected` dimensions (one number, or one of
        several).

        Raises:
            ShapeError: it has another number of dimensions.
        """
        shape = self.shape(index)
        allowed = (expected,) if isinstance(expected, int) else expected
        if len(shape) not in allowed:
            raise ShapeError(
                f"{self.name(index)} must have {dimensions(*allowed)}{what and f' ({what})'}, found {self.type(index)}"
            )
        return shape

    def at_least(self, index: int, rank: int) -> Shape:
        """The shape of an input, which must have `rank` dimensions or more (ShapeError
        otherwise).
        """
        shape = self.shape(index)
        if len(shape) < rank:
            raise ShapeError(
                f"{self.name(index)} must have {dimensions(rank)} or more, found {self.type(index)}"
            )
        return shape

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from 0 (ShapeError when it is out of range)."""
        if not -rank <= axis < rank:
            raise ShapeError(f"axis {axis} is out of range for {dimensions(rank)}")
        return axis % rank

    def constant(self, index: int, *, lone: bool = True) -> tuple[int, ...] | None:
        """The integers of a constant input in order, or None when it is absent or known at run time
        only.

        Args:
            index: number of the input.
            lone: whether a number without dimensions stands for a list of one.

        Raises:
            ShapeError: it has more than one dimension, or none where a list is wanted.
        """
        array = self.data[index] if index < len(self.data) else None
        if array is not None and (array.ndim > 1 or (array.ndim == 0 and not lone)):
            raise ShapeError(
                f"{self.name(index)} must have {dimensions(1)}, found {self.type(index)}"
            )
        return (
            None if array is None else tuple(int(v) for v in np.ravel(np.asarray(array, np.int64)))
        )


Shapes = Shape | list[Shape]
ShapeOf = Callable[[Call], Shapes]
QuantOf = Callable[[Call, Shape | None], Quantization | None]
Result = DType | tuple[DType, ...] | Callable[[Call], DType | tuple[DType, ...]]


def row(
    name: str,
    doc: str,
    inputs: str,
    *,
    shape: ShapeOf,
    compute: Callable[..., A | tuple[A, ...]],
    attrs: Mapping[str, Attr | Required] | None = None,
    types: Mapping[str, Collection[DType]] | None = None,
    result: Result | None = None,
    quant: QuantOf | None = None,
    outputs: tuple[str, ...] = ("y",),
    traits: Collection[Trait] = (),
    onnx: bool = True,
    primitive: str | None = None,
    eltwise: str | None = None,
    parameters: tuple[str | float, ...] = (),
    binary: str | None = None,
) -> OpSpec:
    """A row of the op table.

    Args:
        name: the op's name.
        doc: what it computes, one line.
        inputs: its inputs, `x:T weights:T bias:T?`: a name, the letter of its element type, `?`
            when optional, `*` when it repeats.
        shape: shapes of the outputs; a tuple for one output, a list for several.
        compute: `compute(input, ..., attrs)`: one array (or None) an input, repeating inputs one
            after another; gives one array or a tuple of them. May return views of its inputs.
        attrs: attributes and their defaults.
        types: which element types each letter stands for (all inputs with one letter have the same
            type).
        result: element type of each output; default: that of the first input.
        quant: quantization of the first output; default: none.
        outputs, traits, onnx, primitive, eltwise, parameters, binary: as in OpSpec.
    """
    params, letters = _params(inputs)
    allowed = types or {}

    def infer(
        given: Sequence[TensorType | None], attributes: Attrs, data: Sequence[Array | None]
    ) -> tuple[TensorType, ...]:
        call = _call(name, params, given, attributes, data)
        _check_types(call, letters, allowed)
        dtypes = (
            result(call) if callable(result) else call.type(0).dtype if result is None else result
        )
        shapes: Sequence[Shape | None]
        try:
            found = shape(call)
            shapes = found if isinstance(found, list) else [found]
        except UnknownRankError as unknown:
            shapes = [None] * (len(dtypes) if isinstance(dtypes, tuple) else unknown.outputs)
        several = dtypes if isinstance(dtypes, tuple) else (dtypes,) * len(shapes)
        # The first output holds elements of the first input; so do all pieces where the one named
        # output repeats (Split).
        holds = len(shapes) if len(outputs) == 1 else 1
        quants = [
            quant(call, s) if quant is not None and i < holds else None
            for i, s in enumerate(shapes)
        ]
        return tuple(TensorType(d, s, q) for d, s, q in zip(several, shapes, quants, strict=True))

    def evaluate(arrays: Sequence[Array | None], attributes: Attrs) -> tuple[Array, ...]:
        missing = (None,) * (len(params) - len(arrays))
        found = compute(*arrays, *missing, attributes)
        # NumPy gives scalars, which are no arrays, where all operands have no dimensions.
        return tuple(np.asarray(y) for y in (found if isinstance(found, tuple) else (found,)))

    return OpSpec(
        name=name,
        doc=doc,
        inputs=params,
        attrs=dict(attrs or {}),
        infer=infer,
        evaluate=evaluate,
        outputs=outputs,
        traits=frozenset(traits),
        onnx=onnx,
        primitive=primitive,
        eltwise=eltwise,
        parameters=parameters,
        binary=binary,
    )


def _params(inputs: str) -> tuple[tuple[Param, ...], tuple[str, ...]]:
    params, letters = [], []
    for word in inputs.split():
        bare = word.rstrip("?*")
        name, _, letter = bare.partition(":")
        params.append(Param(name, optional=word.endswith("?"), variadic=word.endswith("*")))
        letters.append(letter)
    return tuple(params), tuple(letters)


def _call(
    name: str,
    params: tuple[Param, ...],
    types: Sequence[TensorType | None],
    attrs: Attrs,
    data: Sequence[Array | None],
) -> Call:
    variadic = bool(params) and params[-1].variadic
    if len(types) > len(params) and not variadic:
        raise ShapeError(f"{name} has {len(params)} inputs, found {len(types)}")
    missing = len(params) - len(types)
    call = Call(
        params,
        tuple(types) + (None,) * missing,
        attrs,
        tuple(data) + (None,) * (len(params) - len(data)),
    )
    for index, type_ in enumerate(call.types):
        if type_ is None and not params[min(index, len(params) - 1)].optional:
            raise ShapeError(f"input {call.name(index)} of {name} is missing")
    return call


def _check_types(
    call: Call, letters: tuple[str, ...], allowed: Mapping[str, Collection[DType]]
) -> None:
    bound: dict[str, tuple[str, DType]] = {}
    for index, type_ in enumerate(call.types):
        letter = letters[min(index, len(letters) - 1)]
        if type_ is None or not letter:
            continue
        if type_.dtype not in allowed.get(letter, ANY):
            names = " ".join(d.value for d in DType if d in allowed[letter])
            raise NotCovered(f"{call.name(index)} must be one of {names}, found {type_}")
        first, dtype = bound.setdefault(letter, (call.name(index), type_.dtype))
        if dtype is not type_.dtype:
            raise ShapeError(
                f"{call.name(index)} must have the element type of {first}, {dtype.value}, found {type_}"
            )


def not_covered(what: str) -> NotCovered:
    """The error for a valid use that a row does not cover."""
    return NotCovered(f"{what} is not covered by the op table")
