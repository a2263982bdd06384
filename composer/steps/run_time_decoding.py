"""Codes that are decoded by computed parameters, and that no product reads: a binary with a post-op."""

from __future__ import annotations

from ...ir.decision import DequantizeFate
from ...ir.node import Node
from ...plan.attributes import PrimitiveAttr
from ..formula.formula import BinaryOp
from .build import attributes_of, build_step, front_of, grown, of_rank
from .builder import StepBuilder
from .chain import Chain
from .operands import unknown_count
from .primitives import plain


def decode_at_run_time(builder: StepBuilder, node: Node) -> None:
    """(q - z) * s as a binary subtraction of codes, which is exact, and a product behind it; without
    a zero point as the product. The operator itself where the number of dimensions, or of scales, is not known.
    """
    graph, axis = builder.graph, node.attrs.get("axis")
    codes, scale, zero = node.input, node.inputs[1], node.operand(2)
    along, shape = axis if isinstance(axis, int) else None, graph.type(codes).shape
    if not shape or unknown_count(graph, node, 1 if along is None else shape[along]) is not None:
        plain(builder, node)
        return
    factor = of_rank(builder, node, scale, along, "scale")
    op, algorithm, second, start = "Mul", "mul", factor, []
    if zero:
        op, algorithm = "Sub", "sub"
        second = of_rank(builder, node, zero, along, "zero_point")
        start = [BinaryOp("mul", factor)]
    front = front_of(builder, node, "binary", graph.type(codes).dtype)
    chain = grown(builder, node, front, start)
    assert isinstance(chain, Chain)  # binary takes a binary, into f32
    why = "its reader takes f32, and the parameters are computed"
    readings = builder.readings_of(node)
    build_step(
        builder,
        node,
        "binary",
        [("src_0", codes), ("src_1", second)],
        chain,
        attributes_of(chain.composed) if start else PrimitiveAttr(),
        op=op,
        params={"algorithm": algorithm},
    )
    for reader, value in readings:
        behind = value != node.output  # of what decodes on, which reads these values
        if behind or isinstance(reader, str) or builder.reads(reader, value):
            builder.decoded(node, DequantizeFate.STANDALONE, why, reader, node.name)
