"""Rows of QuantizeLinear and DequantizeLinear: each form that ONNX has, with operands for parameters.

The usual forms, which primitives take, become Quantize, Dequantize and RunTimeDequantize. What is
left comes here: scales in blocks, codes of any type by computed scales, and scales that are 0, not
finite, or so small that f32 has no reciprocal of them.
"""

from __future__ import annotations

import numpy as np

from ..types import DType, Shape
from . import dims
from .elementwise import round_to_bf16
from .rows import FLOATS, A, Call, integer, row
from .small_floats import rounded
from .spec import Attr, Attrs, Effort, OpSpec, Required, ShapeError, Trait

_INTEGER_CODES = frozenset(d for d in DType if d.is_integer and d.bits <= 16)
_SMALL_FLOATS = frozenset(d for d in DType if d.is_small_float and d is not DType.F8E8M0)
CODES = _INTEGER_CODES | _SMALL_FLOATS
"""Types of codes."""

_REALS = FLOATS | {DType.S32}


def _shape(call: Call) -> Shape:
    """The shape of x, if the parameters fit it: one number each, vectors along the axis, or one for
    each block along the axis.
    """
    x, axis, block = call.shape(0), integer(call.attrs, "axis"), integer(call.attrs, "block_size")
    scale = call.type(1).shape
    if block < 0:
        raise ShapeError(f"block_size is {block}, and ONNX demands a positive one")
    if scale is None:
        return x
    if block or not _may_be_one(scale):
        axis = call.axis(0 if len(x) == 1 and not block else axis, len(x))
        wanted: Shape = (x[axis],)
        if block:
            wanted = (*x[:axis], dims.ceil_div(x[axis], block), *x[axis + 1 :])
        if len(scale) != len(wanted) or any(map(dims.differ, scale, wanted)):
            where = f"in blocks of {block} along" if block else "along"
            raise ShapeError(
                f"{call.name(1)} {call.type(1)} does not fit {call.type(0)} {where} axis {axis}: it must have the shape {list(wanted)}"
            )
    zero = call.type(2).shape if call.has(2) else None
    given = zero is not None and not _may_be_one(zero)
    if zero and given and (len(zero) != len(scale) or any(map(dims.differ, zero, scale))):
        raise ShapeError(f"{call.name(2)} {call.type(2)} must have the shape of {call.type(1)}")
    return x


def _may_be_one(shape: Shape) -> bool:
    """True where a parameter of this shape can be one number."""
    return shape == () or (len(shape) == 1 and not dims.differ(shape[0], 1))


def _along(value: A, x: A, attrs: Attrs) -> A:
    """A parameter as it broadcasts to x."""
    axis, block = integer(attrs, "axis"), integer(attrs, "block_size")
    if value.shape in ((), (1,)):
        return value.reshape(())
    if block:
        axis %= x.ndim
        return np.take(value, np.arange(x.shape[axis]) // block, axis)
    axis = 0 if x.ndim == 1 else axis % x.ndim
    return value.reshape([-1 if i == axis else 1 for i in range(x.ndim)])


def _quotient(x: A, scale: A, attrs: Attrs) -> A:
    """x / scale in the wanted precision, f32 where none is given."""
    wanted = attrs["precision"]
    if x.dtype.kind == "i" or wanted is DType.F64:
        return np.asarray(x.astype(np.float64) / scale.astype(np.float64))
    found = np.asarray(x.astype(np.float32) / scale.astype(np.float32))
    if wanted is DType.F16:
        return found.astype(np.float16).astype(np.float32)
    return round_to_bf16(found) if wanted is DType.BF16 else found


def _code_type(attrs: Attrs) -> DType:
    dtype = attrs["output_dtype"] or DType.U8
    if not isinstance(dtype, DType) or dtype not in CODES:
        raise ShapeError(f"codes cannot be of type {dtype!r}")
    return dtype


def _quantize_linear(x: A, scale: A, zero: A | None, attrs: Attrs) -> A:
    dtype = _code_type(attrs)
    t = _quotient(x, _along(scale, x, attrs), attrs)
    shift = np.zeros((), t.dtype) if zero is None else _along(zero, x, attrs).astype(t.dtype)
    if dtype.is_small_float:
        return rounded(t + shift, dtype, saturate=bool(integer(attrs, "saturate")))
    np.rint(t, out=t)
    t += shift
    low, high = dtype.range
    # fmax takes the number where the other is NaN: NaN becomes the lowest code.
    np.fmax(t, t.dtype.type(low), out=t)
    np.fmin(t, t.dtype.type(high), out=t)
    return t.astype(dtype.numpy)


def _dequantize_linear(x: A, scale: A, zero: A | None, attrs: Attrs) -> A:
    y = x.astype(np.float32)
    if zero is not None:
        y -= _along(zero, x, attrs).astype(np.float32)
    y *= _along(scale, x, attrs)
    return y


_PARAMETERS: dict[str, Attr | Required] = {"axis": 1, "block_size": 0, "output_dtype": None}

LINEAR: tuple[OpSpec, ...] = (
    row(
        "QuantizeLinear",
        "round(x / scale) + zero point, saturated to codes of `output_dtype`; NaN gives the lowest code. x / scale is f32, or `precision`.",
        "x:T y_scale:S y_zero_point:C?",
        attrs={**_PARAMETERS, "precision": None, "saturate": 1},
        types={"T": _REALS, "S": _REALS, "C": CODES},
        shape=_shape,
        compute=_quantize_linear,
        result=lambda call: _code_type(call.attrs),
        traits={Trait.TELLS_ZERO},
        effort=Effort.LOOPS,
    ),
    row(
        "DequantizeLinear",
        "(f32(x) - zero point) * scale, in f32.",
        "x:C x_scale:S x_zero_point:C?",
        attrs=_PARAMETERS,
        types={"C": CODES | {DType.S32}, "S": {DType.F32}},
        shape=_shape,
        compute=_dequantize_linear,
        result=DType.F32,
        effort=Effort.PASSES,
    ),
)
