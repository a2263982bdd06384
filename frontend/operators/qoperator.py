"""The QOperator form: QLinearConv, QLinearMatMul, ONNX Runtime's QLinear* and QGemm (com.microsoft),
and what it fuses dynamic quantization into, MatMulIntegerToFloat and DynamicQuantizeMatMul.

Each computes on codes. All become one form: Dequantize each operand, the op on real numbers,
Quantize its result; the int32 bias of QLinearConv and QGemm is quantized with the product of the
operands' scales. ONNX Runtime multiplies integers and requantizes in one step, so results may
differ from its by 1 where a real number lies on a rounding tie. ONNX's own ConvInteger,
MatMulInteger and DynamicQuantizeLinear: see `run_time.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import onnx
from onnx import TensorProto

from ...ir.ops import dims
from ...ir.types import Shape
from ..importer import Handler
from ..nodes import DEFAULT_DOMAIN
from .derived import Derived, written
from .heads import known_size

_MICROSOFT: Final = "com.microsoft"


def _convolution(at: Derived) -> None:
    """QLinearConv(x, xs, xz, w, ws, wz, ys, yz, B?); channels_last (com.microsoft): x and y are [N,
    spatial, C], w is not.
    """
    inputs = [_decoded_channels_first(at), at.decoded(3, "weights", axis=0)]
    if at.input(8):
        scale = at.product_of_scales((at.input(1), at.input(4)))
        inputs.append(at.dequantized(at.input(8), scale, "", "bias", axis=0))
    attrs = {name: value for name, value in at.node.attrs.items() if name != "channels_last"}
    result = at.real("Conv", inputs, attrs)
    at.quantized(result, 6, perm=_channels_last(at, result))


def _matrix_product(at: Derived) -> None:
    """QLinearMatMul(a, as, az, b, bs, bz, ys, yz): scales of one entry, one for each row of a, one
    for each column of b; or tensors [..., M, 1] for a, [..., 1, N] for b, that multiply the product.
    """
    operands, factors = [], []
    for first, role, axis in ((0, "a", -2), (3, "b", -1)):
        if all(len(_shape(at, first + i)) < 2 for i in (1, 2)):
            along = axis if _is_vector(at, first + 1) else None
            operands.append(at.decoded(first, role, axis=along))
            continue
        _check_broadcast(at, first, axis)
        operands.append(_less_zero_points(at, first, role, axis))
        factors.append((role, _of_product(at, first, role, axis)))
    product = at.real("MatMul", operands)
    for role, factor in factors:
        product = at.real("Mul", [product, factor], role=f"scale of {role}")
    at.quantized(product, 6, axis=-1 if _is_vector(at, 6) else None)


def _shape(at: Derived, index: int) -> Shape:
    """The shape of an input; () of an absent one.

    Raises:
        InvalidModel: its rank is not known.
    """
    value = at.input(index)
    if not value:
        return ()
    at.ctx.rank(at.node, value)
    return at.ctx.type(value).shape or ()


def _check_broadcast(at: Derived, first: int, axis: int) -> None:
    """Refuses scales and zero points of an operand that have more dimensions than it, or that differ
    inside of a sum of products.

    Raises:
        InvalidModel: there are such.
    """
    codes, summed = _shape(at, first), -1 if axis == -2 else -2
    for index in (first + 1, first + 2):
        shape = _shape(at, index)
        inside = len(shape) > 1 and dims.differ(shape[summed], 1)
        if inside or len(shape) > max(len(codes), 1):
            raise at.node.invalid(
                f"{at.input(index)!r} is {at.ctx.type(at.input(index))}, and {at.input(first)!r} is "
                f"{at.ctx.type(at.input(first))}",
                "give one number, or one for each row of the first operand or column of the second",
            )


def _less_zero_points(at: Derived, first: int, role: str, axis: int) -> str:
    """The codes of an operand less their zero points, as real numbers.

    Equal zero points are one, which int8 products have.
    """
    codes, zero = at.input(first), at.input(first + 2)
    one, known = at.constant(f"one of {role}", 1.0), at.ctx.constant(zero) if zero else None
    if known is not None and known.size and (known == known.flat[0]).all():
        single = at.ctx.add_constant(
            at.node, f"zero of {role}", known.flat[0], at.ctx.type(zero).dtype
        )
        return at.dequantized(codes, one, single, role)
    wide = at.dequantized(codes, one, "", role)
    if not zero:
        return wide
    real = at.real("Cast", [zero], {"to": TensorProto.FLOAT}, role=f"zero of {role}")
    placed = _beside(at, real, first + 2, role, axis)
    return at.real("Sub", [wide, placed], role=f"{role} less its zero")


def _beside(at: Derived, value: str, index: int, role: str, axis: int) -> str:
    """Numbers of an input as they broadcast to its operand: a vector for rows of a is [M, 1]."""
    if axis == -1 or not _is_vector(at, index) or len(_shape(at, index)) > 1:
        return value
    return at.real("Unsqueeze", [value, at.integers("column", [-1])], role=f"column of {role}")


def _of_product(at: Derived, first: int, role: str, axis: int) -> str:
    """The scales of an operand as they broadcast to the product, which lacks a dimension where the other
    operand is a vector.
    """
    scale = _beside(at, at.input(first + 1), first + 1, role, axis)
    if len(_shape(at, 3 - first)) > 1 or len(at.ctx.type(scale).shape or ()) < 2:
        return scale
    missing = -1 if axis == -2 else -2
    return at.real("Squeeze", [scale, at.integers("missing", [missing])], role=f"flat {role}")


def _gemm(at: Derived) -> None:
    """QGemm(A, as, az, B, bs, bz, C?, ys?, yz?){transA, transB, alpha}: alpha * A @ B + C; C has
    the scale alpha * as * bs.

    Without ys the result is real.
    """
    columns, by_column = 0 if at.node.attr("transB", 0) else 1, _is_vector(at, 4)
    inputs = [at.decoded(0, "a"), at.decoded(3, "b", axis=columns if by_column else None)]
    if at.input(6):
        factor = at.node.attr("alpha", 1.0)
        if not isinstance(factor, (int, float)):
            raise at.node.invalid(f"the attribute alpha of QGemm is {factor!r}"[:200])
        scale = at.product_of_scales((at.input(1), at.input(4)), factor)
        inputs.append(_addend(at, scale, by_column))
    attrs = _attrs(at, "transA", "transB", "alpha")
    if at.input(7):
        at.quantized(at.real("Gemm", inputs, attrs), 7)
    else:
        at.real("Gemm", inputs, attrs, output=at.node.output(0))


def _addend(at: Derived, scale: str, by_column: bool) -> str:
    """The real value of C, whose columns have a scale each where those of B do; it may be broadcast along them."""
    codes = at.input(6)
    shape, columns = at.ctx.type(codes).shape or (), at.ctx.type(scale).shape or (1,)
    if by_column and shape[-1:] != columns:
        codes = at.real("Expand", [codes, at.integers("columns", columns)], role="c of columns")
    return at.dequantized(codes, scale, "", "c", axis=-1 if by_column else None)


def _elementwise(op: str) -> _Run:
    def run(at: Derived) -> None:
        """QLinearAdd, QLinearMul(A, as, az, B, bs, bz, cs, cz)."""
        (a, b), perm = _straight(at, (0, 3))
        values = [_decoded(at, a, 0, "a"), _decoded(at, b, 3, "b")]
        at.quantized(at.real(op, values), 6, perm=perm)

    return run


def _pointwise(op: str, *kept: str) -> _Run:
    def run(at: Derived) -> None:
        """QLinearLeakyRelu, QLinearSigmoid(X, xs, xz, ys, yz){attributes of the op}."""
        (codes,), perm = _straight(at, (0,))
        result = at.real(op, [_decoded(at, codes, 0, "x")], _attrs(at, *kept))
        at.quantized(result, 3, perm=perm)

    return run


def _global_average(at: Derived) -> None:
    """QLinearGlobalAveragePool(X, xs, xz, ys, yz){channels_last}."""
    result = at.real("GlobalAveragePool", [_decoded_channels_first(at)])
    at.quantized(result, 3, perm=_channels_last(at, result))


def _average_pool(at: Derived) -> None:
    """QLinearAveragePool(X, xs, xz, ys, yz){attributes of AveragePool, channels_last}: with count_include_pad a window that ends
    behind the padding, as ceil_mode lets it, is divided by its whole size, too.
    """
    value = _decoded_channels_first(at)
    attrs = _attrs(at, *_POOL)
    if attrs.get("ceil_mode") and attrs.get("count_include_pad"):
        attrs = _padded_to_whole_windows(at, value, attrs)
    result = at.real("AveragePool", [value], attrs)
    at.quantized(result, 3, perm=_channels_last(at, result))


def _padded_to_whole_windows(at: Derived, value: str, attrs: dict[str, Any]) -> dict[str, Any]:
    """The attributes of the pool with as much padding behind as its last windows reach; those of an automatic
    padding stay.
    """
    windows = [attrs.get(name, ()) for name in ("kernel_shape", "strides", "pads")]
    if attrs.get("auto_pad", "NOTSET") not in ("", "NOTSET") or not all(map(_is_whole, windows)):
        return attrs  # the pool itself says what is wrong
    kernel = windows[0]
    count = len(kernel)
    strides = attrs.get("strides") or (1,) * count
    pads = attrs.get("pads") or (0,) * (2 * count)
    if not len(strides) == count == len(pads) - count == at.ctx.rank(at.node, value) - 2:
        return attrs
    ends = []
    for axis, (span, stride, front, end) in enumerate(
        zip(kernel, strides, pads[:count], pads[count:], strict=True)
    ):
        size = known_size(at, value, axis + 2, "size of the image")
        last = -(-(size + front + end - span) // max(stride, 1))
        # a window that begins behind the image is none
        last -= last * stride >= size + front
        ends.append(max(last * stride + span - size - front, 0))
    return {**attrs, "ceil_mode": 0, "pads": (*pads[:count], *ends)}


def _is_whole(numbers: object) -> bool:
    return isinstance(numbers, tuple) and all(isinstance(n, int) for n in numbers)


def _softmax(at: Derived) -> None:
    """QLinearSoftmax(X, xs, xz, ys, yz){axis, opset}: what Softmax means in that opset, along the last axis where none is told."""
    opset = at.node.attr("opset", 0)
    if not isinstance(opset, int) or opset < 1:
        raise at.node.invalid(f"QLinearSoftmax needs the attribute opset, and has {opset!r}")
    value = at.decoded(0, "x")
    attrs = {"axis": at.node.attr("axis", -1)}  # of every opset
    version = min(opset, onnx.defs.onnx_opset_version())
    at.quantized(at.real("Softmax", [value], attrs, version=version), 3)


def _concat(at: Derived) -> None:
    """QLinearConcat(ys, yz, (x, xs, xz)*){axis}: each part has its own scale."""
    count = len(at.node.inputs) - 2
    if count < 1 or count % 3:
        raise at.node.invalid(
            f"QLinearConcat needs a tensor, a scale and a zero point for each part, and has {max(count, 0)} inputs for them"
        )
    places = [2 + 3 * index for index in range(count // 3)]
    codes, perm = _straight(at, places)
    axis = at.node.attr("axis", 0)
    if perm:
        axis = perm[axis]
    values = [
        _decoded(at, code, place, f"part{index}")
        for index, (code, place) in enumerate(zip(codes, places, strict=True))
    ]
    at.quantized(at.real("Concat", values, {"axis": axis}), 0, like=2, perm=perm)


def _where(at: Derived) -> None:
    """QLinearWhere(condition, X, xs, xz, Y, ys, yz, zs, zz)."""
    inputs = [at.input(0), at.decoded(1, "x"), at.decoded(4, "y")]
    at.quantized(at.real("Where", inputs), 7, like=1)


def _matmul_integer_to_float(at: Derived) -> None:
    """MatMulIntegerToFloat(A, B, as, bs, az?, bz?, bias?): real(A) @ real(B) + bias; bs for each
    column of B, or one.
    """
    a, b, a_scale, b_scale, a_zero, b_zero, bias = (at.input(i) for i in range(7))
    left = at.dequantized(a, a_scale, a_zero, "a")
    _product_to_float(at, left, (b, b_scale, b_zero), bias)


def _dynamic_quantize_matmul(at: Derived) -> None:
    """DynamicQuantizeMatMul(A, B, bs, bz?, bias?): A is quantized with the range it has at run
    time.
    """
    ctx, node = at.ctx, at.node
    a, b, b_scale, b_zero, bias = (at.input(i) for i in range(5))
    if not a or not b or not b_scale:
        raise node.invalid("DynamicQuantizeMatMul needs A, B and the scale of B")
    dynamic = ctx.derived(node, "quantize", "DynamicQuantizeLinear", [a])
    codes, scale, zero = (
        ctx.fresh(f"{node.name}.{part}") for part in ("codes", "scale", "zero_point")
    )
    ctx.take(dynamic.rewritten(outputs=(codes, scale, zero)))
    left = at.dequantized(codes, scale, zero, "a")
    _product_to_float(at, left, (b, b_scale, b_zero), bias)


def _product_to_float(at: Derived, left: str, right: tuple[str, str, str], bias: str) -> None:
    """left @ real(B) + bias; `right`: B, its scale for each column or one, its zero point."""
    columns = at.ctx.constant(right[1])
    axis = -1 if columns is None or columns.size != 1 else None
    _with_bias(at, "MatMul", [left, at.dequantized(*right, "b", axis=axis)], "", bias)


# -- parts of them ---------------------------------------------------------------------------------


def _with_bias(at: Derived, op: str, inputs: list[str], role: str, bias: str) -> None:
    output = at.node.output(0)
    result = at.real(op, inputs, role=role, output="" if bias else output)
    if bias:
        at.real("Add", [result, bias], role="bias", output=output)


def _is_vector(at: Derived, index: int) -> bool:
    """True of an input that has not one number."""
    shape = at.ctx.type(at.input(index)).shape if at.input(index) else ()
    return shape is not None and shape not in ((), (1,))


def _attrs(at: Derived, *kept: str) -> dict[str, object]:
    return {name: value for name, value in at.node.attrs.items() if name in kept}


def _decoded(at: Derived, codes: str, first: int, role: str) -> str:
    """The real value of codes by the scale and zero point of input `first`."""
    return at.dequantized(codes, at.input(first + 1), at.input(first + 2), role)


def _straight(at: Derived, places: Sequence[int]) -> tuple[list[str], tuple[int, ...]]:
    """What the codes at these inputs are the transposed forms of, and the order that all of them
    have; the codes themselves and no order where they have none in common.
    """
    codes = [at.input(place) for place in places]
    found = [at.turned_from(value) for value in codes if value]
    orders = {order for _, order in found}
    if len(found) < len(codes) or len(orders) > 1:
        return codes, ()
    return [source for source, _ in found], next(iter(orders))


def _decoded_channels_first(at: Derived) -> str:
    """The real value of the first input: [N, C, spatial] where the node has channels_last."""
    codes = at.input(0)
    if codes and at.node.attr("channels_last", 0):
        last = at.ctx.rank(at.node, codes) - 1
        codes = at.turned(codes, (0, last, *range(1, last)), "channels_first")
    return _decoded(at, codes, 0, "x")


def _channels_last(at: Derived, value: str) -> tuple[int, ...]:
    """The order [N, spatial, C] of dimensions where the node has channels_last."""
    if not at.node.attr("channels_last", 0):
        return ()
    return (0, *range(2, at.ctx.rank(at.node, value)), 1)


_Run = Callable[[Derived], None]
_POOL: Final = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
_OF_ONNX: Final[Mapping[str, _Run]] = {
    "QLinearConv": _convolution,
    "QLinearMatMul": _matrix_product,
}
_OF_MICROSOFT: Final[Mapping[str, _Run]] = {
    "DynamicQuantizeMatMul": _dynamic_quantize_matmul,
    "MatMulIntegerToFloat": _matmul_integer_to_float,
    "QLinearConv": _convolution,
    "QGemm": _gemm,
    "QLinearAdd": _elementwise("Add"),
    "QLinearMul": _elementwise("Mul"),
    "QLinearAveragePool": _average_pool,
    "QLinearGlobalAveragePool": _global_average,
    "QLinearLeakyRelu": _pointwise("LeakyRelu", "alpha"),
    "QLinearSigmoid": _pointwise("Sigmoid"),
    "QLinearSoftmax": _softmax,
    "QLinearConcat": _concat,
    "QLinearWhere": _where,
}

HANDLERS: Final[Mapping[tuple[str, str], Handler]] = {
    (domain, op): written(run)
    for domain, runs in ((DEFAULT_DOMAIN, _OF_ONNX), (_MICROSOFT, _OF_MICROSOFT))
    for op, run in runs.items()
}
