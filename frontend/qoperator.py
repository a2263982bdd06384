"""The QOperator form: QLinearConv, QLinearMatMul, and ONNX Runtime's QLinear* and QGemm
(com.microsoft).

Each computes on codes. All become one form: Dequantize each operand, the op on real numbers,
Quantize its result; the int32 bias of QLinearConv and QGemm is quantized with the product of the
operands' scales. ONNX Runtime multiplies integers and requantizes in one step, so results may
differ from its by 1 where a real number lies on a rounding tie.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import onnx

from .derived import dequantized, product_of_scales, quantized, real
from .foreign import import_foreign
from .importer import Handler, Importer
from .nodes import DEFAULT_DOMAIN, OnnxNode
from .quantize_dequantize import RULE

__all__ = ["HANDLERS", "MICROSOFT"]

MICROSOFT: Final = "com.microsoft"


def _convolution(ctx: Importer, node: OnnxNode) -> None:
    """QLinearConv(x, xs, xz, w, ws, wz, ys, yz, B?); channels_last (com.microsoft): x and y are [N,
    spatial, C], w is not.
    """
    if _stays_foreign(ctx, node, (1, 2, 4, 5, 6, 7)):
        return
    x, xs, xz, w, ws, wz, ys, yz, bias = (node.input(i) for i in range(9))
    inputs = [
        _channels_first(ctx, node, dequantized(ctx, node, x, xs, xz, "x")),
        dequantized(ctx, node, w, ws, wz, "weights", axis=0),
    ]
    if bias:
        inputs.append(
            dequantized(ctx, node, bias, product_of_scales(ctx, node, (xs, ws)), "", "bias", axis=0)
        )
    quantized(
        ctx,
        node,
        _channels_last(ctx, node, real(ctx, node, "Conv", inputs, _attrs(node, "channels_last"))),
        ys,
        yz,
        like=x,
    )


def _matrix_product(ctx: Importer, node: OnnxNode) -> None:
    """QLinearMatMul(a, as, az, b, bs, bz, ys, yz): scales of one entry, one for each row of a, one
    for each column of b.
    """
    scales_of_rank = [ctx.type(node.input(i)).shape for i in (1, 4) if node.input(i)]
    if any(shape is None or len(shape) > 1 for shape in scales_of_rank):
        found = ", ".join(str(shape) for shape in scales_of_rank)
        ctx.refuse(
            node,
            RULE,
            "scales for each matrix of a batch have no per-axis form",
            expected="scalars or vectors",
            found=found,
        )
        import_foreign(ctx, node)
        return
    if _stays_foreign(ctx, node, (1, 2, 4, 5, 6, 7)):
        return
    a, a_scale, a_zero, b, b_scale, b_zero, ys, yz = (node.input(i) for i in range(8))
    left = dequantized(
        ctx, node, a, a_scale, a_zero, "a", axis=-2 if _is_vector(ctx, a_scale) else None
    )
    right = dequantized(
        ctx, node, b, b_scale, b_zero, "b", axis=-1 if _is_vector(ctx, b_scale) else None
    )
    quantized(ctx, node, real(ctx, node, "MatMul", [left, right]), ys, yz, like=a)


def _gemm(ctx: Importer, node: OnnxNode) -> None:
    """QGemm(A, as, az, B, bs, bz, C?, ys?, yz?){transA, transB, alpha}: alpha * A @ B + C; C has
    the scale alpha * as * bs.

    Without ys the result is real.
    """
    a, a_scale, a_zero, b, b_scale, b_zero, c, ys, yz = (node.input(i) for i in range(9))
    columns = 0 if node.attr("transB", 0) else 1
    left = dequantized(ctx, node, a, a_scale, a_zero, "a")
    right = dequantized(
        ctx, node, b, b_scale, b_zero, "b", axis=columns if _is_vector(ctx, b_scale) else None
    )
    inputs = [left, right]
    if c:
        scale = product_of_scales(ctx, node, (a_scale, b_scale), node.attr("alpha", 1.0))
        inputs.append(
            dequantized(ctx, node, c, scale, "", "c", axis=-1 if _is_vector(ctx, b_scale) else None)
        )
    attrs = {
        name: value for name, value in node.attrs.items() if name in {"transA", "transB", "alpha"}
    }
    if ys:
        quantized(ctx, node, real(ctx, node, "Gemm", inputs, attrs), ys, yz, like=a)
    else:
        real(ctx, node, "Gemm", inputs, attrs, output=node.output(0))


def _elementwise(op: str) -> Handler:
    """QLinearAdd, QLinearMul(A, as, az, B, bs, bz, cs, cz)."""

    def run(ctx: Importer, node: OnnxNode) -> None:
        a, a_scale, a_zero, b, b_scale, b_zero, cs, cz = (node.input(i) for i in range(8))
        operands = [
            dequantized(ctx, node, a, a_scale, a_zero, "a"),
            dequantized(ctx, node, b, b_scale, b_zero, "b"),
        ]
        quantized(ctx, node, real(ctx, node, op, operands), cs, cz, like=a)

    return run


def _unary(op: str, *kept: str) -> Handler:
    """QLinearLeakyRelu, QLinearSigmoid, the pools(X, xs, xz, ys, yz){attributes of the op,
    channels_last}.
    """

    def run(ctx: Importer, node: OnnxNode) -> None:
        x, xs, xz, ys, yz = (node.input(i) for i in range(5))
        value = _channels_first(ctx, node, dequantized(ctx, node, x, xs, xz, "x"))
        result = real(
            ctx, node, op, [value], {name: node.attrs[name] for name in kept if name in node.attrs}
        )
        quantized(ctx, node, _channels_last(ctx, node, result), ys, yz, like=x)

    return run


def _softmax(ctx: Importer, node: OnnxNode) -> None:
    """QLinearSoftmax(X, xs, xz, ys, yz){axis, opset}: what Softmax means in that opset."""
    x, xs, xz, ys, yz = (node.input(i) for i in range(5))
    attrs = {"axis": node.attrs["axis"]} if "axis" in node.attrs else {}
    opset = node.attr("opset", 0)
    if not isinstance(opset, int) or opset < 1:
        raise node.invalid(f"QLinearSoftmax needs the attribute opset, and has {opset!r}")
    value = dequantized(ctx, node, x, xs, xz, "x")
    quantized(
        ctx,
        node,
        real(
            ctx, node, "Softmax", [value], attrs, version=min(opset, onnx.defs.onnx_opset_version())
        ),
        ys,
        yz,
        like=x,
    )


def _reduce_mean(ctx: Importer, node: OnnxNode) -> None:
    """QLinearReduceMean(data, s, z, rs, rz){axes, keepdims}: ReduceMean as opset 13 has it."""
    x, xs, xz, ys, yz = (node.input(i) for i in range(5))
    attrs = {name: node.attrs[name] for name in ("axes", "keepdims") if name in node.attrs}
    value = real(
        ctx, node, "ReduceMean", [dequantized(ctx, node, x, xs, xz, "x")], attrs, version=13
    )
    quantized(ctx, node, value, ys, yz, like=x)


def _concat(ctx: Importer, node: OnnxNode) -> None:
    """QLinearConcat(ys, yz, (x, xs, xz)*){axis}: each part has its own scale."""
    parts = node.inputs[2:]
    if not parts or len(parts) % 3:
        raise node.invalid(
            f"QLinearConcat needs a tensor, a scale and a zero point for each part, and has {len(parts)} inputs for them"
        )
    triples = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    values = [
        dequantized(ctx, node, x, scale, zero, f"part{index}")
        for index, (x, scale, zero) in enumerate(triples)
    ]
    quantized(
        ctx,
        node,
        real(ctx, node, "Concat", values, {"axis": node.attr("axis", 0)}),
        node.input(0),
        node.input(1),
        like=parts[0],
    )


def _where(ctx: Importer, node: OnnxNode) -> None:
    """QLinearWhere(condition, X, xs, xz, Y, ys, yz, zs, zz)."""
    condition, x, xs, xz, y, ys, yz, zs, zz = (node.input(i) for i in range(9))
    values = [dequantized(ctx, node, x, xs, xz, "x"), dequantized(ctx, node, y, ys, yz, "y")]
    quantized(ctx, node, real(ctx, node, "Where", [condition, *values]), zs, zz, like=x)


# -- parts of them ---------------------------------------------------------------------------------


def _stays_foreign(ctx: Importer, node: OnnxNode, parameters: tuple[int, ...]) -> bool:
    """ONNX's own QLinear ops with parameters known at run time only are left to the reference
    evaluator, which has them.
    """
    computed = [
        node.input(i) for i in parameters if node.input(i) and ctx.constant(node.input(i)) is None
    ]
    if not computed or node.domain != DEFAULT_DOMAIN:
        return False
    hint = "make scale and zero point initializers: static quantization and constant folding before export do"
    why = "a parameter is known at run time only"
    ctx.refuse(
        node,
        RULE,
        why,
        expected="constant scales and zero points",
        found=f"{computed[0]} is computed",
        hint=hint,
    )
    import_foreign(ctx, node)
    return True


def _is_vector(ctx: Importer, scale: str) -> bool:
    data = ctx.constant(scale)
    return data is not None and data.size > 1


def _attrs(node: OnnxNode, *drop: str) -> dict[str, Any]:
    return {name: value for name, value in node.attrs.items() if name not in drop}


def _channels_first(ctx: Importer, node: OnnxNode, value: str) -> str:
    """[N, spatial, C] -> [N, C, spatial] where the node has channels_last."""
    if not node.attr("channels_last", 0):
        return value
    rank = ctx.rank(node, value)
    return real(
        ctx,
        node,
        "Transpose",
        [value],
        {"perm": (0, rank - 1, *range(1, rank - 1))},
        role="channels_first",
    )


def _channels_last(ctx: Importer, node: OnnxNode, value: str) -> str:
    if not node.attr("channels_last", 0):
        return value
    rank = ctx.rank(node, value)
    return real(
        ctx, node, "Transpose", [value], {"perm": (0, *range(2, rank), 1)}, role="channels_last"
    )


_POOL: Final = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")

HANDLERS: Final[Mapping[tuple[str, str], Handler]] = {
    (DEFAULT_DOMAIN, "QLinearConv"): _convolution,
    (DEFAULT_DOMAIN, "QLinearMatMul"): _matrix_product,
    (MICROSOFT, "QLinearConv"): _convolution,
    (MICROSOFT, "QGemm"): _gemm,
    (MICROSOFT, "QLinearAdd"): _elementwise("Add"),
    (MICROSOFT, "QLinearMul"): _elementwise("Mul"),
    (MICROSOFT, "QLinearAveragePool"): _unary("AveragePool", *_POOL),
    (MICROSOFT, "QLinearGlobalAveragePool"): _unary("GlobalAveragePool"),
    (MICROSOFT, "QLinearLeakyRelu"): _unary("LeakyRelu", "alpha"),
    (MICROSOFT, "QLinearSigmoid"): _unary("Sigmoid"),
    (MICROSOFT, "QLinearSoftmax"): _softmax,
    (MICROSOFT, "QLinearReduceMean"): _reduce_mean,
    (MICROSOFT, "QLinearConcat"): _concat,
    (MICROSOFT, "QLinearWhere"): _where,
}
