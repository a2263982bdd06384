"""Quantization whose parameters are computed while the model runs: DynamicQuantizeLinear,
MatMulInteger and ConvInteger, and Q/DQ with a computed scale and zero point.

They become what static quantization becomes, with the parameters as operands::

    DynamicQuantizeLinear(x)       ->  s, z = DynamicRange(x);  Quantize{1,0}(round(x / s) + z)
    QuantizeLinear(x, s, z)        ->  Quantize{1,0}(round(x / s) + z)          s, z: one each, or along an axis
    DequantizeLinear(q, s, z)      ->  RunTimeDequantize(q, s, z)
    Cast(MatMulInteger(a, b, ..))  ->  MatMul(RunTimeDequantize(a, 1, az), Dequantize{1,bz}(b))
    ConvInteger(a, b, az, bz)      ->  ConvInteger(a, b, az) - bz*ConvInteger(a, 1, az)          b or bz: computed
    MatMulInteger(a, b, az, bz)    ->  MatMulInteger(a, b, az) - bz*MatMulInteger(a, 1, az)      bz: one for each column
    MatMulInteger(a, b, az, bz)    ->  MatMulInteger(a, b, bz) - az*MatMulInteger(1, b, bz)      az: one for each row

ONNX rounds x/s before it adds the zero point; Quantize{1,0} stores the integers that this gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from onnx import NodeProto, TensorProto

from ...ir.ops import dims
from ...ir.ops.spec import Attr
from ...ir.types import DType, Quantization, Shape, is_static
from ...plan.accumulator import less_zero_points
from ..element_types import dtype_of
from ..importer import Handler, Importer
from ..nodes import DEFAULT_DOMAIN, OnnxNode, normal_domain

_CODES: Final = (DType.U8, DType.S8)
_FLOATS: Final = frozenset({DType.F32, DType.F16, DType.BF16})


def encode(ctx: Importer, node: OnnxNode, dtype: DType, names: tuple[str, ...]) -> bool:
    """Imports a QuantizeLinear with scales and zero points that are known at run time only, one or
    one for each index of an axis; False where it has other parameters.
    """
    x, scale, zero = node.input(0), node.input(1), node.input(2)
    floats = {ctx.type(value).dtype for value in (x, scale)}
    axis = _axis(ctx, node)
    if dtype.bits > 8 or not floats <= _FLOATS or axis is None:
        return False
    if node.attr("precision") or not ctx.type(x).shape:  # none, or how many is not known
        return False
    # x/s of half floats is formed in f32, as by constant scales
    x, scale = (
        ctx.cast(node, value, DType.F32, role) for value, role in ((x, "real"), (scale, "scale"))
    )
    scale, zero = (_along(ctx, node, value, axis) for value in (scale, zero))
    _store(ctx, node, x, scale, zero, dtype, names, node.output(0))
    return True


def decode(ctx: Importer, node: OnnxNode, names: tuple[str, ...]) -> bool:
    """Imports a DequantizeLinear with scales and zero points that are known at run time only, one or
    one for each index of an axis; False where it has other parameters.
    """
    codes, scale, zero = node.input(0), node.input(1), node.input(2)
    kind, axis = ctx.type(codes).dtype, _axis(ctx, node)
    if axis is None:
        return False
    if kind.is_integer and kind.bits < 8:
        wide = DType.S8 if kind.range[0] < 0 else DType.U8
        codes = _of_type(ctx, node, codes, wide, "codes")
        zero = zero and _of_type(ctx, node, zero, wide, "zero")
    sums = ctx.type(codes).dtype is DType.S32 and not zero
    if not (sums or ctx.type(codes).dtype in _CODES) or ctx.type(scale).dtype not in _FLOATS:
        return False
    wanted = node.attr("output_dtype", TensorProto.UNDEFINED)
    result = dtype_of(wanted, node.where) if wanted else ctx.type(scale).dtype
    outputs = node.outputs[:1] if result is DType.F32 else None
    scale = ctx.cast(node, scale, DType.F32, "scale")
    if sums:  # a bias, say: integers, which no primitive decodes
        unit = {"quant": Quantization.of(1.0)}
        real = ctx.emit(node, "Dequantize", (codes,), unit, role="codes", quantizer=names)
        factor = _along(ctx, node, scale, axis)
        real = ctx.emit(node, "Mul", (real, factor), outputs=outputs)
    else:
        inputs = (codes, scale, zero) if zero else (codes, scale)
        attrs: dict[str, Attr] = {} if axis < 0 else {"axis": axis}
        real = ctx.emit(node, "RunTimeDequantize", inputs, attrs, outputs=outputs, quantizer=names)
    if outputs is None:
        ctx.cast(node, real, result, "cast", output=node.output(0))
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
    """A vector along an axis with the dimensions of length 1 behind it that broadcasting needs; one
    number without dimensions where it might have more of them than what it is broadcast to.
    """
    if not value:
        return value
    if axis == _ONE:
        larger = not ctx.type(node.input(0)).shape and ctx.type(value).shape != ()
        return ctx.emit(node, "Squeeze", (value,), role="number") if larger else value
    behind = ctx.rank(node, node.input(0)) - 1 - axis
    if not behind:
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
        shift = _of_type(ctx, node, zero, DType.F32, "shift")
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


def _of_type(ctx: Importer, node: OnnxNode, value: str, dtype: DType, role: str) -> str:
    """Integers as numbers of another type; a constant, which may have 4 bits, as a constant."""
    data = ctx.constant(value)
    if data is None:
        return ctx.cast(node, value, dtype, role)
    return ctx.add_constant(node, role, np.asarray(data).astype(dtype.numpy), dtype)


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
    names = (ctx.add_quantizer(node, node.op, x),)
    _store(ctx, node, x, scale, zero, DType.U8, names, y)


def _import_integer_product(ctx: Importer, node: OnnxNode) -> None:
    """MatMulInteger, ConvInteger(a, b, a_zero_point?, b_zero_point?), in s32.

    A product that one Cast to f32 alone reads is a product of decoded codes, by the scale 1, where
    a primitive multiplies codes; another one stays what it is, for f32 rounds its sums. Zero points
    that no primitive takes are multiplied by sums of codes, behind the product.
    """
    a, b, a_zero, b_zero = (node.input(i) for i in range(4))
    _check_zero_points(ctx, node)
    if node.op == "ConvInteger" and _takes_zero_points_apart(ctx, node):
        _split_zero_points(ctx, node)
        return
    # a constant that is decoded is an f32 operand
    decoded = bool(a) and ctx.constant(a) is None and _are_single(ctx, a_zero)
    cast = _only_cast(ctx, node.output(0)) if decoded else None
    if cast is not None and not _multiplies_codes(ctx, node):
        cast = None
    right = None if cast is None else _weights(ctx, node, b, b_zero)
    if cast is None or right is None:
        if node.op == "ConvInteger":
            ctx.emit(node, node.op, node.inputs, node.attrs, outputs=node.outputs)
        else:
            _emit_matrix_product(ctx, node, (a, b, a_zero, b_zero), outputs=node.outputs)
        return
    index, proto = cast
    ctx.absorbed.add(index)
    names = ctx.quantizers_of_codes(node, a)
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


def _check_zero_points(ctx: Importer, node: OnnxNode) -> None:
    """Refuses zero points that are none, or neither one number nor one for each row of a, column of b or
    output channel: taken off behind the product, they would broadcast it to their own shape.

    Raises:
        InvalidModel: there are such.
    """
    matrix = node.op == "MatMulInteger"
    axes = (-2, -1) if matrix else (None, 0)
    for index, axis in enumerate(axes):
        codes, zero = node.input(index), node.input(2 + index)
        shape, found = (
            ctx.type(codes).shape if codes else None,
            ctx.type(zero).shape if zero else (),
        )
        if found is not None and 0 in found:
            raise node.invalid(f"the zero points {zero!r} are {ctx.type(zero)}, and hold no number")
        if shape is None or found is None or not any(dims.differ(size, 1) for size in found):
            continue
        if axis is None or not _is_one_for_each(found, shape, axis, of_several=matrix):
            raise node.invalid(
                f"the zero points {zero!r} are {ctx.type(zero)}, and {codes!r} is {ctx.type(codes)}",
                "give one zero point, or, but for the source of a convolution, one for each row of the first "
                "operand, column of the second, or output channel",
            )


def _is_one_for_each(found: Shape, shape: Shape, axis: int, *, of_several: bool) -> bool:
    """True where zero points may be a vector along the axis of the codes; `of_several`: or such of each
    of several matrices.
    """
    if len(shape) < 2:
        return False
    if len(found) == 1:
        return not dims.differ(found[0], shape[axis])
    along = [*shape[:-2], 1, 1]
    along[axis] = shape[axis]
    pairs = zip(reversed(found), reversed(along), strict=False)
    fit = not any(dims.differ(size, 1) and dims.differ(size, wanted) for size, wanted in pairs)
    return of_several and len(found) <= len(along) and fit


def _takes_zero_points_apart(ctx: Importer, node: OnnxNode) -> bool:
    """True of a ConvInteger whose weights no primitive takes with their zero points, which are multiplied
    by sums of the source's codes instead: zero points that are computed; computed weights that are u8, or
    have a zero point; constant ones that leave s8 when it is taken off, where f32 would round the sums.
    """
    a, b, b_zero = node.input(0), node.input(1), node.input(3)
    shape = ctx.type(b).shape if b else None
    if not is_static(shape) or not ctx.type(a).shape or ctx.type(b).dtype not in _CODES:
        return False
    sizes = ctx.type(b).static_shape
    kind = ctx.type(b_zero).shape if b_zero else ()
    if kind not in ((), (1,), (sizes[0],)) or len(sizes) != ctx.rank(node, a):
        return False
    zeros = ctx.constant(b_zero) if b_zero else np.zeros((), np.int64)
    codes = ctx.constant(b)
    if zeros is None:
        return True
    if codes is None:
        return ctx.type(b).dtype is DType.U8 or bool(np.any(zeros))
    fits = less_zero_points(np.asarray(codes), np.ravel(np.asarray(zeros)), 0) is not None
    return not fits and _only_cast(ctx, node.output(0)) is None


def _split_zero_points(ctx: Importer, node: OnnxNode) -> None:
    """sum of (a - az)*(b - bz) = sum of (a - az)*(b - t) - (bz - t)*(sum of (a - az)), all in s32.

    t is 128 for weights of u8 and 0 for s8: b - t are s8 codes. The last sum, over what each output reads,
    is a convolution of a by weights of 1: by one output channel, or of several groups by as many as b has.
    """
    b, b_zero = node.input(1), node.input(3)
    sizes, kind = ctx.type(b).static_shape, ctx.type(b).dtype
    # of several groups, each output channel has its own sum
    shape = sizes if node.attr("group", 1) != 1 else (1, *sizes[1:])
    ones = ctx.add_constant(node, "ones", np.ones(shape), DType.S8)
    less = ctx.add_constant(node, "less", kind.beyond_s8, kind) if kind.beyond_s8 else ""
    product, sums = (
        ctx.emit(node, node.op, _without_absent(node.input(0), *of), node.attrs, role=role)
        for of, role in (
            ((b, node.input(2), less), "product"),
            ((ones, node.input(2), ""), "sums"),
        )
    )
    along = ctx.add_constant(node, "along", [-1, *[1] * (len(sizes) - 2)], DType.S64)
    if not b_zero:
        b_zero = ctx.add_constant(node, "no_zero_point", 0, kind)
    zero = ctx.emit(node, "Reshape", (_less_beyond(ctx, node, b_zero, b), along), role="along")
    _less_sums(ctx, node, product, sums, zero, outputs=node.outputs)


def _less_beyond(ctx: Importer, node: OnnxNode, zero: str, codes: str) -> str:
    """Zero points in s32, less what makes s8 codes of their codes (`beyond_s8`)."""
    zero, beyond = ctx.cast(node, zero, DType.S32, "zero"), ctx.type(codes).dtype.beyond_s8
    if not beyond:
        return zero
    taken = ctx.add_constant(node, "beyond", beyond, DType.S32)
    return ctx.emit(node, "Sub", (zero, taken), role="moved")


def _less_sums(
    ctx: Importer,
    node: OnnxNode,
    product: str,
    sums: str,
    zero: str,
    *,
    role: str = "",
    outputs: Sequence[str] | None = None,
) -> str:
    """A product without zero points of one operand, less `zero` times the sums of the other operand's
    codes: sum of a*(b - z) = sum of a*b - z * sum of a.
    """
    taken = ctx.emit(node, "Mul", (sums, zero), role=f"{role}taken")
    return ctx.emit(node, "Sub", (product, taken), role=role, outputs=outputs)


def _without_absent(*inputs: str) -> tuple[str, ...]:
    """Inputs up to the last one that there is."""
    count = max((i + 1 for i, value in enumerate(inputs) if value), default=0)
    return inputs[:count]


def _emit_matrix_product(
    ctx: Importer,
    node: OnnxNode,
    operands: tuple[str, str, str, str],
    role: str = "",
    outputs: Sequence[str] | None = None,
) -> str:
    """A product of codes in s32: a primitive takes one zero point for each operand; of several ones,
    for the columns of b or the rows of a, the product with the sums of the other operand's codes
    is taken off behind it.

    Args:
        operands: a, b, and their zero points, which may be absent.
        role: names what is made, where it is a part.
        outputs: names the result, where it is the whole.
    """
    a, b, a_zero, b_zero = operands
    a_shape, b_shape = (ctx.type(value).shape or () for value in (a, b))  # (): of unknown rank
    depth = _depth(a_shape, b_shape)
    if depth is not None and len(b_shape) > 1 and _needs_split(ctx, b, b_zero):
        kind = ctx.type(b).dtype
        one = ctx.add_constant(node, f"{role}less", kind.beyond_s8, kind) if kind.beyond_s8 else ""
        ones = ctx.add_constant(node, f"{role}columns", np.ones((depth, 1)), DType.S8)
        parts = ((a, b, a_zero, one), (a, ones, a_zero, ""))
        zero = _beside(ctx, node, _less_beyond(ctx, node, b_zero, b), a_shape, -1)
    elif depth is not None and len(a_shape) > 1 and a_zero and not _are_single(ctx, a_zero):
        shape = (*[1] * max(len(b_shape) - 2, 0), 1, depth)
        ones = ctx.add_constant(node, f"{role}rows", np.ones(shape), DType.S8)
        parts = ((a, b, "", b_zero), (ones, b, "", b_zero))
        zero = _beside(ctx, node, ctx.cast(node, a_zero, DType.S32, "zero"), b_shape, -2)
    else:
        inputs = _without_absent(a, b, a_zero, b_zero)
        return ctx.emit(node, "MatMulInteger", inputs, role=role, outputs=outputs)
    product, sums = (
        _emit_matrix_product(ctx, node, part, role + name)
        for part, name in zip(parts, ("product", "sums"), strict=True)
    )
    return _less_sums(ctx, node, product, sums, zero, role=role, outputs=outputs)


def _depth(left: Shape, right: Shape) -> int | None:
    """How many products an element of a matrix product adds; None where only a run can tell."""
    if not left or not right:
        return None
    sizes = (left[-1], right[-2] if len(right) > 1 else right[-1])
    return next((size for size in sizes if isinstance(size, int)), None)


def _needs_split(ctx: Importer, codes: str, zero: str) -> bool:
    """True of several zero points, for the columns, that the codes cannot be stored less of."""
    if not zero or _are_single(ctx, zero):
        return False
    data, zeros = ctx.constant(codes), ctx.constant(zero)
    if data is None or zeros is None or zeros.ndim > 1:
        return True
    return less_zero_points(np.asarray(data), np.asarray(zeros), data.ndim - 1) is None


def _beside(ctx: Importer, node: OnnxNode, zero: str, other: Shape, axis: int) -> str:
    """Zero points with the dimensions of the product that they multiply.

    Args:
        zero: for each row (axis -2) or column (-1) of one matrix, a vector, or of several.
        other: the shape of the other operand, which drops a dimension where it is a vector.
        axis: along which they run.
    """
    rank, one = len(ctx.type(zero).shape or ()), -3 - axis  # the other one of the last two
    if rank > 1 and len(other) == 1:
        op = "Squeeze"
    elif rank == 1 and axis == -2 and len(other) > 1:
        op = "Unsqueeze"
    else:
        return zero
    axes = ctx.add_constant(node, "one", np.array([one]), DType.S64)
    return ctx.emit(node, op, (zero, axes), role="beside")


def _multiplies_codes(ctx: Importer, node: OnnxNode) -> bool:
    """True when the product, written with decoded operands, will be one of codes: of a convolution always;
    of matrices where the zero points fit a primitive, or the pass `split_weights_zero_point` takes them
    apart later. Others stay products of integers: decoded to f32, long sums would be rounded.
    """
    if node.op != "MatMulInteger":
        return True
    b, b_zero = node.input(1), node.input(3)
    codes, zeros = ctx.constant(b), ctx.constant(b_zero) if b_zero else np.zeros(1)
    one_matrix = codes is not None and codes.ndim == 2 and zeros is not None and zeros.ndim < 2
    return one_matrix or not _needs_split(ctx, b, b_zero)


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
    names = ctx.quantizers_of_codes(node, codes)
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
