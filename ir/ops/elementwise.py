"""Rows of arithmetic, comparison and logic, element by element with broadcasting; Clip, Where,
Cast, Identity.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import reduce

import numpy as np

from ..types import DType, Shape
from .broadcasting import broadcast_shapes
from .carried import axis_stays
from .rows import (
    FLOATS,
    INDICES,
    INTEGERS,
    LAYOUT,
    A,
    Call,
    UnknownRankError,
    flag,
    integer,
    not_covered,
    row,
    same_shape,
    text,
    unary,
)
from .small_floats import power_of_two, rounded
from .spec import REQUIRED, Attrs, Effort, OpSpec, ShapeError, Trait

_E, _C, _S = Trait.ELEMENTWISE, Trait.COMMUTATIVE, Trait.SCALE_COMMUTING
_TELLS, _NAN = frozenset({Trait.TELLS_ZERO}), Trait.NAN_BELOW_ZERO
_JUMPS = _TELLS | {Trait.JUMPS}


def broadcast_inputs(call: Call) -> Shape:
    """The shape that all inputs which are there broadcast to; those of known rank have to fit each
    other whatever the rest turns out to be.
    """
    shapes = [t.shape for t in call.types if t is not None]
    found = broadcast_shapes([shape for shape in shapes if shape is not None], "the inputs")
    if None in shapes:
        raise UnknownRankError
    return found


def _binary(
    name: str,
    doc: str,
    function: Callable[..., A],
    *,
    inputs: str = "a:N b:N",
    result: DType | None = None,
    traits: Collection[Trait] = (),
    algorithm: str | None = None,
) -> OpSpec:
    """A row of broadcast inputs of one type. A comparison has an algorithm but no primitive:
    oneDNN's stores 0 and 1, not bool.
    """
    return row(
        name,
        doc,
        inputs,
        shape=broadcast_inputs,
        compute=function,
        result=result,
        traits={_E, *traits},
        primitive="binary" if algorithm is not None and result is None else None,
        binary=algorithm,
    )


def _variadic(name: str, doc: str, function: Callable[[A, A], A], algorithm: str) -> OpSpec:
    """A row of any number of broadcast inputs of one type, combined from left to right."""

    def compute(*values: A) -> A:
        return reduce(function, values)

    return _binary(name, doc, compute, inputs="x:N*", traits={_C}, algorithm=algorithm)


def _mean(*values: A) -> A:
    total = reduce(np.add, values)
    mean: A = np.divide(total, np.asarray(len(values), total.dtype))
    return mean


def _divide(a: A, b: A) -> A:
    # Integers: towards zero, as C and ONNX have it; NumPy rounds down.
    if a.dtype.kind == "f":
        return np.divide(a, b)
    quotient = np.floor_divide(a, b)
    return quotient + ((quotient < 0) & (quotient * b != a)) if a.dtype.kind == "i" else quotient


def _power(x: A, exponent: A) -> A:
    if x.dtype.kind == "f":
        y: A = np.power(x, exponent.astype(x.dtype))
    elif exponent.dtype.kind == "f":
        y = np.power(x.astype(np.float64), exponent)
    else:  # x ** -n of integers: 1/x**n towards zero
        whole = np.power(x.astype(np.int64), np.maximum(exponent, 0))
        fraction = np.trunc(np.power(x.astype(np.float64), exponent)).astype(np.int64)
        y = np.where(exponent >= 0, whole, fraction)
    return y.astype(x.dtype, copy=False)


def _modulo(a: A, b: A, attrs: Attrs) -> A:
    remainder: A = np.fmod(a, b) if flag(attrs, "fmod") else np.mod(a, b)
    return remainder


def _clip(x: A, low: A | None, high: A | None) -> A:
    y = x if low is None else np.maximum(x, low.reshape(()))
    return y if high is None else np.minimum(y, high.reshape(()))


def _clip_shape(call: Call) -> Shape:
    for index in (1, 2):
        if call.has(index) and any(d != 1 for d in call.shape(index)):
            raise ShapeError(f"{call.name(index)} must be a scalar, found {call.type(index)}")
    return call.shape(0)


def _is_infinite(x: A, attrs: Attrs) -> A:
    wanted = (flag(attrs, "detect_negative") & (x < 0)) | (flag(attrs, "detect_positive") & (x > 0))
    found: A = np.isinf(x) & wanted
    return found


def _cast_to(attrs: Attrs) -> DType:
    to = attrs["to"]
    if not isinstance(to, DType):
        raise ShapeError(f"attribute to must be an element type, found {to!r}")
    return to


def _cast_result(call: Call) -> DType:
    to = _cast_to(call.attrs)
    if DType.STRING in (to, call.type(0).dtype):
        raise not_covered("a cast from or to strings")
    return to


def _cast(x: A, attrs: Attrs) -> A:
    # Out of range: what the machine gives, as ONNX leaves it open.
    to = _cast_to(attrs)
    if to is DType.BF16:
        return round_to_bf16(x.astype(np.float32))
    if to is DType.F8E8M0:
        how = text(attrs, "round_mode")
        return power_of_two(x, how, saturate=bool(integer(attrs, "saturate")))
    if to.is_small_float:
        return rounded(x, to, saturate=bool(integer(attrs, "saturate")))
    if to.is_carried:
        low, count = to.range[0], 1 << to.bits  # the lowest bits, as for the wider integers
        return ((x.astype(np.int64) - low) % count + low).astype(to.numpy)
    if x.dtype.kind == "f" and to.is_integer:
        x = x.astype(np.uint64 if to is DType.U64 else np.int64)
    return x.astype(to.numpy, copy=False)


def round_to_bf16(x: A) -> A:
    """The nearest bfloat16 (ties to even), carried in f32; NaN stays NaN."""
    bits = x.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), x, rounded.view(np.float32))


_SIGNED = frozenset({DType.S8, DType.S16, DType.S32, DType.S64}) | FLOATS

_ARITHMETIC = (
    _binary("Add", "a + b.", np.add, traits={_C}, algorithm="add"),
    _binary("Sub", "a - b.", np.subtract, algorithm="sub"),
    _binary("Mul", "a * b.", np.multiply, traits={_C, _S}, algorithm="mul"),
    # Integer division truncates: only of floats it would commute with scales, so the row claims
    # nothing.
    _binary(
        "Div", "a / b; of integers, rounded towards zero.", _divide, traits=_TELLS, algorithm="div"
    ),
    _variadic("Max", "The largest of the inputs.", np.maximum, "max"),
    _variadic("Min", "The smallest of the inputs.", np.minimum, "min"),
    _variadic("Sum", "The sum of the inputs, from left to right.", np.add, "add"),
    _binary(
        "Mean",
        "The sum of the inputs, from left to right, divided by their number.",
        _mean,
        inputs="x:F*",
        traits={_C},
    ),
    row(
        "Pow",
        "x ** exponent, in the type of x; oneDNN's pow where the exponent is a constant scalar.",
        "x:T exponent:N",
        types={"T": FLOATS | INDICES},
        shape=broadcast_inputs,
        compute=_power,
        traits={_E, _NAN},
        eltwise="pow",
    ),
    row(
        "Mod",
        "The remainder of a / b of integers, with the sign of b; with fmod that of a, as C's fmod.",
        "a:T b:T",
        types={"T": INTEGERS},
        attrs={"fmod": 0},
        shape=broadcast_inputs,
        compute=_modulo,
        traits={_E},
        effort=Effort.LOOPS,
    ),
    unary(
        "Neg", "-x.", np.negative, letter="T", types={"T": _SIGNED}, traits={_S}, eltwise="linear"
    ),
    unary("Abs", "|x|.", np.abs, letter="N", traits={_S}, eltwise="abs"),
    unary(
        "Sqrt",
        "Square root; NaN of negative numbers.",
        np.sqrt,
        traits={_NAN},
        eltwise="sqrt",
    ),
    unary("Exp", "e ** x.", np.exp, eltwise="exp"),
    unary(
        "Log",
        "Natural logarithm; NaN of negative numbers.",
        np.log,
        traits={_NAN},
        eltwise="log",
    ),
    unary(
        "Reciprocal",
        "1 / x.",
        np.reciprocal,
        traits=_TELLS,
        eltwise="pow",
        parameters=(1.0, -1.0),
    ),
    unary("Round", "The nearest integer, ties to even.", np.rint, eltwise="round"),
    unary("Floor", "The largest integer <= x.", np.floor, traits=_JUMPS),
    unary("Ceil", "The smallest integer >= x.", np.ceil, traits=_JUMPS),
    unary("Sign", "-1, 0 or 1.", np.sign, letter="N", traits=_JUMPS),
    unary("Sin", "Sine of x in radians.", np.sin),
    unary("Cos", "Cosine of x in radians.", np.cos),
)

_COMPARISON = (
    _binary(
        "Equal",
        "a == b.",
        np.equal,
        inputs="a:T b:T",
        result=DType.BOOL,
        traits={_C},
        algorithm="eq",
    ),
    _binary("Greater", "a > b.", np.greater, result=DType.BOOL, algorithm="gt"),
    _binary("GreaterOrEqual", "a >= b.", np.greater_equal, result=DType.BOOL, algorithm="ge"),
    _binary("Less", "a < b.", np.less, result=DType.BOOL, algorithm="lt"),
    _binary("LessOrEqual", "a <= b.", np.less_equal, result=DType.BOOL, algorithm="le"),
)

_LOGIC = (
    _binary("And", "a and b.", np.logical_and, inputs="a:B b:B", traits={_C}),
    _binary("Or", "a or b.", np.logical_or, inputs="a:B b:B", traits={_C}),
    _binary("Xor", "One of the two, not both.", np.logical_xor, inputs="a:B b:B", traits={_C}),
    unary("Not", "not x.", np.logical_not, letter="B"),
    unary("IsNaN", "x is not a number.", np.isnan, result=DType.BOOL),
    row(
        "IsInf",
        "x is infinite, of a sign that counts.",
        "x:F",
        attrs={"detect_negative": 1, "detect_positive": 1},
        shape=same_shape,
        compute=_is_infinite,
        result=DType.BOOL,
        traits={_E},
        effort=Effort.LOOPS,
    ),
    row(
        "Where",
        "a where the condition holds, else b.",
        "condition:B a:T b:T",
        shape=broadcast_inputs,
        compute=np.where,
        result=lambda call: call.type(1).dtype,
        traits={_E},
        effort=Effort.LOOPS,
    ),
)

_OTHERS = (
    row(
        "Clip",
        "min(max(x, low), high); an absent bound does not act.",
        "x:N min:N? max:N?",
        shape=_clip_shape,
        compute=_clip,
        traits={_E},
        primitive="eltwise",
        eltwise="clip",
    ),
    row(
        "Cast",
        "x in the element type `to` (a DType); `saturate` concerns floats of 8 bits, `round_mode` (`up`, `down`, `nearest`) float8e8m0.",
        "x",
        attrs={"to": REQUIRED, "saturate": 1, "round_mode": "up"},
        shape=same_shape,
        compute=_cast,
        result=_cast_result,
        traits={_E},
    ),
    row(
        "Identity",
        "x.",
        "x",
        shape=same_shape,
        compute=lambda x: x,
        carries=axis_stays,
        traits={_E, *LAYOUT},
        effort=Effort.NONE,
    ),
)

ELEMENTWISE: tuple[OpSpec, ...] = (*_ARITHMETIC, *_COMPARISON, *_LOGIC, *_OTHERS)
