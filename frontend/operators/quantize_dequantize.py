"""QuantizeLinear and DequantizeLinear of every opset, and their twins in com.microsoft and in
NVIDIA's domain trt.

With constant parameters they become Quantize and Dequantize, whose scale and zero point are
attributes. What that form cannot hold becomes a form with parameters as operands (`run_time`), a
decoded constant or constant codes (`blocked`), or else ONNX's own op by its row of the op table
(`ir/ops/linear.py`), and a Decision says why. An integer Clip between the two (Brevitas and PyTorch
write fewer than 8 bits and narrow ranges so) becomes the range of the Quantize.

Scales may be powers of two (float8e8m0). Codes that are floats of 8 or 4 bits (float8e4m3fn,
float8e5m2 and their fnuz forms, float4e2m1) run, but do not fuse: oneDNN 3.2 multiplies none.
Weights are decoded at compile time, activations by f32 operations and a Cast (`float_codes`).

x/scale is computed in f32, also where x and scale are f16 and ONNX would divide in f16: ONNX
Runtime divides in f32 as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from ...errors import UnsupportedOp
from ...ir.decision import Decision, Outcome
from ...ir.ops.spec import Attr
from ...ir.rule import Refusal
from ...ir.types import DType, Quantization, dimensions
from ..element_types import dtype_of
from ..importer import Handler, Importer
from ..nodes import DEFAULT_DOMAIN, OnnxNode, normal_domain
from . import float_codes, run_time
from .blocked import decode_blocks, encode_blocks
from .derived import FOLD_HINT, RULE

_NVIDIA: Final = "trt"
_LEAST_SCALE: Final = 2.0**-63
_LARGEST_SCALE: Final = 2.0**63
_LARGEST_F32: Final = float(np.finfo(np.float32).max)
_AXIS_HINT: Final = "set axis to the dimension that the scales run along"


def import_quantize(ctx: Importer, node: OnnxNode) -> None:
    """QuantizeLinear(x, y_scale, y_zero_point?){axis, block_size, output_dtype, precision,
    saturate}.
    """
    _check_wires(node)
    node = _with_real_scale(ctx, node)
    x, output = node.input(0), node.output(0)
    # A part of a dialect's node has a quantizer already.
    names = ctx.codes.get(output) or (ctx.add_quantizer(node, node.op, x),)
    dtype = _code_type(ctx, node)
    if dtype.is_small_float and not node.attr("block_size", 0):
        float_codes.encode(ctx, node, dtype, names)
        return
    quant = _precision(node) or _quantization(ctx, node)
    if isinstance(quant, Refusal):
        ctx.codes[output] = names
        if encode_blocks(ctx, node, dtype, names):
            return
        if run_time.encode(ctx, node, dtype, names):
            return
        ctx.refuse(node, RULE, quant)
        _by_row(ctx, node, names, dtype)
        return
    lo, hi, output, absorbed = _clipped(ctx, node, dtype)
    is_half = ctx.type(x).dtype in {DType.F16, DType.BF16}
    source = ctx.cast(node, x, DType.F32, "f32") if is_half else x
    attrs: dict[str, Attr] = {
        "quant": quant,
        "dtype": dtype,
        "lo": lo,
        "hi": hi,
        "order": "round_first",
    }
    ctx.emit(
        node, "Quantize", (source,), attrs, outputs=(output,), quantizer=names, absorbed=absorbed
    )
    ctx.codes[output] = names


def import_dequantize(ctx: Importer, node: OnnxNode) -> None:
    """DequantizeLinear(x, x_scale, x_zero_point?){axis, block_size, output_dtype}."""
    _check_wires(node)
    node = _with_real_scale(ctx, node)
    x = node.input(0)
    names = ctx.codes.get(x) or (ctx.add_quantizer(node, _source_form(ctx, x), x),)
    if ctx.type(x).dtype.is_small_float and not node.attr("block_size", 0):
        float_codes.decode(ctx, node, names)
        return
    quant = _quantization(ctx, node)
    if isinstance(quant, Refusal):
        if node.attr("block_size", 0) > 0 and decode_blocks(ctx, node, names):
            ctx.refuse(node, RULE, quant)
        elif not run_time.decode(ctx, node, names):
            ctx.refuse(node, RULE, quant)
            _by_row(ctx, node, names)
        return
    result = _real_type(ctx, node)
    if result is DType.F32:
        ctx.emit(
            node, "Dequantize", (x,), {"quant": quant}, outputs=node.outputs[:1], quantizer=names
        )
    else:
        real = ctx.emit(node, "Dequantize", (x,), {"quant": quant}, quantizer=names)
        ctx.cast(node, real, result, "cast", output=node.output(0))


def _check_wires(node: OnnxNode) -> None:
    # ONNX's own are checked against their schema before; the twins have none.
    if (
        len(node.inputs) not in {2, 3}
        or not node.input(0)
        or not node.input(1)
        or not node.output(0)
    ):
        raise node.invalid(
            f"{node.op} needs a tensor, a scale, and one output", "export the model again"
        )


def _with_real_scale(ctx: Importer, node: OnnxNode) -> OnnxNode:
    """The node with its scale in f32, where it is a power of two, float8e8m0: f32 holds each."""
    scale = node.input(1)
    if ctx.type(scale).dtype is not DType.F8E8M0:
        return node
    data = ctx.constant(scale)
    real = (
        ctx.cast(node, scale, DType.F32, "scale")
        if data is None
        else ctx.add_constant(node, "scale", data, DType.F32)
    )
    return node.rewritten(inputs=(node.input(0), real, *node.inputs[2:]))


def _source_form(ctx: Importer, value: str) -> str:
    if ctx.graph.constant(value) is not None:
        return "DequantizeLinear on a constant"
    return "DequantizeLinear on an input" if value in ctx.graph.inputs else "DequantizeLinear"


def _by_row(
    ctx: Importer, node: OnnxNode, names: tuple[str, ...], dtype: DType | None = None
) -> None:
    """ONNX's own op, into codes of a type, or out of codes where none is given."""
    attrs: dict[str, Attr] = {name: node.attr(name, value) for name, value in _BY_ROW.items()}
    if dtype is not None:
        wanted = node.attr("precision", TensorProto.UNDEFINED)
        attrs["precision"] = dtype_of(wanted, node.where) if wanted else None
        attrs |= {"output_dtype": dtype, "saturate": node.attr("saturate", 1)}
        inputs, outputs = node.inputs, node.outputs[:1]
        ctx.emit(node, "QuantizeLinear", inputs, attrs, outputs=outputs, quantizer=names)
        return
    scale = ctx.cast(node, node.input(1), DType.F32, "scale")
    inputs, result = (node.input(0), scale, *node.inputs[2:]), _real_type(ctx, node)
    last = node.outputs[:1] if result is DType.F32 else None
    real = ctx.emit(node, "DequantizeLinear", inputs, attrs, outputs=last, quantizer=names)
    if last is None:
        ctx.cast(node, real, result, "cast", output=node.output(0))


_BY_ROW: Final = {"axis": 1, "block_size": 0}


def _real_type(ctx: Importer, node: OnnxNode) -> DType:
    """The type that a DequantizeLinear gives."""
    wanted = node.attr("output_dtype", TensorProto.UNDEFINED)
    return dtype_of(wanted, node.where) if wanted else ctx.type(node.input(1)).dtype


# -- parameters ------------------------------------------------------------------------------------


def _code_type(ctx: Importer, node: OnnxNode) -> DType:
    """Type of the codes: the zero point's; without one `output_dtype`, else u8."""
    wanted = node.attr("output_dtype", TensorProto.UNDEFINED)
    if normal_domain(node.domain) == _NVIDIA and not (wanted or node.input(2)):
        raise UnsupportedOp(
            f"{node.op} of {_NVIDIA} without a zero point, whose type is that of the codes",
            where=node.where,
            hint="give it a zero point of the type of the codes",
        )
    given = dtype_of(wanted, node.where) if wanted else DType.U8
    dtype = ctx.type(node.input(2)).dtype if node.input(2) else given
    if not (dtype.is_integer or dtype.is_small_float):
        raise node.invalid(
            f"codes cannot be of type {dtype.value}",
            "give the zero point an integer type of 2, 4, 8 or 16 bits, or a float8 one",
        )
    return dtype


def _precision(node: OnnxNode) -> Refusal | None:
    wanted = node.attr("precision", TensorProto.UNDEFINED)
    if wanted in {TensorProto.UNDEFINED, TensorProto.FLOAT}:
        return None
    name = dtype_of(wanted, node.where).value
    return Refusal(
        "x/scale is asked for in another precision",
        "f32",
        name,
        "drop the attribute precision, or set it to FLOAT",
    )


def _quantization(ctx: Importer, node: OnnxNode) -> Quantization | Refusal:
    """Scale, zero point and axis as constants.

    Raises:
        InvalidModel: shapes that do not fit.
    """
    block = node.attr("block_size", 0)
    if block < 0:
        raise node.invalid(
            f"block_size is {block}, and ONNX demands a positive one",
            "leave it out, or name the size of a block",
        )
    if block:
        hint = "quantize per tensor or per channel where int8 arithmetic is wanted"
        return Refusal(
            "the scales are in blocks", "per-tensor or per-axis scales", f"blocks of {block}", hint
        )
    scale = ctx.constant(node.input(1))
    zero = ctx.constant(node.input(2)) if node.input(2) else np.zeros((), np.int8)
    if scale is None or zero is None:
        which = node.input(1) if scale is None else node.input(2)
        return Refusal(
            "a parameter is known at run time only",
            "constant scale and zero point",
            f"{which} is computed",
            FOLD_HINT,
        )
    scales, zeros = scale.astype(np.float32), zero.astype(np.float32)
    if not scales.size or not zeros.size:
        return Refusal(
            "there are no parameters",
            "a scale and a zero point",
            "none",
            "leave out what has no elements",
        )
    if not np.isfinite(scales).all() or not scales.all():
        return Refusal(
            "a scale is zero or not finite",
            "finite scales other than 0",
            _worst(scales, scales == 0),
            "calibrate again with data in which this value varies, or leave it unquantized",
        )
    inverse = 1.0 / np.abs(scales.astype(np.float64))
    if inverse.max() > _LARGEST_F32:
        return Refusal(
            "a scale is so small that f32 has no reciprocal of it",
            f"scales from {_LEAST_SCALE:g} to {_LARGEST_SCALE:g}",
            _worst(scales, inverse > _LARGEST_F32),
            "calibrate again with data in which this value varies, or leave it unquantized",
        )
    _tell_odd(ctx, node, scales)
    if scales.size == 1 and zeros.size == 1:
        return Quantization.of(scales.reshape(-1), zeros.reshape(-1))
    return _per_axis(ctx, node, scales, zeros)


def _per_axis(
    ctx: Importer, node: OnnxNode, scales: npt.NDArray[np.float32], zeros: npt.NDArray[np.float32]
) -> Quantization | Refusal:
    if scales.ndim != 1 or zeros.shape not in {(), (1,), scales.shape}:
        found = f"{list(scales.shape)} and {list(zeros.shape)}"
        raise node.invalid(
            f"scale and zero point have the shapes {found}",
            "make them scalars, or 1-D of one length",
        )
    shape = ctx.type(node.input(0)).shape
    if shape is None:
        hint = "give the graph's inputs a shape (sizes may stay symbolic)"
        return Refusal(
            "the axis of the scales cannot be told", "a value of known rank", "unknown rank", hint
        )
    rank = len(shape)
    axis = node.attr("axis", 1)
    if rank == 1:  # ONNX: the axis does not matter then
        axis = 0
    if not -rank <= axis < rank:
        raise node.invalid(f"axis {axis} is out of range for {dimensions(rank)}", _AXIS_HINT)
    axis %= rank
    size = shape[axis]
    if isinstance(size, int) and size != scales.size:
        raise node.invalid(
            f"{scales.size} scales do not fit dimension {axis} of size {size}", _AXIS_HINT
        )
    return Quantization.of(scales, zeros.reshape(-1), axis)


def _tell_odd(ctx: Importer, node: OnnxNode, scales: npt.NDArray[np.float32]) -> None:
    """Says what ONNX allows and no calibration gives: the model is taken by its word."""
    sizes = np.abs(scales)
    odd = (scales < 0) | (sizes < _LEAST_SCALE) | (sizes > _LARGEST_SCALE)
    if odd.any():
        reason = "taken as it is: a scale is negative, or so small or large that products of two leave the range of f32"
        expected = f"scales from {_LEAST_SCALE:g} to {_LARGEST_SCALE:g}"
        worst = _worst(scales, odd)
        ctx.graph.decide(
            Decision(RULE, node.origin, Outcome.FIRED, reason, expected, worst, "calibrate again")
        )


def _worst(scales: npt.NDArray[np.float32], odd: npt.NDArray[np.bool_]) -> str:
    bad = scales[~np.isfinite(scales) | odd]
    return f"{bad.size} of {scales.size} scales, the first {bad.flat[0]}"


# -- the Clip between the two ----------------------------------------------------------------------


def _clipped(ctx: Importer, node: OnnxNode, dtype: DType) -> tuple[int, int, str, tuple[str, ...]]:
    """Range of the codes, name of the value that holds them, and the names of the Clip that was
    taken in.
    """
    low, high = dtype.range
    output = node.output(0)
    plain = (low, high, output, ())
    readers = ctx.readers(output)
    if len(readers) != 1 or output in ctx.model_outputs:
        return plain
    index, clip = readers[0]
    if (
        clip.op_type != "Clip"
        or normal_domain(clip.domain)
        or list(clip.input).index(output) != 0
        or len(clip.output) != 1
    ):
        return plain
    lo, hi = (
        _bound(ctx, clip.input[i] if i < len(clip.input) else "", limit)
        for i, limit in ((1, low), (2, high))
    )
    if lo is None or hi is None or max(lo, low) > min(hi, high):
        return plain
    ctx.absorbed.add(index)
    return max(lo, low), min(hi, high), clip.output[0], (clip.name or clip.output[0],)


def _bound(ctx: Importer, value: str, absent: int) -> int | None:
    """A bound of an integer Clip; None when it is known at run time only."""
    data = ctx.constant(value) if value else np.asarray(absent)
    return None if data is None or data.size != 1 else int(np.asarray(data).item())


HANDLERS: Final[Mapping[tuple[str, str], Handler]] = {
    (domain, op): handler
    for domain in (DEFAULT_DOMAIN, "com.microsoft", _NVIDIA)
    for op, handler in (
        ("QuantizeLinear", import_quantize),
        ("DequantizeLinear", import_dequantize),
    )
}
