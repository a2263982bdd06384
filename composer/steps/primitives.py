"""Steps without weights: pooling, concatenation, and operations that stay what they are."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

import numpy as np

from ...ir.decision import DequantizeFate, QuantizeFate
from ...ir.node import Node, origin_of
from ...ir.ranges import decodes_floats
from ...ir.rule import Refusal
from ...ir.types import DType
from ...plan.attributes import PrimitiveAttr, Scale
from ...plan.types import Step
from ...plan.verify_shapes import OWN_PRIMITIVES, SCHEMAS, Schema
from ..formula.formula import Vec, decoding, vec
from ..mapping.composed import Front
from .build import (
    add_alone,
    attributes_of,
    build_step,
    front_of,
    grown,
    is_padded,
    scale_of,
    size_along,
)
from .builder import StepBuilder
from .chain import Chain, quantizing
from .operands import source_of
from .two_operands import decoded


def pooling(builder: StepBuilder, node: Node) -> None:
    """Average pooling or resizing, whose weights add up to 1: on codes where the target stores what
    follows, in f32 otherwise.
    """
    primitive = node.spec.primitive
    assert primitive is not None
    capability = replace(builder.target.capability(primitive), src_zero_point=True)
    source = source_of(builder.graph, node.input, capability, fraction=True)
    found: Chain | Refusal
    if isinstance(source, Refusal):
        found = source
    else:
        front = front_of(builder, node, primitive, source.dtype)
        zero = source.zero_point + source.fraction
        found = _padding_refusal(node, zero) or grown(
            builder, node, front, decoding(source.scale, zero)
        )
        if isinstance(found, Chain):
            what = "pools" if primitive == "pooling" else "resizes"
            how = f"{what} codes; the scale is applied to the average"
            build_step(
                builder,
                node,
                primitive,
                [("src", source.value), *_roles(node)[1:]],
                found,
                attributes_of(found.composed),
                decoded=[(source.decode, DequantizeFate.SOURCE_SCALE, how)],
            )
            return
    builder.refuse(f"{primitive} in int8", node, found)
    plain(builder, node)


def _padding_refusal(node: Node, zero: float) -> Refusal | None:
    if zero and is_padded(node) and node.attrs.get("count_include_pad"):
        return Refusal(
            "padding counts as code 0, which is not the real 0",
            "zero point 0, or count_include_pad=0",
            f"zero point {zero:g}",
            "quantize the input of the pool without a zero point, or set count_include_pad=0",
        )
    if node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return Refusal(
            "what is read outside is a real number, not a code",
            "another coordinate transformation",
            "tf_crop_and_resize",
            "export the Resize with a mode that reads nothing outside, such as half_pixel",
        )
    return None


# -- concatenation ---------------------------------------------------------------------------------


def concat(builder: StepBuilder, node: Node) -> None:
    """A concatenation of codes or f32 values; symmetric codes of another scale are rescaled by the
    primitive itself.
    """
    dtype = builder.graph.type(node.output).dtype
    if dtype not in (DType.U8, DType.S8, DType.F32):
        plain(builder, node)
        return
    args = [(f"src_{number}", value) for number, value in enumerate(node.inputs)]
    nodes, output = [node], node.output
    scales: dict[str, Scale] = {}
    folded: list[tuple[Node, Node]] = []
    for number, (role, value) in enumerate(args):
        requant = None if dtype is DType.F32 else _rescaling(builder, value)
        if requant is not None:
            quantize, decode, factor = requant
            scales[role] = scale_of(factor)
            folded.append((quantize, decode))
            args[number] = role, decode.input
    stored = None if scales else _stored_otherwise(builder, node)
    if stored is not None:
        quantize, decode, factors = stored
        pairs = zip(args, factors, strict=True)
        scales = {role: scale_of(factor) for (role, _), factor in pairs if factor != 1}
        output, nodes = quantize.output, [node, decode, quantize]
        folded.append((quantize, decode))
    attr, origin = PrimitiveAttr(scales), origin_of(*nodes)
    step = Step(node.name, "concat", "Concat", tuple(args), (output,), node.attrs, attr, origin)
    builder.add(step, nodes)
    how = "concat rescales its source"
    for quantize, decode in folded:
        builder.claim(quantize)
        builder.encoded(quantize, QuantizeFate.DST_SCALE, how, step.name)
        builder.decoded(decode, DequantizeFate.SOURCE_SCALE, how, quantize, step.name)


def _rescaled_by(builder: StepBuilder, quantize: Node | None, decode: Node | None) -> float | None:
    """The scale of a Quantize behind a Dequantize that scales of concat's sources can do both: all
    codes of 8 bits, no zero points; None for others.
    """
    if quantize is None or decode is None or builder.is_claimed(quantize):
        return None
    if quantize.op != "Quantize" or decode.op != "Dequantize":
        return None
    quant, dtype, low, high = quantizing(quantize)
    symmetric = quant.per_tensor and quant.symmetric and decode.quant.symmetric
    full = dtype.is_code and (low, high) == dtype.range
    takes = builder.target.capability("concat").src_scale
    return quant.scale[0] if symmetric and full and takes else None


def _rescaling(builder: StepBuilder, value: str) -> tuple[Node, Node, float] | None:
    """A Quantize(Dequantize(codes)) read by nothing else, with zero points 0, that a source scale
    can do: both nodes and the factor.
    """
    graph = builder.graph
    quantize = graph.producer(value)
    if quantize is None or graph.read_count(value) != 1 or graph.is_output(value):
        return None
    decode = decoded(graph, quantize.input) if quantize.inputs else None
    scale = _rescaled_by(builder, quantize, decode)
    if decode is None or scale is None:
        return None
    return quantize, decode, decode.quant.scale[0] / scale


def _stored_otherwise(builder: StepBuilder, node: Node) -> tuple[Node, Node, list[float]] | None:
    """The Quantize behind what decodes joined codes, when scales of the sources can do both: the
    two, and a factor for each source.

    Neither has a zero point, nothing else reads the codes in between, and each source has one
    scale.
    """
    graph = builder.graph
    decode = graph.sole_consumer(node.output)
    quantize = None if decode is None else graph.sole_consumer(decode.output)
    scale = _rescaled_by(builder, quantize, decode)
    shape = graph.type(node.output).shape
    if decode is None or quantize is None or scale is None or shape is None:
        return None
    inner, axis = decode.quant, node.attr("axis", int) % len(shape)
    if inner.axis not in (None, axis):
        return None
    size = size_along(builder, node.output, axis) or 1
    scales = np.broadcast_to(inner.scales.astype(np.float64), (size,))
    factors: list[float] = []
    start = 0
    for value in node.inputs:
        end = start + size_along(builder, value, axis)
        own, start = scales[start:end] if size > 1 else scales, end
        if own.size == 0 or bool((own != own[0]).any()):
            return None
        factors.append(float(np.float32(own[0] / scale)))
    return quantize, decode, factors


# -- as itself -------------------------------------------------------------------------------------


def plain(builder: StepBuilder, node: Node) -> None:
    """The operation itself: a primitive where the target has one for f32, with the chain behind it;
    else the ONNX operator.
    """
    graph = builder.graph
    primitive = _primitive_of(builder, node)
    roles = _roles(node, builder.inside.get(node.name, frozenset()))
    if primitive is None:
        operator = node.attr("op_type", str) if node.op == "Onnx" else node.op
        add_alone(builder, node, f"onnx.{operator}", roles)
        _settle_foreign(builder, node)
        return
    roles[0] = ("src", roles[0][1])
    if graph.type(node.output).dtype is not DType.F32 or len(node.outputs) > 1:
        add_alone(builder, node, primitive, roles)
        return
    axis: int | None = None
    parameters: tuple[Vec, ...] = ()
    if primitive == "layer_normalization":
        axis = graph.type(node.output).rank - 1
        parameters = _normalization_parameters(builder, node, axis)
    front = front_of(builder, node, primitive, DType.F32, axis, *parameters)
    if builder.target.capability(primitive).output_scale:
        front = replace(front, scale=vec(1.0), per_channel=False)
    chain = grown(builder, node, front)
    assert isinstance(chain, Chain)  # every primitive can store f32
    if parameters and chain.links:
        roles = [roles[0], *_folded_parameters(builder, front, chain)]
    factor = None if parameters else chain.composed.scale
    output = None if factor is None or (factor == 1).all() else scale_of(factor)
    attr = attributes_of(chain.composed, output_scales=output)
    build_step(builder, node, primitive, roles, chain, attr)


def _normalization_parameters(builder: StepBuilder, node: Node, axis: int) -> tuple[Vec, ...]:
    """Scale and bias of a LayerNormalization over the last axis, which take factors and shifts
    behind it; none when computed, or when the model does not tell the size of that axis."""
    _, scale, bias = (*node.inputs, "")[:3]
    data = builder.graph.constant(scale), builder.graph.constant(bias) if bias else vec(0.0)
    last = node.attr("axis", int) in (-1, axis)
    known = last and size_along(builder, node.output, axis) > 0
    found = tuple(vec(values) for values in data if values is not None)
    return found if known and len(found) == 2 else ()


def _folded_parameters(
    builder: StepBuilder, front: Front, chain: Chain
) -> Sequence[tuple[str, str]]:
    found = []
    for role, values in (("scale", chain.composed.scale), ("bias", chain.composed.bias)):
        assert values is not None
        array = np.full(front.channels, values, np.float32)
        found.append((role, builder.file_constant(f"{front.step}/{role}", array)))
    return found


_FROM_ONE_SOURCE = frozenset(name for name, schema in SCHEMAS.items() if schema == Schema())


def _primitive_of(builder: StepBuilder, node: Node) -> str | None:
    """The primitive that computes the node in f32 (or pools, resizes or shuffles codes), or None:
    the ONNX operator itself does.
    """
    if node.spec.primitive in OWN_PRIMITIVES:
        return node.spec.primitive  # of any rank, and its results are numbers
    types = [builder.graph.type(value) for value in (*node.inputs[:1], *node.outputs) if value]
    pools_codes = (
        node.spec.primitive in ("pooling", "resampling", "shuffle") and types[-1].dtype.is_code
    )
    floats = all(type_.dtype is DType.F32 for type_ in types)
    known = all(type_.shape for type_ in types)  # of a known rank that is not 0
    alone = len([value for value in node.outputs if value]) == 1
    fits = node.spec.primitive in _FROM_ONE_SOURCE and (floats or pools_codes) and known and alone
    return node.spec.primitive if fits else None


def _settle_foreign(builder: StepBuilder, node: Node) -> None:
    """The fate of a quantizer that stayed an ONNX operator: scales computed at run time, blocks,
    other types.
    """
    if not node.quantizer or node.op in ("Dequantize", "Quantize"):
        return
    if node.op == "DequantizeBlocks":
        how = "codes in blocks stay packed; what is read of them is decoded by a step of its own"
        for reader in builder.readers_of(node):
            builder.decoded(node, DequantizeFate.STANDALONE, how, reader, node.name)
        return
    floats = decodes_floats(builder.graph, node)
    reason = (
        "no primitive has floats of 8 or 4 bits as codes"
        if floats or builder.graph.type(node.output).dtype.is_small_float
        else "it stays the ONNX operator: its parameters have no form that a primitive takes"
    )
    decodes = "Dequantize" in str(node.attrs.get("op_type", node.op)) or floats
    if not decodes:
        builder.encoded(node, QuantizeFate.FALLBACK, reason, node.name)
    if decodes or node.op in (
        "FakeQuantize",
        "DynamicBlocks",
    ):  # a whole one, which belongs to a quantizer
        for reader in builder.readers_of(node):
            builder.decoded(node, DequantizeFate.FALLBACK, reason, reader, node.name)


def _roles(node: Node, without: AbstractSet[int] = frozenset()) -> list[tuple[str, str]]:
    """Role and value of the inputs that are there, without those at some places."""
    names = [param.name for param in node.spec.inputs]
    if node.spec.inputs and node.spec.inputs[-1].variadic:
        fixed = len(names) - 1
        names = names[:fixed] + [f"{names[-1]}_{i}" for i in range(len(node.inputs) - fixed)]
    given = enumerate(zip(names, node.inputs, strict=False))
    return [(name, value) for place, (name, value) in given if value and place not in without]
