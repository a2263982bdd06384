"""Steps without weights: pooling, concatenation, and operations that stay what they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...ir.decision import DequantizeFate, QuantizeFate
from ...ir.node import Node, origin_of
from ...ir.rule import Refusal
from ...ir.types import DType, Quantization
from ...plan.attributes import PrimitiveAttr, Scale
from ...plan.types import Step
from ..formula.exact_zeros import zero_shows
from ..formula.formula import ScaleBy, Shift, Vec, vec
from ..mapping.post_ops_composer import Front, PostOpsComposer
from .chain import Chain, decoded, grow, quantizing
from .drafts import Drafts
from .operands import Source, source_of
from .step_parts import attributes_of, simple_step, size_along

__all__ = ["concat", "plain", "pooling"]


def pooling(drafts: Drafts, node: Node) -> None:
    """Average pooling or resizing, whose weights add up to 1: on codes where the target stores what
    follows, in f32 otherwise.
    """
    graph, primitive = drafts.graph, node.spec.primitive
    assert primitive is not None
    source = source_of(
        graph, node.inputs[0], replace(drafts.target.capability(primitive), src_zero_point=True)
    )
    if isinstance(source, Source):
        refusal = _padding_refusal(node, source)
        if refusal is None:
            chain = _pooled(drafts, node, source, primitive)
            if isinstance(chain, Chain):
                args = [("src", source.value), *_roles(node)[1:]]
                step = simple_step(node, primitive, args, chain, attr=attributes_of(chain.composed))
                drafts.add_chain(step, node, chain)
                assert source.decode is not None
                how = "pools codes" if primitive == "pooling" else "resizes codes"
                how += "; the scale is applied to the average"
                drafts.decoded(source.decode, DequantizeFate.SOURCE_SCALE, how, node, step.name)
                return
            refusal = chain
        drafts.refuse(f"{primitive} in int8", node, refusal)
    elif graph.type(node.inputs[0]).dtype is DType.F32:
        drafts.refuse(f"{primitive} in int8", node, source)
    plain(drafts, node)


def _pooled(drafts: Drafts, node: Node, source: Source, primitive: str) -> Chain | Refusal:
    rank = drafts.graph.type(node.output).rank
    shape = drafts.graph.type(node.output).shape
    channels = shape[1] if shape is not None and isinstance(shape[1], int) else 0
    front = Front(
        primitive,
        node.name,
        source.dtype,
        rank,
        1,
        channels,
        zero_shows=zero_shows(drafts.graph, node, rounded=True),
    )
    composer = PostOpsComposer(drafts.target, front)
    refusal = composer.append([Shift(vec(-source.zero_point)), ScaleBy(vec(source.scale))])
    if refusal is not None:
        return refusal
    return grow(drafts.graph, composer, node.output, node, drafts.is_claimed)


def _padding_refusal(node: Node, source: Source) -> Refusal | None:
    pads = node.attrs.get("pads")
    padded = (isinstance(pads, tuple) and any(pads)) or node.attrs.get(
        "auto_pad", "NOTSET"
    ) not in ("NOTSET", "VALID")
    if source.zero_point and padded and node.attrs.get("count_include_pad"):
        return Refusal(
            "padding counts as code 0, which is not the real 0",
            "zero point 0, or count_include_pad=0",
            f"zero point {source.zero_point:g}",
        )
    if node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return Refusal(
            "what is read outside is a real number, not a code",
            "another coordinate transformation",
            "tf_crop_and_resize",
        )
    return None


def concat(drafts: Drafts, node: Node) -> None:
    """A concatenation of codes or f32 values; symmetric codes of another scale are rescaled by the
    primitive itself.
    """
    graph = drafts.graph
    dtype = graph.type(node.output).dtype
    args: list[tuple[str, str]] = []
    scales: dict[str, Scale] = {}
    folded: list[tuple[Node, Node]] = []
    for number, value in enumerate(node.inputs):
        requant = _rescaling(drafts, value) if dtype in (DType.U8, DType.S8) else None
        if requant is None:
            args.append((f"src_{number}", value))
            continue
        quantize, decode, factor = requant
        scales[f"src_{number}"] = Scale((factor,))
        folded.append((quantize, decode))
        args.append((f"src_{number}", decode.inputs[0]))
    if dtype not in (DType.U8, DType.S8, DType.F32):
        plain(drafts, node)
        return
    stored = _stored_otherwise(drafts, node) if not scales else None
    output, nodes = node.output, [node]
    if stored is not None:
        decode, quantize, factors = stored
        scales |= {
            role: Scale((factor,))
            for (role, _), factor in zip(args, factors, strict=True)
            if factor != 1
        }
        output, nodes = quantize.output, [node, decode, quantize]
        folded.append((quantize, decode))
    origin = origin_of(*nodes)
    step = Step(
        node.name,
        "concat",
        "Concat",
        tuple(args),
        (output,),
        node.attrs,
        PrimitiveAttr(scales),
        origin,
    )
    drafts.add(step, nodes)
    for quantize, decode in folded:
        drafts.claim(quantize)
        drafts.encoded(quantize, QuantizeFate.DST_SCALE, "concat rescales its source", step.name)
        drafts.decoded(
            decode, DequantizeFate.SOURCE_SCALE, "concat rescales its source", quantize, step.name
        )


def _stored_otherwise(drafts: Drafts, node: Node) -> tuple[Node, Node, list[float]] | None:
    """What decodes joined codes and the Quantize behind it, when scales of the sources can do both:
    the two, and a factor for each source.

    Neither has a zero point, nothing else reads the codes in between, and each source has one
    scale.
    """
    graph = drafts.graph
    decode = graph.sole_consumer(node.output)
    quantize = (
        graph.sole_consumer(decode.output)
        if decode is not None and decode.op == "Dequantize"
        else None
    )
    shape = graph.type(node.output).shape
    if (
        decode is None
        or quantize is None
        or quantize.op != "Quantize"
        or not drafts.target.capability("concat").src_scale
        or shape is None
    ):
        return None
    quant, dtype, low, high = quantizing(quantize)
    inner = decode.attr("quant", Quantization)
    axis = node.attr("axis", int) % len(shape)
    plain = quant.per_tensor and quant.symmetric and inner.symmetric and inner.axis in (None, axis)
    if (
        drafts.is_claimed(quantize)
        or not plain
        or dtype not in (DType.U8, DType.S8)
        or (low, high) != dtype.range
    ):
        return None
    scales = np.broadcast_to(
        inner.scales.astype(np.float64), (size_along(drafts, node.output, axis) or 1,)
    )
    factors: list[float] = []
    start = 0
    for value in node.inputs:
        own = (
            scales[start : (start := start + size_along(drafts, value, axis))]
            if scales.size > 1
            else scales
        )
        if own.size == 0 or bool((own != own[0]).any()):
            return None
        factors.append(float(np.float32(own[0] / quant.scale[0])))
    return decode, quantize, factors


def _rescaling(drafts: Drafts, value: str) -> tuple[Node, Node, float] | None:
    """A Quantize(Dequantize(codes)) read by nothing else, with zero points 0, that a source scale
    can do: both nodes and the factor.
    """
    graph = drafts.graph
    quantize = graph.producer(value)
    if (
        quantize is None
        or quantize.op != "Quantize"
        or drafts.is_claimed(quantize)
        or graph.read_count(value) != 1
        or graph.is_output(value)
    ):
        return None
    decode = decoded(graph, quantize.inputs[0])
    quant, dtype, low, high = quantizing(quantize)
    if decode is None or not drafts.target.capability("concat").src_scale:
        return None
    inner = decode.attr("quant", Quantization)
    full = (low, high) == dtype.range
    if not (full and quant.per_tensor and quant.symmetric and inner.symmetric):
        return None
    return quantize, decode, float(np.float32(inner.scale[0] / quant.scale[0]))


def plain(drafts: Drafts, node: Node) -> None:
    """The operation itself: a primitive where the target has one for f32, with the chain behind it;
    else the ONNX operator.
    """
    graph = drafts.graph
    primitive = _primitive_of(drafts, node)
    roles = _roles(node)
    if primitive is None:
        operator = node.attr("op_type", str) if node.op == "Onnx" else node.op
        drafts.add(
            Step(
                node.name,
                f"onnx.{operator}",
                node.op,
                tuple(roles),
                node.outputs,
                node.attrs,
                origin=node.origin,
            ),
            [node],
        )
        _settle_foreign(drafts, node)
        return
    roles[0] = ("src", roles[0][1])
    if graph.type(node.output).dtype is not DType.F32:
        drafts.add(
            Step(
                node.name,
                primitive,
                node.op,
                tuple(roles),
                node.outputs,
                node.attrs,
                origin=node.origin,
            ),
            [node],
        )
        return
    rank = graph.type(node.output).rank
    axis = rank - 1 if primitive == "layer_normalization" else max(0, min(1, rank - 1))
    scale, bias = (
        _normalization_parameters(drafts, node)
        if primitive == "layer_normalization"
        else (None, None)
    )
    shows = zero_shows(graph, node, rounded=True)
    front = Front(
        primitive,
        node.name,
        DType.F32,
        rank,
        axis,
        size_along(drafts, node.output, axis),
        scale,
        bias,
        zero_shows=shows,
    )
    chain = grow(graph, PostOpsComposer(drafts.target, front), node.output, node, drafts.is_claimed)
    assert isinstance(chain, Chain)  # every primitive can store f32
    if scale is not None and chain.links:
        roles = [roles[0], *_folded_parameters(drafts, node, chain)]
    drafts.add_chain(
        simple_step(node, primitive, roles, chain, attributes_of(chain.composed)), node, chain
    )


_FROM_ONE_SOURCE = frozenset(
    {
        "pooling",
        "softmax",
        "layer_normalization",
        "batch_normalization",
        "lrn",
        "reduction",
        "resampling",
        "shuffle",
        "prelu",
    }
)


def _primitive_of(drafts: Drafts, node: Node) -> str | None:
    """The primitive that computes the node in f32 (or pools, resizes or shuffles codes), or None:
    the ONNX operator itself does.
    """
    types = [drafts.graph.type(value) for value in (*node.inputs[:1], *node.outputs) if value]
    pools_codes = node.spec.primitive in ("pooling", "resampling", "shuffle") and types[
        -1
    ].dtype in (DType.U8, DType.S8)
    floats = all(type_.dtype is DType.F32 for type_ in types)
    known = all(type_.shape for type_ in types)  # of a known rank that is not 0
    alone = len([value for value in node.outputs if value]) == 1
    return (
        node.spec.primitive
        if node.spec.primitive in _FROM_ONE_SOURCE and (floats or pools_codes) and known and alone
        else None
    )


def _settle_foreign(drafts: Drafts, node: Node) -> None:
    """The fate of a quantizer that stayed an ONNX operator: scales computed at run time, blocks,
    other types.
    """
    if not node.quantizer or node.op in ("Dequantize", "Quantize"):
        return
    reason = "it stays the ONNX operator: its parameters have no form that a primitive takes"
    decodes = "Dequantize" in str(node.attrs.get("op_type", node.op))
    if not decodes:
        drafts.encoded(node, QuantizeFate.FALLBACK, reason, node.name)
    if decodes or node.op == "FakeQuantize":  # a whole one, which belongs to a quantizer
        readers: list[Node | str] = [*drafts.graph.consumers(node.output)]
        if drafts.graph.is_output(node.output):
            readers.append(f"output {node.output}")
        for reader in readers:
            drafts.decoded(node, DequantizeFate.FALLBACK, reason, reader, node.name)


def _normalization_parameters(drafts: Drafts, node: Node) -> tuple[Vec | None, Vec | None]:
    """Scale and bias of a LayerNormalization over the last axis, which take factors and shifts
    behind it; None when computed, or when the model does not tell the size of that axis."""
    rank = drafts.graph.type(node.output).rank
    data = [drafts.graph.constant(value) if value else None for value in (*node.inputs[1:], "")][:2]
    if not size_along(drafts, node.output, rank - 1):
        return None, None
    if (
        node.attr("axis", int) not in (-1, rank - 1)
        or data[0] is None
        or (len(node.inputs) > 2 and node.inputs[2] and data[1] is None)
    ):
        return None, None
    return vec(data[0]), vec(0.0 if data[1] is None else data[1])


def _folded_parameters(drafts: Drafts, node: Node, chain: Chain) -> list[tuple[str, str]]:
    size = size_along(drafts, node.output, drafts.graph.type(node.output).rank - 1)
    found = []
    for role, values in (("scale", chain.composed.scale), ("bias", chain.composed.bias)):
        assert values is not None
        array = np.ascontiguousarray(
            np.broadcast_to(values, (size or values.size,)).astype(np.float32)
        )  # 0: it is not known
        found.append((role, drafts.file_constant(f"{node.name}/{role}", array)))
    return found


def _roles(node: Node) -> list[tuple[str, str]]:
    names = [param.name for param in node.spec.inputs]
    if node.spec.inputs and node.spec.inputs[-1].variadic:
        fixed = len(names) - 1
        names = names[:fixed] + [f"{names[-1]}_{i}" for i in range(len(node.inputs) - fixed)]
    return [(name, value) for name, value in zip(names, node.inputs, strict=False) if value]
