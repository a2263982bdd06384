"""The recipe of a step: what stands in front of the post-ops, the chain that fits behind, the step,
and what became of the quantizers that it decodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...ir.decision import DequantizeFate
from ...ir.node import Node, origin_of
from ...ir.ops import OPS
from ...ir.ops.spec import Attr
from ...ir.rule import Refusal
from ...ir.telling import told_behind
from ...ir.types import DType, Quantization, TensorType
from ...plan.arguments import with_roles
from ...plan.attributes import PrimitiveAttr, Scale, ZeroPoint
from ...plan.types import Step
from ..formula.formula import ChainOp, Vec
from ..mapping.composed import Composed, Front
from ..mapping.post_ops_composer import PostOpsComposer
from .builder import StepBuilder
from .chain import Chain, grow
from .records import record
from .two_operands import decoding_of

Roles = Sequence[tuple[str, str]]


def front_of(
    builder: StepBuilder,
    node: Node,
    primitive: str,
    src: DType = DType.F32,
    axis: int | None = None,
    scale: Vec | None = None,
    bias: Vec | None = None,
    *,
    per_channel: bool = True,
    positive: bool = False,
) -> Front:
    """What `primitive` computes in front of the post-ops, in the place of `node`; `axis`: that of
    vectors, the channels where there is none.
    """
    rank = builder.graph.type(node.output).rank
    axis = max(0, min(1, rank - 1)) if axis is None else axis
    return Front(
        primitive,
        node.name,
        src,
        rank,
        axis,
        size_along(builder, node.output, axis),
        scale,
        bias,
        per_channel,
        positive,
        told_behind(builder.graph, node),
    )


def grown(
    builder: StepBuilder, node: Node, front: Front, start: Sequence[ChainOp] = ()
) -> Chain | Refusal:
    """The longest chain behind a node that fits the primitive, which begins with `start`; or why
    not even that does.
    """
    composer = PostOpsComposer(builder.target, front, builder.approximate)
    refusal = composer.append(start) if start else None
    return refusal or grow(builder, composer, node)


def build_step(
    builder: StepBuilder,
    node: Node,
    primitive: str,
    args: Roles,
    chain: Chain,
    attr: PrimitiveAttr,
    *,
    op: str = "",
    params: Mapping[str, Attr] | None = None,
    inside: Sequence[Node] = (),
    decoded: Sequence[tuple[Node | None, DequantizeFate, str]] = (),
) -> None:
    """Adds the step of a node and the chain behind it.

    Args:
        builder: gets the step.
        node: with the step's name and, where nothing else is given, its row and parameters.
        primitive, args, attr, op, params: of the step.
        chain: what it takes in.
        inside: further nodes that it stands for.
        decoded: what became of each Dequantize in front of it, and how.
    """
    origin = origin_of(node, *(link.node for link in chain.links), *inside)
    params = node.attrs if params is None else params
    step = Step(
        node.name, primitive, op or node.op, tuple(args), (chain.value,), params, attr, origin
    )
    for name, array in chain.composed.constants.items():
        builder.file_constant(name, array)
    builder.add(step, [node, *(link.node for link in chain.links)])
    record(builder, step, node, chain)
    for decode, fate, how in decoded:
        if decode is not None:
            builder.decoded(decode, fate, how, node, step.name)


def add_alone(
    builder: StepBuilder, node: Node, primitive: str, args: Roles, attr: PrimitiveAttr | None = None
) -> None:
    """Adds the step of a node alone; a reorder has no parameters."""
    op, params = ("Identity", {}) if primitive == "reorder" else (node.op, node.attrs)
    attr = attr or PrimitiveAttr()
    step = Step(node.name, primitive, op, tuple(args), node.outputs, params, attr, node.origin)
    builder.add(step, [node])


def scale_of(values: Vec | float, mask: int = 0) -> Scale:
    """Factors in f32; the mask is that of more than one."""
    floats = tuple(np.ravel(values).astype(np.float32).tolist())
    return Scale(floats, mask if len(floats) > 1 else 0)


def attributes_of(
    composed: Composed,
    scales: Mapping[str, Scale] | None = None,
    zero_points: Mapping[str, float] | None = None,
    output_scales: Scale | None = None,
) -> PrimitiveAttr:
    """The attributes of a composed chain, with scales and zero points of sources added."""
    found = dict(scales or {})
    if composed.dst_scale is not None and np.float32(composed.dst_scale) != 1:
        found["dst"] = scale_of(composed.dst_scale)
    zeros = {**(zero_points or {}), "dst": composed.dst_zero_point or 0}
    points = {role: ZeroPoint((zero,)) for role, zero in zeros.items() if zero}
    return PrimitiveAttr(found, points, composed.post_ops, output_scales)


def reorder_attributes(
    builder: StepBuilder, source: Quantization | None, destination: Quantization | None
) -> PrimitiveAttr:
    """The attributes of a reorder from codes, or f32, to codes, or f32."""
    scales: dict[str, Scale] = {}
    zero_points: dict[str, ZeroPoint] = {}
    factor = np.asarray(1.0)
    for role, quant in (("src", source), ("dst", destination)):
        if quant is None:
            continue
        mask = 0 if quant.axis is None else 1 << quant.axis
        scales[role] = Scale(quant.scale, mask)
        if quant.zero_point[0]:
            zero_points[role] = ZeroPoint((int(quant.zero_point[0]),))
        wide = quant.scales.astype(np.float64)
        factor = factor * wide if role == "src" else factor / wide
    if builder.target.scales == "arguments":
        return PrimitiveAttr(scales, zero_points)
    mask = max((scale.mask for scale in scales.values()), default=0)
    return PrimitiveAttr({}, zero_points, (), scale_of(factor, mask))


def of_rank(builder: StepBuilder, node: Node, value: str, axis: int | None, what: str) -> str:
    """One number, or a vector along an axis of a node's output, of the output's rank: a constant, or
    what a step in front gives.
    """
    graph, rank = builder.graph, builder.graph.type(node.output).rank
    shape = [1] * rank
    if axis is not None:
        (size, *_) = [*(graph.type(value).shape or ()), 1]
        assert isinstance(size, int)
        shape[axis] = size
    if graph.type(value).shape == tuple(shape):
        return value
    name, data = f"{node.name}/{what}", graph.constant(value)
    if data is not None:
        return builder.file_constant(name, np.asarray(data).reshape(shape))
    wanted = builder.file_constant(f"{name}/shape", np.asarray(shape, np.int64))
    kind = TensorType(graph.type(value).dtype, tuple(shape))
    return row_in_front(builder, node, "Reshape", name, (value, wanted), kind)


def row_in_front(
    builder: StepBuilder, node: Node, op: str, name: str, inputs: Sequence[str], kind: TensorType
) -> str:
    """Adds a step of an op in front of a node's own one. Its name is that of what it gives."""
    row = OPS[op]
    args, params = with_roles(row, inputs), row.complete({})
    step = Step(name, f"onnx.{op}", op, args, (name,), params, origin=node.origin)
    builder.add_in_front(step, node, kind)
    return name


# -- what the graph tells --------------------------------------------------------------------------


def size_along(builder: StepBuilder, value: str, axis: int) -> int:
    """The size of a value along an axis; 0 when it is symbolic or unknown."""
    shape = builder.graph.type(value).shape
    size = shape[axis] if shape is not None and 0 <= axis < len(shape) else 0
    return size if isinstance(size, int) else 0


def knows_axis(builder: StepBuilder, quantizer: Node) -> bool:
    """True when the model tells the size of the axis that a Quantize or Dequantize has parameters
    along, of what it reads.
    """
    axis = quantizer.quant.axis
    return axis is None or size_along(builder, quantizer.input, axis) > 0


def codes_behind(builder: StepBuilder, value: str) -> Node | None:
    """The Dequantize of 8-bit codes made at run time, per tensor or along an axis of known size,
    that produces a value, or None.
    """
    node = decoding_of(builder.graph, value)
    return node if node is not None and knows_axis(builder, node) else None


def is_padded(node: Node) -> bool:
    """True when windows of a convolution or pooling reach beyond what it reads."""
    pads = node.attrs.get("pads")
    automatic = node.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    return automatic or (isinstance(pads, tuple) and any(pads))
