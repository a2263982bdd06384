"""The second operand of a product of two activations becomes s8, where it is made or in front of the
product.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..ir.cleanup import erase_unread
from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.spec import Attr
from ..ir.types import DType, Quantization
from ..plan.accumulator import as_s8
from .base import Contract, NodePass, Verdict
from .retyping import made_with, retype, shifted

_BEYOND = DType.U8.beyond_s8


def retype_matmul_operand(graph: Graph, node: Node) -> Verdict:
    """Writes u8 codes that are the second operand of a product as s8 codes with 128 less.

    Before -> after::

        MatMul(a, Dequantize(Move(Quantize(x){s, z}: u8)){s, z})
        ->  MatMul(a, Dequantize(Move(Quantize(x){s, z-128}: s8)){s, z-128})
        MatMul(a, Dequantize(b: u8){s, z})    ->  MatMul(a, Dequantize(c: s8){s, z-128}), c = Quantize(Dequantize(b){1, 0}){1, -128}
        MatMulInteger(a, b: u8, az, bz)       ->  MatMulInteger(a, c, az, cz: s8)             and RunTimeDequantize(b, s, bz)

    and ConvInteger as MatMulInteger. All other codes that data movement makes of the same ones are
    written so, too, because integer products take s8 weights only. Attention has two such products
    in each layer; the three operands may be parts of one product's codes. Codes that others read
    too, or that come from outside, are converted in front of the product, and so is a computed zero
    point. A first operand is read as s8, too, then, which costs less than a product in f32.

    Legal because: round(x/s + z) - 128 = round(x/s + z - 128), 128 being even; both ranges have 256
    codes, and (b - 128) - (bz - 128) = b - bz.
    Refuses when: never; constant operands are rewritten by the composer.
    """
    if node.op != "MatMul":
        return _integers(graph, node)
    first = graph.producer(node.input, "Dequantize", "RunTimeDequantize")
    second = graph.producer(node.inputs[1], "Dequantize", "RunTimeDequantize")
    if first is None or second is None:
        return None
    codes = second.input
    if graph.type(codes).dtype is not DType.U8 or graph.type(codes).rank < 2:
        return None
    if second.op == "RunTimeDequantize":
        return _run_time(graph, node, second)
    if graph.constant(codes) is not None:
        return None
    path = made_with(graph, codes)
    if path is None:
        attrs = {"quant": shifted(second.quant, -_BEYOND)}
        _read(graph, node, second, [_converted(graph, node, codes, "b")], attrs)
        return f"{codes} is converted to s8"
    retype(graph, path, -_BEYOND, DType.S8)
    return f"{codes} is s8 now"


RETYPE_MATMUL_OPERAND = NodePass(
    "retype_matmul_operand",
    Contract("identity", "ties"),
    retype_matmul_operand,
    ("MatMul", "MatMulInteger", "ConvInteger"),
)


def _integers(graph: Graph, node: Node) -> Verdict:
    """A product in integers, whose second operand or its zero point is computed."""
    codes, zero = node.inputs[1], node.operand(3)
    given = [value for value in (codes, zero) if value]
    if graph.type(codes).dtype is not DType.U8 or not graph.computed(given):
        return None
    inputs = [node.inputs[0], _converted(graph, node, codes, "b"), node.operand(2)]
    graph.set_inputs(node, [*inputs, _zero_point(graph, node, codes, zero)])
    return f"{codes} is converted to s8"


def _run_time(graph: Graph, node: Node, decode: Node) -> Verdict:
    """An operand that is decoded by computed parameters."""
    codes, zero = decode.input, decode.operand(2)
    given = [value for value in (codes, zero) if value]
    if not graph.computed(given) or decode.attrs.get("axis") is not None:
        return None
    converted = _converted(graph, node, codes, "b")
    inputs = [converted, decode.inputs[1], _zero_point(graph, node, codes, zero)]
    _read(graph, node, decode, inputs, decode.attrs)
    return f"{codes} is converted to s8"


def _zero_point(graph: Graph, node: Node, codes: str, zero: str) -> str:
    if not zero:
        return graph.add_constant(f"{codes}/zero_point", np.asarray(-_BEYOND, np.int8))
    return _converted(graph, node, zero, "b_zero_point")


def _converted(graph: Graph, node: Node, codes: str, what: str) -> str:
    """u8 codes as s8 codes with 128 less: a constant, or the value of two nodes that the composer
    makes one step of.
    """
    data = graph.constant(codes)
    if data is not None:
        return graph.add_constant(f"{codes}/s8", as_s8(np.asarray(data), DType.U8))
    low, high = DType.S8.range
    real = graph.part(node, "Dequantize", [codes], f"{what}/codes", {"quant": Quantization.of(1.0)})
    return graph.part(
        node,
        "Quantize",
        [real],
        f"{what}/s8",
        {
            "quant": Quantization.of(1.0, -_BEYOND),
            "dtype": DType.S8,
            "lo": low,
            "hi": high,
            "order": "zp_first",
        },
    )


def _read(
    graph: Graph, node: Node, decode: Node, inputs: list[str], attrs: Mapping[str, Attr]
) -> None:
    """Makes a product read what is decoded from other codes."""
    again = graph.again(decode, inputs, attrs)
    graph.set_inputs(node, [node.inputs[0], again.output])
    erase_unread(graph, [decode])
