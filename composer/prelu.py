"""PRelu where a step has no prelu post-op: x with a slope for each channel, from a tensor that the step reads anyway."""

from __future__ import annotations

import numpy as np

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.types import DType, Quantization
from .formula import BinaryOp, ChainOp, CodesOp, Refusal, ScaleBy
from .operands import Source
from .post_ops_composer import Front
from .two_operands import along_channels

__all__ = ["prelu_as_maximum"]


def prelu_as_maximum(graph: Graph, node: Node, source: Source, front: Front) -> list[ChainOp] | Refusal:
    """A PRelu of the step's own source as basic operations: max(x, a*x) for slopes up to 1, min(x, a*x) for slopes from 1 on.

    x is in memory, as the values or codes that the step reads, so that a binary post-op reads it once more. Behind an anchor that has it
    in registers only there is no such form: operations on one value have one ratio of slopes for all channels.

    Legal because: for a <= 1 a*x is the larger one just where x < 0, in f32 too, for rounding a product keeps the order.
    Refuses when: slopes lie on both sides of 1, or one of values in f32 is 0 (0 times infinity is NaN); they vary along another axis, or
    are computed; the codes have several scales.
    """
    data = graph.constant(node.inputs[1])
    slopes = None if data is None else along_channels(np.asarray(data), front)
    if slopes is None or not np.isfinite(slopes).all():
        what = "the slopes are computed, or vary along another axis than the channels"
        return Refusal(what, "constant slopes along the channels", "others")
    low, high = float(slopes.min()), float(slopes.max())
    if low < 1 < high or (source.decode is None and not slopes.all()):
        return Refusal("prelu(x) = max(x, a*x) needs a <= 1", "slopes up to 1, or all from 1 on, none of 0", f"slopes {low:g} to {high:g}")
    algorithm = "max" if high <= 1 else "min"
    if source.decode is None:
        return [ScaleBy(slopes), BinaryOp(algorithm, node.inputs[0])]
    quant = source.decode.attr("quant", Quantization)
    if not quant.per_tensor or source.dtype not in (DType.U8, DType.S8):
        return Refusal("the codes are decoded with several scales", "one scale", f"axis {quant.axis}")
    on_codes = CodesOp(algorithm, source.value, source.dtype, quant.scale[0], quant.zero_point[0])
    if slopes.all():
        return [ScaleBy(slopes), on_codes]
    shape = [slopes.size if axis == front.channel_axis else 1 for axis in range(front.rank)]
    factors = graph.add_constant(f"{node.inputs[1]}/factors", slopes.astype(np.float32).reshape(shape))
    return [BinaryOp("mul", factors), on_codes]  # no scale may be 0: rules divide by them
