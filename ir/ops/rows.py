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

from ..types import Dim, DType, Quantization, Shape, TensorType, dimensions
from . import dims
from .broadcasting import broadcast_shapes
from .spec import Array, Attr, Attrs, NotCovered, OpSpec, Param, Required, ShapeError, Trait

A = npt.NDArray[Any]
"""An array inside the functions of a row, where arithmetic would be refused on NDArray[generic]."""

FLOATS = frozenset(d for d in DType if d.is_float and not d.is_small_float)
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


def unknown(rank: Dim) -> Shape:
    """A shape of that rank of which nothing else is known."""
    if not isinstance(rank, int):
        raise UnknownRankError
    return (dims.UNKNOWN,) * rank


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

    def along(self, rank: int) -> int:
        """The attribute `axis`, counted from 0 (ShapeError when it is out of range)."""
        return self.axis(integer(self.attrs, "axis"), rank)

    def axes(self, found: Sequence[int], rank: int) -> tuple[int, ...]:
        """Axes that differ, counted from 0 (ShapeError otherwise)."""
        axes = tuple(self.axis(a, rank) for a in found)
        if len(set(axes)) != len(axes):
            raise ShapeError(f"axes must differ, found {list(found)}")
        return axes

    def broadcasts(self, index: int, x: Shape) -> Shape:
        """x, with what an input that must broadcast to it says of its sizes (ShapeError where it
        makes x larger).
        """
        found = broadcast_shapes([x, self.shape(index)], f"x and {self.name(index)}")
        self.check_covered(index, found, x)
        return found

    def check_covered(self, index: int, found: Shape, x: Shape) -> None:
        """Raises ShapeError unless `found`, of an input, may be the shape x of the first one."""
        if len(found) != len(x) or any(dims.differ(f, d) for f, d in zip(found, x, strict=True)):
            raise ShapeError(
                f"{self.name(index)} must broadcast to x, {self.type(0)}, found {self.type(index)}"
            )

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
AxisOf = Callable[[Call, int, Shape | None], int | None]
QuantOf = Callable[[Call, Shape | None], Quantization | None]
Result = DType | tuple[DType, ...] | Callable[[Call], DType | tuple[DType, ...]]

_LETTERS: Mapping[str, Collection[DType]] = {
    "F": FLOATS,
    "N": NUMBERS,
    "I": INDICES,
    "L": frozenset({DType.S64}),
    "B": frozenset({DType.BOOL}),
}


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
    carries: AxisOf | None = None,
    quant: QuantOf | None = None,
    wide: int = 0,
    outputs: tuple[str, ...] = ("y",),
    traits: Collection[Trait] = (),
    **more: Any,
) -> OpSpec:
    """A row of the op table.

    Args:
        name: the op's name.
        doc: what it computes, one line.
        inputs: its inputs, `x:F axes:I?`: a name, the letter of its element type, `?` when
            optional, `*` when it repeats. F: floats, N: numbers, I: indices, L: s64, B: bool; any
            other letter: all types, unless `types` says which. All inputs with one letter have the
            same type.
        shape: shapes of the outputs; a tuple for one output, a list for several.
        compute: `compute(input, ...)`: one array (or None) an input, repeating inputs one after
            another, and behind them the attributes where the row has any; gives one array or a
            tuple of them. May return views of its inputs. Infinity and NaN are results.
        attrs: attributes and their defaults.
        types: what further letters stand for.
        result: element type of each output; default: that of the first input.
        carries: for ops whose first output holds elements of the first input: (call, axis, shape)
            -> the axis of the result that the axis of a quantization has become, or None.
        quant: quantization of the first output, where `carries` cannot tell; default: none.
        wide: how many inputs are computed in f32 where they are half precision; the first output is
            rounded once then.
        outputs, traits: as in OpSpec.
        **more: effort, onnx, primitive, eltwise, parameters, binary: as in OpSpec.
    """
    params, letters = _params(inputs)
    allowed = {**_LETTERS, **(types or {})}
    told = quant or (_carried(carries) if carries else lambda _call, _shape: None)
    # The first output holds elements of the first input; so do all pieces where the one named
    # output repeats (Split).
    holds = 1 if len(outputs) > 1 else None
    halves = _Halves(name, params, letters, allowed, shape, result, told, holds)
    return OpSpec(
        name=name,
        doc=doc,
        inputs=params,
        attrs=dict(attrs or {}),
        infer=halves.infer,
        evaluate=_Meaning(compute, len(params), bool(attrs), wide).evaluate,
        outputs=outputs,
        traits=frozenset(traits),
        **more,
    )


@dataclass(frozen=True)
class _Halves:
    """The halves of a row that give types.

    Attributes:
        name, shape, result: as `row` has them.
        params, letters: the inputs, and the letter of each one's element type.
        allowed: what the letters stand for.
        quant: the quantization of an output.
        holds: how many outputs have one; None: all.
    """

    name: str
    params: tuple[Param, ...]
    letters: tuple[str, ...]
    allowed: Mapping[str, Collection[DType]]
    shape: ShapeOf
    result: Result | None
    quant: QuantOf
    holds: int | None

    def infer(
        self, given: Sequence[TensorType | None], attributes: Attrs, data: Sequence[Array | None]
    ) -> tuple[TensorType, ...]:
        """The types of the outputs."""
        call = _call(self.name, self.params, given, attributes, data)
        _check_types(call, self.letters, self.allowed)
        result = self.result
        dtypes = (
            result(call) if callable(result) else call.type(0).dtype if result is None else result
        )
        shapes = self._shapes(call, dtypes)
        several = dtypes if isinstance(dtypes, tuple) else (dtypes,) * len(shapes)
        quants: list[Quantization | None] = [None] * len(shapes)
        for place, found in list(enumerate(shapes))[: self.holds]:
            quants[place] = self.quant(call, found)
        return tuple(TensorType(d, s, q) for d, s, q in zip(several, shapes, quants, strict=True))

    def _shapes(self, call: Call, dtypes: DType | tuple[DType, ...]) -> Sequence[Shape | None]:
        try:
            found = self.shape(call)
        except ShapeError:
            raise
        except (ValueError, LookupError, ArithmeticError) as error:
            # a kernel of another rank, a size that is infinite: sizes or attributes without sense
            raise ShapeError(f"its attributes or shapes make no sense: {error}") from error
        except UnknownRankError as unknown:
            return [None] * (len(dtypes) if isinstance(dtypes, tuple) else unknown.outputs)
        return found if isinstance(found, list) else [found]


@dataclass(frozen=True)
class _Meaning:
    """The half of a row that computes.

    Attributes:
        compute, wide: as `row` has them.
        inputs: how many there may be.
        takes_attrs: `compute` gets the attributes.
    """

    compute: Callable[..., A | tuple[A, ...]]
    inputs: int
    takes_attrs: bool
    wide: int

    def evaluate(self, arrays: Sequence[Array | None], attributes: Attrs) -> tuple[Array, ...]:
        """The outputs."""
        given = [*arrays, *[None] * (self.inputs - len(arrays))]
        for place, array in enumerate(given[: self.wide]):
            if array is not None and array.dtype == np.float16:
                given[place] = array.astype(np.float32)
        with np.errstate(all="ignore"):
            found = self.compute(*given, attributes) if self.takes_attrs else self.compute(*given)
        # NumPy gives scalars, which are no arrays, where all operands have no dimensions; of texts,
        # which are objects here, it gives the text.
        several: Sequence[Any] = found if isinstance(found, tuple) else (found,)
        results = [np.asarray(y, object if isinstance(y, str) else None) for y in several]
        if self.wide and arrays[0] is not None:
            results[0] = results[0].astype(arrays[0].dtype, copy=False)
        return tuple(results)


def _carried(carries: AxisOf) -> QuantOf:
    """The quantization of the first input, along the axis that its axis has become; none where that
    cannot be told.
    """

    def quant(call: Call, shape: Shape | None) -> Quantization | None:
        found = call.type(0).quant
        if found is None or found.axis is None:
            return found
        try:
            axis = carries(call, found.axis, shape)
        except UnknownRankError:
            return None
        return None if axis is None else found.with_axis(axis)

    return quant


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


def same_shape(call: Call) -> Shape:
    """The shape of the first input."""
    return call.shape(0)


def unary(
    name: str,
    doc: str,
    function: Callable[..., A],
    *,
    letter: str = "F",
    shape: Callable[[Call], Shape] = same_shape,
    traits: Collection[Trait] = (),
    eltwise: str | None = None,
    **more: Any,
) -> OpSpec:
    """A row of one input."""
    return row(
        name,
        doc,
        f"x:{letter}",
        shape=shape,
        compute=function,
        traits={Trait.ELEMENTWISE, *traits},
        primitive="eltwise" if eltwise else None,
        eltwise=eltwise,
        **more,
    )
