"""What several kinds of steps are made with."""

from __future__ import annotations

import numpy as np

from ...ir.node import Node
from ...ir.types import DType, Quantization
from ...plan.attributes import PrimitiveAttr, Scale, ZeroPoint
from ...plan.types import Step
from ..mapping.post_ops_composer import Composed
from .chain import Chain
from .drafts import Drafts, origins

__all__ = [
    "attributes_of",
    "codes_behind",
    "knows_axis",
    "quantization_of",
    "simple_step",
    "size_along",
]


def simple_step(
    node: Node, primitive: str, args: list[tuple[str, str]], chain: Chain, attr: PrimitiveAttr
) -> Step:
    """A step of one node and the chain behind it, with the node's own attributes as parameters."""
    return Step(
        node.name,
        primitive,
        node.op,
        tuple(args),
        (chain.value,),
        node.attrs,
        attr,
        origins(node, chain),
    )


def attributes_of(composed: Composed, scales: dict[str, Scale] | None = None) -> PrimitiveAttr:
    """The attributes of a composed chain, with scales of sources added."""
    found = dict(scales or {})
    if composed.dst_scale is not None:
        found["dst"] = Scale((float(np.float32(composed.dst_scale)),))
    zero_points = (
        {} if not composed.dst_zero_point else {"dst": ZeroPoint((composed.dst_zero_point,))}
    )
    return PrimitiveAttr(found, zero_points, composed.post_ops)


def size_along(drafts: Drafts, value: str, axis: int) -> int:
    """The size of a value along an axis; 0 when it is symbolic or unknown."""
    shape = drafts.graph.type(value).shape
    size = shape[axis] if shape is not None and 0 <= axis < len(shape) else 0
    return size if isinstance(size, int) else 0


def knows_axis(drafts: Drafts, quantizer: Node) -> bool:
    """True when the model tells the size of the axis that a Quantize or Dequantize has parameters
    along, of what it reads.
    """
    axis = quantizer.attr("quant", Quantization).axis
    return axis is None or size_along(drafts, quantizer.inputs[0], axis) > 0


def codes_behind(drafts: Drafts, value: str) -> Node | None:
    """The Dequantize of 8-bit codes made at run time, per tensor or along an axis of known size,
    that produces a value, or None.
    """
    node = drafts.graph.producer(value)
    if (
        node is None
        or node.op != "Dequantize"
        or drafts.graph.constant(node.inputs[0]) is not None
        or not knows_axis(drafts, node)
    ):
        return None
    return node if drafts.graph.type(node.inputs[0]).dtype in (DType.U8, DType.S8) else None


def quantization_of(node: Node | None) -> Quantization | None:
    """The parameters of a Dequantize; None for None."""
    return None if node is None else node.attr("quant", Quantization)
