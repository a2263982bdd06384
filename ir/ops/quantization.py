"""Rows of quantization: FakeQuantize, and fqfuse's own Quantize and Dequantize, whose parameters
are attributes; the two halves whose parameters are computed at run time.
"""

from __future__ import annotations

import numpy as np

from ..types import DType, Quantization, Shape
from . import dims
from .blocks import decoded, decoded_shape, source_codes
from .rows import FLOATS, INTEGERS, A, Call, integer, row, text
from .spec import REQUIRED, Attrs, Effort, OpSpec, ShapeError, Trait

_EXACT_IN_F32 = 1 << 24  # every integer up to here is an f32


def fake_quantize(
    x: A, input_low: A, input_high: A, output_low: A, output_high: A, levels: int
) -> A:
    """FakeQuantize in float64, result f32; the ranges broadcast to x.

    output_low where x <= min(input_low, input_high), output_high where x > max(input_low,
    input_high), else round((x - il) / (ih - il) * (levels-1)) / (levels-1) * (oh - ol) + ol, ties
    to even. NaN stays NaN. An inverted input range (il > ih) is legal, and il == ih makes it a
    threshold.
    Source: OpenVINO's specification of FakeQuantize-1.
    """
    il, ih, ol, oh = (
        r.astype(np.float64) for r in (input_low, input_high, output_low, output_high)
    )
    with np.errstate(all="ignore"):  # il == ih divides by zero; those elements are replaced below
        y = np.asarray((x.astype(np.float64) - il) / (ih - il))  # of scalars NumPy gives no array
        y *= levels - 1
        np.rint(y, out=y)
        y /= levels - 1
        y *= oh - ol
        y += ol
        y = np.where(x <= np.minimum(il, ih), ol, y)
        y = np.where(x > np.maximum(il, ih), oh, y)
        return y.astype(np.float32)


def _fake_quantize(x: A, il: A, ih: A, ol: A, oh: A, attrs: Attrs) -> A:
    return fake_quantize(x, il, ih, ol, oh, integer(attrs, "levels"))


def _fake_quantize_shape(call: Call) -> Shape:
    x = call.shape(0)
    if integer(call.attrs, "levels") < 2:
        raise ShapeError(f"levels must be 2 or more, found {call.attrs['levels']!r}")
    numpy_rule = text(call.attrs, "auto_broadcast", ("none", "numpy")) == "numpy"
    for index in range(1, 5):
        if numpy_rule:
            x = call.broadcasts(index, x)
        else:
            call.check_covered(index, call.shape(index), x)
            x = call.shape(index)
    return x


# -- Quantize, Dequantize --------------------------------------------------------------------------


def _quant_of(attrs: Attrs) -> Quantization:
    quant = attrs["quant"]
    if not isinstance(quant, Quantization):
        raise ShapeError(f"attribute quant must be a Quantization, found {quant!r}")
    return quant


def _dtype_of(attrs: Attrs) -> DType:
    dtype = attrs["dtype"]
    if not isinstance(dtype, DType) or not dtype.is_integer:
        raise ShapeError(f"attribute dtype must be an integer type, found {dtype!r}")
    return dtype


def _check_axis(call: Call) -> Shape:
    """The shape of x; the dimension that the parameters run along has as many elements as they,
    whatever is said of x.
    """
    x, quant = call.shape(0), _quant_of(call.attrs)
    if quant.axis is not None:
        if not 0 <= quant.axis < len(x):
            raise ShapeError(
                f"the axis of the quantization, {quant.axis}, is out of range for {call.type(0)}"
            )
        if dims.differ(x[quant.axis], len(quant.scale)):
            raise ShapeError(
                f"{len(quant.scale)} scales do not fit dimension {quant.axis} of {call.type(0)}"
            )
        return (*x[: quant.axis], len(quant.scale), *x[quant.axis + 1 :])
    return x


def _quantize_shape(call: Call) -> Shape:
    low, high = _dtype_of(call.attrs).range
    lo, hi = integer(call.attrs, "lo"), integer(call.attrs, "hi")
    if not low <= lo <= hi <= high:
        raise ShapeError(
            f"lo and hi must lie in the range of {_dtype_of(call.attrs).value}, [{low}, {high}], found [{lo}, {hi}]"
        )
    text(call.attrs, "order", ("round_first", "zp_first"))
    return _check_axis(call)


def _quantize(x: A, attrs: Attrs) -> A:
    dtype, lo, hi = _dtype_of(attrs), integer(attrs, "lo"), integer(attrs, "hi")
    scale, zero = _quant_of(attrs).shaped(x.ndim)
    t = np.asarray(np.divide(x, scale, dtype=np.float32))  # of scalars NumPy gives no array
    if max(-lo, hi) > _EXACT_IN_F32:  # f32 has neither the bounds nor what lies near them
        t = t.astype(np.float64)
    zero = zero.astype(t.dtype)
    if text(attrs, "order") == "round_first":
        np.rint(t, out=t)
        t += zero
    else:
        t += zero
        np.rint(t, out=t)
    # fmax takes the number where the other is NaN: NaN becomes lo.
    np.fmax(t, t.dtype.type(lo), out=t)
    np.fmin(t, t.dtype.type(hi), out=t)
    return t.astype(dtype.numpy)


def _dequantize(x: A, attrs: Attrs) -> A:
    scale, zero = _quant_of(attrs).shaped(x.ndim)
    y = x.astype(np.float32)
    y -= zero
    y *= scale
    return y


# -- Lookup ----------------------------------------------------------------------------------------


def _lookup_shape(call: Call) -> Shape:
    if call.shape(1) != (256,):
        raise ShapeError(f"table must have 256 entries, found {call.type(1)}")
    return call.shape(0)


def _lookup(x: A, table: A, attrs: Attrs) -> A:  # noqa: ARG001
    # a scalar would come back as [1]
    codes = np.ascontiguousarray(x).view(np.uint8).reshape(x.shape)
    if table.dtype.itemsize > 1:
        return np.take(table, codes)
    # bytes.translate is the table lookup for bytes: several times as fast as indexing, which widens
    # each code first.
    found = np.frombuffer(codes.tobytes().translate(table.tobytes()), table.dtype)
    return found.reshape(x.shape)


# -- parameters that are computed at run time ------------------------------------------------------


def _run_time_dequantize_shape(call: Call) -> Shape:
    """The shape of x; scale and zero point are one number each, of any rank, or vectors along the
    axis.
    """
    x, axis = call.shape(0), call.attrs["axis"]
    if axis is not None and (not isinstance(axis, int) or not 0 <= axis < len(x)):
        raise ShapeError(f"the axis {axis!r} is out of range for {call.type(0)}")
    for index in (1, 2):
        if not call.has(index):
            continue
        shape = call.shape(index)
        single = not any(dims.differ(size, 1) for size in shape)
        if single and axis is None:
            continue
        if axis is None or len(shape) != 1 or dims.differ(shape[0], x[axis]):
            wanted = "one number" if axis is None else f"a vector along axis {axis}"
            raise ShapeError(f"{call.name(index)} must be {wanted}, found {call.type(index)}")
    return x


def _run_time_dequantize(x: A, scale: A, zero_point: A | None, attrs: Attrs) -> A:
    shape = [1] * x.ndim if attrs["axis"] is not None else []
    if shape:
        shape[integer(attrs, "axis")] = -1
    y = x.astype(np.float32)
    if zero_point is not None:
        y -= zero_point.astype(np.float32).reshape(shape)
    y *= scale.reshape(shape)
    return y


def dynamic_range(x: A) -> tuple[A, A]:
    """Scale and zero point of u8 codes for x, as DynamicQuantizeLinear gives them."""
    low = np.minimum(np.min(x, initial=0), np.float32(0))
    high = np.maximum(np.max(x, initial=0), np.float32(0))
    scale = np.asarray((high - low) / np.float32(255), np.float32)
    if scale == 0:  # all zeros: any scale will do
        scale = np.asarray(1, np.float32)
    zero = np.clip(np.rint(-low / scale), 0, 255)
    return scale, np.asarray(zero).astype(np.uint8)


def _dynamic_blocks_shape(call: Call) -> Shape:
    block = integer(call.attrs, "block")
    if block < 1:
        raise ShapeError(f"blocks of {block} elements")
    return call.at_least(0, 1)


def _dynamic_blocks(x: A, attrs: Attrs) -> A:
    codes, scales = source_codes(x, integer(attrs, "block"))
    codes *= scales[..., None]
    return codes.reshape(*x.shape[:-1], -1)[..., : x.shape[-1]]


QUANTIZATION: tuple[OpSpec, ...] = (
    row(
        "FakeQuantize",
        "`levels` equal steps from input_low to input_high, mapped to output_low .. output_high (OpenVINO's FakeQuantize-1).",
        "x:T input_low:F input_high:F output_low:F output_high:F",
        attrs={"levels": REQUIRED, "auto_broadcast": "numpy"},
        types={"T": FLOATS},
        shape=_fake_quantize_shape,
        compute=_fake_quantize,
        result=DType.F32,
        traits={Trait.ELEMENTWISE, Trait.QUANTIZER, Trait.POST_OP},
        onnx=False,
        effort=Effort.LOOPS,
    ),
    row(
        "Quantize",
        "Codes of x: t = x/scale; clip(rint(t + zp), lo, hi) for order zp_first, clip(rint(t) + zp, lo, hi) for round_first; NaN gives lo.",
        "x:T",
        attrs={
            "quant": REQUIRED,
            "dtype": REQUIRED,
            "lo": REQUIRED,
            "hi": REQUIRED,
            "order": REQUIRED,
        },
        types={"T": FLOATS | {DType.S32}},
        shape=_quantize_shape,
        compute=_quantize,
        result=lambda call: _dtype_of(call.attrs),
        quant=lambda call, _: _quant_of(call.attrs),
        traits={Trait.ELEMENTWISE, Trait.QUANTIZER, Trait.POST_OP},
        onnx=False,
        primitive="reorder",
        effort=Effort.LOOPS,
    ),
    row(
        "Dequantize",
        "(f32(x) - zp) * scale.",
        "x:T",
        attrs={"quant": REQUIRED},
        types={"T": INTEGERS},
        shape=_check_axis,
        compute=_dequantize,
        result=DType.F32,
        traits={Trait.ELEMENTWISE, Trait.QUANTIZER, Trait.POST_OP, Trait.KEEPS_ZERO},
        onnx=False,
        primitive="reorder",
    ),
    row(
        "Lookup",
        "table[code], the codes of s8 taken as bytes: entry 255 is that of code -1.",
        "x:C table:V",
        attrs={"quant": None},
        types={"C": {DType.U8, DType.S8}, "V": INTEGERS | FLOATS},
        shape=_lookup_shape,
        compute=_lookup,
        result=lambda call: call.type(1).dtype,
        quant=lambda call, _: None if call.attrs["quant"] is None else _quant_of(call.attrs),
        onnx=False,
    ),
    row(
        "RunTimeDequantize",
        "(f32(x) - zero_point) * scale, by scales and zero points that are computed at run time: one, or one for each index of an axis.",
        "x:C scale:S zero_point:C?",
        attrs={"axis": None},
        types={"C": {DType.U8, DType.S8}, "S": {DType.F32}},
        shape=_run_time_dequantize_shape,
        compute=_run_time_dequantize,
        result=DType.F32,
        traits={Trait.ELEMENTWISE},
        onnx=False,
    ),
    row(
        "DequantizeBlocks",
        "(code - zero_point) * scale of `size` codes of `bits` bits, packed in bytes; a scale for each `block` along the last dimension.",
        "codes:C scales:S zero_points:Z?",
        attrs={"bits": REQUIRED, "block": REQUIRED, "size": REQUIRED},
        types={"C": {DType.U8}, "S": {DType.F32}, "Z": {DType.U8, DType.F32}},
        shape=lambda call: decoded_shape(call, 0),
        compute=decoded,
        result=DType.F32,
        onnx=False,
        effort=Effort.LOOPS,
    ),
    row(
        "DynamicBlocks",
        "x as s8 codes and decoded again: each `block` along the last dimension has a scale of its own, its largest magnitude by 127.",
        "x:T",
        attrs={"block": REQUIRED},
        types={"T": {DType.F32}},
        shape=_dynamic_blocks_shape,
        compute=_dynamic_blocks,
        traits={Trait.KEEPS_ZERO},
        onnx=False,
        effort=Effort.LOOPS,
    ),
    row(
        "DynamicRange",
        "Scale and zero point of u8 codes for the range of x, widened to hold 0 (of ONNX's DynamicQuantizeLinear).",
        "x:T",
        types={"T": {DType.F32}},
        shape=lambda call: [(), ()],  # noqa: ARG005
        compute=dynamic_range,
        traits={Trait.TELLS_ZERO, Trait.JUMPS},
        result=(DType.F32, DType.U8),
        outputs=("scale", "zero_point"),
        onnx=False,
        primitive="dynamic_range",
    ),
)
