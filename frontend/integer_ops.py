"""Integer arithmetic with float results, as ONNX Runtime fuses dynamic quantization:
MatMulIntegerToFloat and DynamicQuantizeMatMul.

ONNX's own ConvInteger, MatMulInteger and DynamicQuantizeLinear have rows in the op table and need
nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from onnx import TensorProto

from .derived import dequantized, real
from .importer import Handler, Importer
from .nodes import OnnxNode
from .qoperator import MICROSOFT
from .standard import import_standard

__all__ = ["HANDLERS"]


def _matmul_integer_to_float(ctx: Importer, node: OnnxNode) -> None:
    """MatMulIntegerToFloat(A, B, as, bs, az?, bz?, bias?): real(A) @ real(B) + bias; bs for each
    column of B, or one.
    """
    a, b, a_scale, b_scale, a_zero, b_zero, bias = (node.input(i) for i in range(7))
    columns = ctx.constant(b_scale)
    left = dequantized(ctx, node, a, a_scale, a_zero, "a")
    right = dequantized(
        ctx, node, b, b_scale, b_zero, "b", axis=-1 if columns is None or columns.size > 1 else None
    )
    _with_bias(ctx, node, [left, right], bias)


def _with_bias(ctx: Importer, node: OnnxNode, operands: list[str], bias: str) -> None:
    if bias:
        real(
            ctx,
            node,
            "Add",
            [real(ctx, node, "MatMul", operands), bias],
            role="bias",
            output=node.output(0),
        )
    else:
        real(ctx, node, "MatMul", operands, output=node.output(0))


def _dynamic_quantize_matmul(ctx: Importer, node: OnnxNode) -> None:
    """DynamicQuantizeMatMul(A, B, bs, bz?, bias?): A is quantized with the range it has at run
    time.

    DynamicQuantizeLinear(A) -> MatMulInteger -> Cast -> Mul(as * bs) -> Add(bias).
    """
    a, b, b_scale, b_zero, bias = (node.input(i) for i in range(5))
    if not a or not b or not b_scale:
        raise node.invalid("DynamicQuantizeMatMul needs A, B and the scale of B")
    dynamic = ctx.derived(node, "quantize", "DynamicQuantizeLinear", [a])
    codes, scale, zero = (
        ctx.fresh(f"{node.name}.{part}") for part in ("codes", "scale", "zero_point")
    )
    import_standard(ctx, dynamic.rewritten(outputs=(codes, scale, zero)))
    product = real(ctx, node, "MatMulInteger", [codes, b, zero, *([b_zero] if b_zero else [])])
    as_float = real(ctx, node, "Cast", [product], {"to": TensorProto.FLOAT}, role="float")
    factor = real(ctx, node, "Mul", [scale, b_scale], role="factor")
    scaled = real(
        ctx, node, "Mul", [as_float, factor], role="scale", output="" if bias else node.output(0)
    )
    if bias:
        real(ctx, node, "Add", [scaled, bias], role="bias", output=node.output(0))


HANDLERS: Final[Mapping[tuple[str, str], Handler]] = {
    (MICROSOFT, "DynamicQuantizeMatMul"): _dynamic_quantize_matmul,
    (MICROSOFT, "MatMulIntegerToFloat"): _matmul_integer_to_float,
}
