"""Quantizers that no primitive took: reorders, requantizing chains, constants, or the operation
itself.
"""

from __future__ import annotations

import numpy as np

from ...ir.decision import DequantizeFate, QuantizeFate
from ...ir.node import Node
from ...ir.rule import Refusal
from ...ir.types import DType, Quantization
from ...plan.attributes import PrimitiveAttr, Scale, ZeroPoint
from ...plan.types import Step
from ..formula.exact_zeros import zero_shows
from ..formula.formula import BasicOp, ScaleBy, Shift, Store, vec
from ..mapping.post_ops_composer import Front, PostOpsComposer
from .chain import Chain, grow, is_decoded_at_once, quantizing, steps_from_zero
from .drafts import Drafts
from .elementwise import one_source_step
from .operands import Source
from .step_parts import codes_behind, knows_axis, quantization_of, size_along
from .steps import plain

__all__ = ["dequantize_alone", "quantize_alone"]

UNKNOWN_RANK = (
    "the model does not tell how many dimensions the tensor has, which primitives must know"
)

UNKNOWN_SIZE = "the model does not tell the size of the axis that the scales run along, which primitives must know"


def quantize_alone(drafts: Drafts, node: Node) -> None:
    """A Quantize that no primitive took: a reorder, of codes where its input is a Dequantize, or
    post-ops of a binary with what follows.
    """
    quant, dtype, low, high = quantizing(node)
    wide = is_decoded_at_once(drafts.graph, node)
    if (dtype not in (DType.U8, DType.S8) and not wide) or drafts.graph.type(
        node.inputs[0]
    ).dtype is not DType.F32:
        plain(drafts, node)
        drafts.encoded(
            node, QuantizeFate.FALLBACK, f"no primitive stores {dtype.value} codes", node.name
        )
        return
    unknown = _unknown(drafts, node)
    if unknown:
        plain(drafts, node)
        drafts.encoded(node, QuantizeFate.FALLBACK, unknown, node.name)
        return
    decode = codes_behind(drafts, node.inputs[0])
    inner = quantization_of(decode)
    if inner is not None and len({q.axis for q in (quant, inner)} - {None}) > 1:
        decode, inner = None, None
    chain = _requantizing_chain(drafts, node, decode, inner)
    if isinstance(chain, Refusal):
        drafts.refuse("fuse into binary", node, chain)
        plain(drafts, node)
        drafts.encoded(
            node, QuantizeFate.FALLBACK, f"no primitive stores {dtype.value} codes", node.name
        )
        return
    source = (
        Source(node.inputs[0], DType.F32)
        if decode is None
        else Source(decode.inputs[0], drafts.graph.type(decode.inputs[0]).dtype, decode=decode)
    )
    simple = (
        not wide
        and (low, high) == dtype.range
        and _fits_reorder(quant)
        and (inner is None or _fits_reorder(inner))
    )
    if inner is not None and not (inner.per_tensor and quant.per_tensor):
        simple = (
            False  # oneDNN 3.2 takes its reference reorder for it: 17 ms where a binary takes 60 us
        )
    if simple and not chain.links:
        attr = _reorder_attributes(drafts, inner, quant)
        step = Step(
            node.name,
            "reorder",
            "Identity",
            (("src", source.value),),
            node.outputs,
            {},
            attr,
            node.origin,
        )
        drafts.add(step, [node])
    else:
        step = one_source_step(drafts, node, source, chain)
        drafts.add_chain(step, node, chain)
    drafts.encoded(node, QuantizeFate.STANDALONE, drafts.why_alone(node), step.name)
    if decode is not None:
        drafts.decoded(
            decode,
            DequantizeFate.SOURCE_SCALE,
            "requantized in one step, from codes to codes",
            node,
            step.name,
        )


def _unknown(drafts: Drafts, node: Node) -> str:
    """What a primitive must know of the tensor that the quantizer reads, and the model does not
    tell; '' for nothing.
    """
    if drafts.graph.type(node.output).shape is None:
        return UNKNOWN_RANK
    return "" if knows_axis(drafts, node) else UNKNOWN_SIZE


def _requantizing_chain(
    drafts: Drafts, node: Node, decode: Node | None, inner: Quantization | None
) -> Chain | Refusal:
    """A Quantize as post-ops of a binary, with what decodes its input in front and what follows
    behind.

    Only 16-bit codes can be refused: what decodes them must fit too.
    """
    graph = drafts.graph
    quant, dtype, low, high = quantizing(node)
    rank = graph.type(node.output).rank
    axis = next(
        (q.axis for q in (quant, inner) if q is not None and q.axis is not None),
        max(0, min(1, rank - 1)),
    )
    src = DType.F32 if decode is None else graph.type(decode.inputs[0]).dtype
    channels = size_along(drafts, node.output, axis)
    front = Front(
        "binary",
        node.name,
        src,
        rank,
        axis,
        channels,
        zero_shows=zero_shows(drafts.graph, node, rounded=True),
    )
    composer = PostOpsComposer(drafts.target, front)
    start: list[BasicOp] = (
        [] if inner is None else [Shift(-vec(inner.zero_points)), ScaleBy(vec(inner.scales))]
    )
    scale, zero = vec(quant.scales), vec(quant.zero_points)
    own = (
        steps_from_zero(node, scale, zero)
        if dtype.is_wide_code
        else [Store(dtype, scale, zero, low, high)]
    )
    refusal = composer.append([*start, *own])
    if refusal is not None:
        assert (
            dtype.is_wide_code
        )  # binary takes every post-op that a quantizer needs, into both 8-bit types
        return refusal
    chain = grow(graph, composer, node.output, node, drafts.is_claimed)
    assert isinstance(chain, Chain) or dtype.is_wide_code
    return chain


def _fits_reorder(quant: Quantization) -> bool:
    """True when a reorder takes the zero points: integers, and one for all (oneDNN 2.6 refuses
    others, 3.2 fails when it runs).
    """
    return quant.integral and len(set(quant.zero_point)) == 1


def _reorder_attributes(
    drafts: Drafts, source: Quantization | None, destination: Quantization | None
) -> PrimitiveAttr:
    scales: dict[str, Scale] = {}
    zero_points: dict[str, ZeroPoint] = {}
    for role, quant in (("src", source), ("dst", destination)):
        if quant is None:
            continue
        mask = 0 if quant.axis is None else 1 << quant.axis
        scales[role] = Scale(quant.scale, mask)
        zeros = tuple(int(zero) for zero in quant.zero_point)
        if any(zeros):
            zero_points[role] = (
                ZeroPoint(zeros[:1], 0) if len(set(zeros)) == 1 else ZeroPoint(zeros, mask)
            )
    if drafts.target.scales == "arguments":
        return PrimitiveAttr(scales, zero_points)
    factor = np.asarray(1.0) if source is None else source.scales.astype(np.float64)
    factor = factor if destination is None else factor / destination.scales.astype(np.float64)
    values = np.atleast_1d(factor).astype(np.float32)
    mask = max((scale.mask for scale in scales.values()), default=0)
    return PrimitiveAttr(
        {}, zero_points, (), Scale(tuple(values.tolist()), mask if values.size > 1 else 0)
    )


def dequantize_alone(drafts: Drafts, node: Node) -> None:
    """A Dequantize whose f32 values something reads: a constant, a reorder, or the operation itself
    for other than 8-bit codes.
    """
    graph = drafts.graph
    quant = node.attr("quant", Quantization)
    readers: list[Node | str] = [
        reader for reader in graph.consumers(node.output) if drafts.reads(reader, node.output)
    ]
    if graph.is_output(node.output):
        readers.append(f"output {node.output}")
    evaluate = node.spec.evaluate
    codes = graph.constant(node.inputs[0])
    if codes is not None and evaluate is not None and not graph.is_output(node.output):
        drafts.file_constant(node.output, evaluate([codes], node.attrs)[0])
        drafts.claim(node)
        for reader in readers:
            drafts.decoded(
                node,
                DequantizeFate.CONSTANT,
                "decoded at compile time: its reader takes f32",
                reader,
            )
        return
    codes_of_primitives = graph.type(node.inputs[0]).dtype in (DType.U8, DType.S8) and codes is None
    unknown = _unknown(drafts, node)
    simple = codes_of_primitives and not unknown
    if simple and _fits_reorder(quant):
        attr = _reorder_attributes(drafts, quant, None)
        drafts.add(
            Step(
                node.name,
                "reorder",
                "Identity",
                (("src", node.inputs[0]),),
                node.outputs,
                {},
                attr,
                node.origin,
            ),
            [node],
        )
    elif simple:
        chain = _decoding_chain(drafts, node, quant)
        source = Source(node.inputs[0], graph.type(node.inputs[0]).dtype, decode=node)
        drafts.add_chain(one_source_step(drafts, node, source, chain), node, chain)
    else:
        plain(drafts, node)
    fate = DequantizeFate.STANDALONE if simple else DequantizeFate.FALLBACK
    for reader in readers:
        why = (
            "its reader takes f32"
            if simple
            else unknown
            if codes_of_primitives
            else "codes that no primitive reads"
        )
        drafts.decoded(node, fate, why, reader, node.name)


def _decoding_chain(drafts: Drafts, node: Node, quant: Quantization) -> Chain:
    """Shift and scale of a Dequantize as post-ops of a binary: fractional zero points, or one for
    each channel.
    """
    rank = drafts.graph.type(node.output).rank
    axis = quant.axis if quant.axis is not None else max(0, min(1, rank - 1))
    src = drafts.graph.type(node.inputs[0]).dtype
    channels = size_along(drafts, node.output, axis)
    front = Front(
        "binary",
        node.name,
        src,
        rank,
        axis,
        channels,
        zero_shows=zero_shows(drafts.graph, node, rounded=True),
    )
    composer = PostOpsComposer(drafts.target, front)
    refusal = composer.append([Shift(-vec(quant.zero_points)), ScaleBy(vec(quant.scales))])
    assert refusal is None  # binary takes scale and shift from both 8-bit types, into f32
    return Chain(node.output, composer.result)
