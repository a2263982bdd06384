"""Products of codes whose sums stay integers: MatMulInteger and ConvInteger, as one primitive that
stores s32.
"""

from __future__ import annotations

import numpy as np

from ...ir.node import Node
from ...ir.rule import Refusal
from ...ir.types import DType
from ...plan.accumulator import less_zero_points
from ...plan.arguments import SOURCE_AT_RUN_TIME, WEIGHTS_AT_RUN_TIME
from ...plan.attributes import PrimitiveAttr, ZeroPoint
from ...plan.targets import TARGETS
from ...plan.types import Step
from .builder import StepBuilder
from .operands import Source, Weights, accumulator_refusal, signed
from .primitives import plain

INTEGER_PRODUCTS = {"MatMulInteger": ("matmul", "MatMul"), "ConvInteger": ("convolution", "Conv")}
"""The primitive of each product of codes, and the row that computes it over the reals."""


def integer_product(builder: StepBuilder, node: Node) -> None:
    """Adds the step of a product of codes; the operator itself where no primitive takes them."""
    primitive, op = INTEGER_PRODUCTS[node.op]
    found = _operands(builder, node, primitive)
    if isinstance(found, Refusal):
        builder.refuse(f"{primitive} in int8", node, found)
        plain(builder, node)
        return
    source, weights = found
    zeros = {"src": int(source.zero_point), "weights": weights.zero_point}
    points = {role: ZeroPoint((zero,)) for role, zero in zeros.items() if zero}
    args = (
        ("src", source.value),
        ("weights", weights.value),
        *source.parameters,
        *weights.parameters,
    )
    attr = PrimitiveAttr({}, points)
    step = Step(node.name, primitive, op, args, node.outputs, node.attrs, attr, node.origin)
    builder.add(step, [node])


def _operands(builder: StepBuilder, node: Node, primitive: str) -> tuple[Source, Weights] | Refusal:
    graph = builder.graph
    types = [graph.type(value) for value in (*node.inputs[:2], node.output)]
    if any(type_.shape is None or type_.rank < 2 for type_ in types):
        found = " and ".join(map(str, types[:2]))
        return Refusal(
            "a factor has fewer than two dimensions",
            "matrices",
            found,
            "make a matrix of the vector in front of the product (Unsqueeze)",
        )
    if not builder.target.capability(primitive).sums:
        return Refusal(
            f"{primitive} stores no sums",
            "a target that does",
            builder.target.name,
            "cast the product to float32 at once, behind MatMulInteger or ConvInteger",
        )
    source = _source(builder, node, primitive)
    if isinstance(source, Refusal):
        return source
    weights = _weights(builder, node, primitive)
    if isinstance(weights, Refusal):
        return weights
    rank = types[1].rank
    summed = [rank - 2] if primitive == "matmul" else range(1, rank)
    refusal = accumulator_refusal(graph, source, weights, summed)
    return refusal or (source, weights)


def _source(builder: StepBuilder, node: Node, primitive: str) -> Source | Refusal:
    value, name = node.input, node.operand(2)
    zero = _zero_point(builder, name, primitive)
    if isinstance(zero, Refusal):
        return zero
    dtype = builder.graph.type(value).dtype
    if zero is None:
        return Source(value, dtype, parameters=((SOURCE_AT_RUN_TIME[1], name),))
    return Source(value, dtype, 1.0, zero)


def _weights(builder: StepBuilder, node: Node, primitive: str) -> Weights | Refusal:
    graph = builder.graph
    value, name, scale = node.inputs[1], node.operand(3), np.ones(1)
    data, zeros = graph.constant(value), graph.constant(name) if name else np.zeros(())
    if data is not None and zeros is not None and zeros.ndim < 2:
        axis = data.ndim - 1 if primitive == "matmul" else 0
        less = less_zero_points(np.asarray(data), zeros.reshape(-1), axis)
        if less is not None:
            kept = graph.type(value).dtype is DType.S8 and not zeros.any()
            codes = value if kept else graph.add_constant(f"{value}/s8", less)
            return Weights(codes, scale, 0)
    zero = _zero_point(builder, name, primitive)
    if isinstance(zero, Refusal):
        return zero
    kind = graph.type(value).dtype
    if kind is not DType.S8 and (data is None or zero is None):
        return Refusal(
            "the second operand, or its zero point, is computed, and is not s8",
            "s8 codes",
            kind.value,
            "quantize the second operand to signed codes (QInt8), or make it a constant",
        )
    if primitive != "matmul" and (zero is None or signed(graph, value, zero)[1]):
        return Refusal(
            f"{primitive} takes no zero point on its weights",
            "zero point 0",
            "a computed one" if zero is None else str(zero),
            "quantize weights symmetrically",
        )
    if zero is None:
        return Weights(value, scale, 0, parameters=((WEIGHTS_AT_RUN_TIME[1], name),))
    codes, zero = signed(graph, value, zero)
    return Weights(codes, scale, zero)


def _at_run_time(primitive: str) -> str:
    """The targets whose primitive takes parameters that are computed."""
    return " or ".join(
        f"--target {name}"
        for name, target in TARGETS.items()
        if target.capability(primitive).run_time
    )


def _zero_point(builder: StepBuilder, value: str, primitive: str) -> int | Refusal | None:
    """One zero point; None where it is computed; or why it is none that a primitive takes."""
    graph = builder.graph
    if not value:
        return 0
    data, shape = graph.constant(value), graph.type(value).shape
    numbers = None if data is None else set(np.ravel(data).tolist())
    if numbers is not None and len(numbers) == 1:
        return int(numbers.pop())
    if numbers is not None or shape is None or any(size != 1 for size in shape):
        return Refusal(
            f"{primitive} takes one zero point for each operand",
            "one number",
            str(graph.type(value)),
            "quantize per tensor, or cast the product to float32 at once",
        )
    if not builder.target.capability(primitive).run_time:
        return Refusal(
            "a zero point is computed at run time",
            "a constant",
            value,
            f"make the zero point a constant, or compile with {_at_run_time(primitive)}",
        )
    return None
