"""Quantization whose parameters are computed while the model runs: DynamicQuantizeLinear,
MatMulInteger and ConvInteger, and Q/DQ with a computed scale and zero point.

They become what static quantization becomes, with the parameters as operands::

    DynamicQuantizeLinear(x)       ->  s, z = DynamicRange(x);  Quantize{1,0}(round(x / s) + z)
    QuantizeLinear(x, s, z)        ->  Quantize{1,0}(round(x / s) + z)          s, z: one number each
    DequantizeLinear(q, s, z)      ->  RunTimeDequantize(q, s, z)
    Cast(MatMulInteger(a, b, ..))  ->  MatMul(RunTimeDequantize(a, 1, az), Dequantize{1,bz}(b))
    ConvInteger(a, @b, az, bz)     ->  ConvInteger(a, @b, az) - bz*ConvInteger(a, @1, az)        bz: computed

ONNX rounds x/s before it adds the zero point; Quantize{1,0} stores the integers that this gives.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
from onnx import NodeProto, TensorProto

from ...ir.ops.spec import Attr
from ...ir.types import DType, Quantization, is_static
from ...plan.accumulator import less_zero_points
from ..importer import Handler, Importer
from ..nodes import DEFAULT_DOMAIN, OnnxNode, normal_domain

_CODES: Final = (DType.U8, DType.S8)
_EXACT_IN_F32: Final = 1 << 24  # every integer up to here is an f32


def encode(ctx: Importer, node: OnnxNode, dtype: DType, names: tuple[str, ...]) -> bool:
    """Imports a QuantizeLinear with scales and zero points that are known at run time only, one or
    one for each index of an axis; False where it has other parameters.
    """
    x, scale, zero = node.input(0), node.input(1), node.input(2)
    floats = {ctx.type(value).dtype for value in (x, scale)}
    axis = _axis(ctx, node)
    if dtype.bits > 8 or floats != {DType.F32} or axis is None:
        return False
    if node.attr("precision") or not ctx.type(x).shape:  # none, or how many is not known
        return False
    scale, zero = (_along(ctx, node, value, axis) for value in (scale, zero))
    _store(ctx, node, x, scale, zero, dtype, names, node.output(0))
    return True


def decode(ctx: Importer, node: OnnxNode, names: tuple[str, ...]) -> bool:
    """Imports a DequantizeLinear with scales and zero points that are known at run time only, one or
    one for each index of an axis; False where it has other parameters.
    """
    codes, scale, zero = node.input(0), node.input(1), node.input(2)
    sums = ctx.type(codes).dtype is DType.S32 and not zero
    known = (sums or ctx.type(codes).dtype in _CODES) and ctx.type(scale).dtype is DType.F32
    wanted = node.attr("output_dtype", TensorProto.UNDEFINED)
    if not known or wanted not in (TensorProto.UNDEFINED, TensorProto.FLOAT):
        return False
    axis = _axis(ctx, node)
    if axis is None:
        return False
    if sums:  # a bias, say: integers, which no primitive decodes
        unit = {"quant": Quantization.of(1.0)}
        real = ctx.emit(node, "Dequantize", (codes,), unit, role="codes", quantizer=names)
        factor = _along(ctx, node, scale, axis)
        ctx.emit(node, "Mul", (real, factor), outputs=node.outputs[:1])
        return True
    inputs = (codes, scale, zero) if zero else (codes, scale)
    attrs: dict[str, Attr] = {} if axis < 0 else {"axis": axis}
    ctx.emit(node, "RunTimeDequantize", inputs, attrs, outputs=node.outputs[:1], quantizer=names)
    return True


_ONE: Final = -1


def _axis(ctx: Importer, node: OnnxNode) -> int | None:
    """The axis that scales and zero points run along, `_ONE` where they are one number each; None
    where none is computed, or they are neither.
    """
    given = [value for value in (node.input(1), node.input(2)) if value]
    computed = any(ctx.constant(value) is None for value in given)
    if not computed or node.attr("block_size", 0):
        return None
    if _are_single(ctx, *given):
        return _ONE
    shape = ctx.type(node.input(0)).shape
    axis = node.attr("axis", 1)
    if shape is None or not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
        return None
    axis %= len(shape)
    alike = all(ctx.type(value).shape == (shape[axis],) for value in given)
    return axis if alike else None


def _along(ctx: Importer, node: OnnxNode, value: str, axis: int) -> str:
    """A vector along an axis with the dimensions of length 1 behind it that broadcasting needs."""
    behind = ctx.rank(node, node.input(0)) - 1 - axis
    if not value or axis == _ONE or not behind:
        return value
    axes = ctx.add_constant(node, "axes", np.arange(1, behind + 1), DType.S64)
    return ctx.emit(node, "Unsqueeze", (value, axes), role="along")


def _are_single(ctx: Importer, *values: str) -> bool:
    """True when each is one number, or absent."""
    shapes = [ctx.type(value).shape for value in values if value]
    return all(shape in ((), (1,)) for shape in shapes)


def _store(
    ctx: Importer,
    node: OnnxNode,
    x: str,
    scale: str,
    zero: str,
    dtype: DType,
    names: tuple[str, ...],
    output: str,
) -> None:
    """round(x / scale) + zero point, as codes."""
    value = ctx.emit(node, "Div", (x, scale), role="scaled")
    value = ctx.emit(node, "Round", (value,), role="rounded")
    if zero:
        shift = ctx.cast(node, zero, DType.F32, "shift")
        value = ctx.emit(node, "Add", (value, shift), role="shifted")
    low, high = dtype.range
    attrs: dict[str, Attr] = {
        "quant": Quantization.of(1.0),
        "dtype": dtype,
        "lo": low,
        "hi": high,
        "order": "round_first",
    }
    ctx.emit(node, "Quantize", (value,), attrs, outputs=(output,), quantizer=names)
    ctx.codes[output] = names


# -- ONNX's dynamic quantization -------------------------------------------------------------------


def _import_dynamic_quantize(ctx: Importer, node: OnnxNode) -> None:
    """y, y_scale, y_zero_point = DynamicQuantizeLinear(x)."""
    x, (y, scale, zero) = node.input(0), (node.output(i) for i in range(3))
    if not x or not y:
        raise node.invalid(
            "DynamicQuantizeLinear needs a tensor and its codes", "export the model again"
        )
    scale, zero = scale or ctx.fresh(f"{node.name}.scale"), zero or ctx.fresh(f"{node.name}.zero")
    ctx.emit(node, "DynamicRange", (x,), outputs=(scale, zero), role="range")
    names = (ctx.add_quantizer(node.name, node.op, x),)
    _store(ctx, node, x, scale, zero, DType.U8, names, y)


def _import_integer_product(ctx: Importer, node: OnnxNode) -> None:
    """MatMulInteger, ConvInteger(a, b, a_zero_point?, b_zero_point?), in s32.

    A product that one Cast to f32 alone reads is a product of decoded codes, by the scale 1, where
    a primitive multiplies codes; another one stays what it is, for f32 rounds its sums.
    """
    a, b, a_zero, b_zero = (node.input(i) for i in range(4))
    for zero in filter(None, (a_zero, b_zero)):
        if 0 in (ctx.type(zero).shape or ()):
            raise node.invalid(f"the zero points {zero!r} are {ctx.type(zero)}, and hold no number")
    if _is_split(ctx, node):
        _split_zero_points(ctx, node)
        return
    cast = _only_cast(ctx, node.output(0)) if a and _are_single(ctx, a_zero) else None
    if cast is not None and not (_sums_in_f32(ctx, node, b) and _multiplies_codes(ctx, node)):
        cast = None
    right = None if cast is None else _weights(ctx, node, b, b_zero)
    if cast is None or right is None:
        ctx.emit(node, node.op, node.inputs, node.attrs, outputs=node.outputs)
        return
    index, proto = cast
    ctx.absorbed.add(index)
    names = ctx.codes.get(a) or (ctx.add_quantizer(f"{node.name}.a", f"{node.op} of codes", a),)
    one = ctx.add_constant(node, "scale", 1.0, DType.F32)
    inputs = (a, one, a_zero) if a_zero else (a, one)
    left = ctx.emit(node, "RunTimeDequantize", inputs, role="a", quantizer=names)
    ctx.emit(
        node,
        "MatMul" if node.op == "MatMulInteger" else "Conv",
        (left, right),
        node.attrs,
        outputs=(proto.output[0],),
        absorbed=(proto.name or proto.output[0],),
    )


def _is_split(ctx: Importer, node: OnnxNode) -> bool:
    """True where zero points of constant weights are computed, and no primitive takes such: those of
    a convolution, or several of a matrix.
    """
    a, b, b_zero = node.input(0), node.input(1), node.input(3)
    codes = ctx.constant(b) if b else None
    if codes is None or not b_zero or ctx.constant(b_zero) is not None or not ctx.type(a).shape:
        return False
    kind = ctx.type(b_zero).shape
    if kind is None or len(kind) > 1 or ctx.type(b).dtype not in _CODES:
        return False
    if node.op == "ConvInteger":
        return kind in ((), (1,), (codes.shape[0],)) and codes.ndim == ctx.rank(node, a)
    return codes.ndim == 2 and kind == (codes.shape[1],) != (1,)


def _split_zero_points(ctx: Importer, node: OnnxNode) -> None:
    """sum of (a - az)*(b - bz) = sum of (a - az)*(b - t) - (bz - t)*(sum of (a - az)), all in s32; t
    makes s8 of the weights, and the last sum is a product with ones, one for each group.
    """
    b, b_zero = node.input(1), node.input(3)
    codes, convolves = np.asarray(ctx.constant(b)), node.op == "ConvInteger"
    middle = 128 if ctx.type(b).dtype is DType.U8 else 0
    less = ctx.add_constant(node, "weights", codes.astype(np.int16) - middle, DType.S8)
    shape = (codes.shape[0], 1)
    if convolves:  # of several groups, each output channel has its own sum
        shape = codes.shape if node.attr("group", 1) != 1 else (1, *codes.shape[1:])
    ones = ctx.add_constant(node, "ones", np.ones(shape), DType.S8)
    inputs = (node.input(0), node.input(2)) if node.input(2) else (node.input(0),)
    product, sums = (
        ctx.emit(node, node.op, (inputs[0], weights, *inputs[1:]), node.attrs, role=role)
        for weights, role in ((less, "product"), (ones, "sums"))
    )
    zero = ctx.cast(node, b_zero, DType.S32, "zero")
    if middle:
        moved = ctx.add_constant(node, "middle", middle, DType.S32)
        zero = ctx.emit(node, "Sub", (zero, moved), role="moved")
    if convolves:
        along = [-1, *[1] * (codes.ndim - 2)]
        wanted = ctx.add_constant(node, "along", along, DType.S64)
        zero = ctx.emit(node, "Reshape", (zero, wanted), role="along")
    taken = ctx.emit(node, "Mul", (sums, zero), role="taken")
    ctx.emit(node, "Sub", (product, taken), outputs=node.outputs)


def _sums_in_f32(ctx: Importer, node: OnnxNode, weights: str) -> bool:
    """False of a convolution that would add more in f32 than it holds exactly: it packs its weights
    beforehand, so that codes computed at run time are decoded.
    """
    if node.op != "ConvInteger" or ctx.constant(weights) is not None:
        return True
    kind = ctx.type(weights)
    return is_static(kind.shape) and math.prod(kind.static_shape[1:]) * 255 * 255 <= _EXACT_IN_F32


def _multiplies_codes(ctx: Importer, node: OnnxNode) -> bool:
    """True when a primitive multiplies the codes of a matrix product: not vectors, and not several
    matrices with several zero points that s8 does not hold their codes less of. f32 rounds the sums
    of these.
    """
    if node.op != "MatMulInteger":
        return True
    a, b, b_zero = node.input(0), node.input(1), node.input(3)
    if any(len(ctx.type(value).shape or ()) < 2 for value in (a, b)):
        return False
    codes, zeros = ctx.constant(b), ctx.constant(b_zero) if b_zero else np.zeros(1)
    if codes is None or zeros is None or codes.ndim == 2 or zeros.size == 1:
        return True  # `split_weights_zero_point` parts those of one matrix
    return zeros.ndim == 1 and less_zero_points(codes, zeros, codes.ndim - 1) is not None


def _only_cast(ctx: Importer, product: str) -> tuple[int, NodeProto] | None:
    """The Cast to f32 that alone reads a product."""
    readers = ctx.readers(product)
    if len(readers) != 1 or product in ctx.model_outputs:
        return None
    index, proto = readers[0]
    if proto.op_type != "Cast" or normal_domain(proto.domain):
        return None
    to = next((item.i for item in proto.attribute if item.name == "to"), 0)
    return (index, proto) if to == TensorProto.FLOAT else None


def _weights(ctx: Importer, node: OnnxNode, codes: str, zero: str) -> str | None:
    """The second factor, decoded by the scale 1; None where several zero points are computed."""
    zeros = ctx.constant(zero) if zero else np.zeros(())
    if not codes or (zeros is not None and zeros.ndim > 1):
        return None
    shape, axis = ctx.type(codes).shape or (), None
    if zeros is not None and zeros.size > 1:
        axis = len(shape) - 1 if node.op == "MatMulInteger" else 0
        if len(shape) < 2 or shape[axis] != zeros.size:
            return None
    if zeros is None and not _are_single(ctx, zero):
        return None
    if codes not in ctx.codes:
        name = ctx.add_quantizer(f"{node.name}.b", f"{node.op} of codes", codes)
        ctx.codes[codes] = (name,)
    names = ctx.codes[codes]
    if zeros is None:
        one = ctx.add_constant(node, "b_scale", 1.0, DType.F32)
        inputs = (codes, one, zero)
        return ctx.emit(node, "RunTimeDequantize", inputs, role="b", quantizer=names)
    quant = Quantization.of(np.ones(zeros.size), zeros.reshape(-1), axis)
    return ctx.emit(node, "Dequantize", (codes,), {"quant": quant}, role="b", quantizer=names)


HANDLERS: Final[Mapping[tuple[str, str], Handler]] = {
    (DEFAULT_DOMAIN, "DynamicQuantizeLinear"): _import_dynamic_quantize,
    (DEFAULT_DOMAIN, "MatMulInteger"): _import_integer_product,
    (DEFAULT_DOMAIN, "ConvInteger"): _import_integer_product,
}
