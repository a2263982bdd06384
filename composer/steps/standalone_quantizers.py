"""Quantizers that no primitive took: reorders, requantizing chains, constants, or the operation
itself.
"""

from __future__ import annotations

from ...ir.decision import DequantizeFate, QuantizeFate
from ...ir.node import Node
from ...ir.rule import Refusal
from ...ir.types import DType, Quantization
from ..formula.formula import ChainOp, Store, decoding, vec
from .build import add_alone, codes_behind, front_of, grown, knows_axis, reorder_attributes
from .builder import StepBuilder
from .chain import Chain, is_decoded_at_once, quantizing, steps_from_zero
from .elementwise import one_source_step
from .operands import Source
from .primitives import plain

UNKNOWN_RANK = (
    "the model does not tell how many dimensions the tensor has, which primitives must know"
)

UNKNOWN_SIZE = "the model does not tell the size of the axis that the scales run along, which primitives must know"


_TWO_AXES = Refusal(
    "codes with scales along one axis become codes with scales along another one",
    "one axis",
    "two",
    "quantize per tensor, or along one axis, on both sides of what moves the values",
)


def quantize_alone(builder: StepBuilder, node: Node) -> None:
    """A Quantize that no primitive took: a reorder, of codes where its input is a Dequantize, or
    post-ops of a binary with what follows.
    """
    reason = _encode(builder, node)
    if reason:
        plain(builder, node)
        builder.encoded(node, QuantizeFate.FALLBACK, reason, node.name)


def _encode(builder: StepBuilder, node: Node) -> str:
    """Adds the step of a Quantize, or says why it stays the operation itself; '' when it is done."""
    graph = builder.graph
    quant, dtype, low, high = quantizing(node)
    wide = is_decoded_at_once(graph, node)
    no_codes = f"no primitive stores {dtype.value} codes"
    if not (dtype.is_code or wide) or graph.type(node.input).dtype is not DType.F32:
        return no_codes
    if unknown := _unknown(builder, node):
        return unknown
    decode = codes_behind(builder, node.input)
    inner = None if decode is None else decode.quant
    if decode and inner and len({quant.axis, inner.axis} - {None}) > 1:
        builder.decode_apart(node, decode, _TWO_AXES)
        decode = inner = None
    source = _source(builder, node.input, decode)
    scale, zero = vec(quant.scales), vec(quant.zero_points)
    own: list[ChainOp] = [Store(dtype, scale, zero, low, high)]
    if dtype.is_wide_code:
        own = [*steps_from_zero(node, scale, zero)]
    axis = quant.axis if inner is None or quant.axis is not None else inner.axis
    start = [] if inner is None else decoding(inner.scales, inner.zero_points)
    chain = grown(
        builder, node, front_of(builder, node, "binary", source.dtype, axis), [*start, *own]
    )
    if isinstance(chain, Refusal):  # what decodes 16-bit codes must fit too
        assert dtype.is_wide_code  # binary takes every other quantizer, into both 8-bit types
        builder.refuse("fuse into binary", node, chain)
        return no_codes
    simple = not wide and (low, high) == dtype.range and not chain.links
    simple = simple and all(_fits_reorder(q) for q in (quant, inner) if q is not None)
    if inner is not None and not (inner.per_tensor and quant.per_tensor):
        simple = False  # oneDNN 3.2 takes its reference reorder: 17 ms where a binary takes 60 us
    if simple:
        attr = reorder_attributes(builder, inner, quant)
        add_alone(builder, node, "reorder", [("src", source.value)], attr)
    else:
        one_source_step(builder, node, source, chain)
    builder.encoded(node, QuantizeFate.STANDALONE, builder.why_alone(node), node.name)
    if decode is not None:
        how = "requantized in one step, from codes to codes"
        builder.decoded(decode, DequantizeFate.SOURCE_SCALE, how, node, node.name)
    return ""


def _source(builder: StepBuilder, value: str, decode: Node | None) -> Source:
    """A value in f32, or the codes that are decoded to it."""
    if decode is None:
        return Source(value, DType.F32)
    codes = decode.input
    return Source(codes, builder.graph.type(codes).dtype, decode=decode)


def _unknown(builder: StepBuilder, node: Node) -> str:
    """What a primitive must know of the tensor that the quantizer reads, and the model does not
    tell; '' for nothing.
    """
    if builder.graph.type(node.output).shape is None:
        return UNKNOWN_RANK
    return "" if knows_axis(builder, node) else UNKNOWN_SIZE


def _fits_reorder(quant: Quantization) -> bool:
    """True when a reorder takes the zero points: integers, and one for all (oneDNN 2.6 refuses
    others, 3.2 fails when it runs).
    """
    return quant.integral and len(set(quant.zero_point)) == 1


def dequantize_alone(builder: StepBuilder, node: Node) -> None:
    """A Dequantize whose f32 values something reads: a constant, a reorder, or the operation itself
    for other than 8-bit codes.
    """
    graph = builder.graph
    quant, value = node.quant, node.input
    evaluate, codes = node.spec.evaluate, graph.constant(value)
    fate, why, step = DequantizeFate.STANDALONE, "", node.name
    how, unknown = "", _unknown(builder, node)
    if codes is not None and evaluate is not None and not graph.is_output(node.output):
        builder.file_constant(node.output, evaluate([codes], node.attrs)[0])
        builder.claim(node)
        fate, step = DequantizeFate.CONSTANT, ""
        how = "decoded at compile time: "
    elif not graph.type(value).dtype.is_code or codes is not None or unknown:
        plain(builder, node)
        fate = DequantizeFate.FALLBACK
        readable = graph.type(value).dtype.is_code and codes is None
        why = unknown if readable else "codes that no primitive reads"
    elif _fits_reorder(quant):
        attr = reorder_attributes(builder, quant, None)
        add_alone(builder, node, "reorder", [("src", value)], attr)
    else:  # fractional zero points, or one for each channel, as post-ops
        source = _source(builder, node.output, node)
        front = front_of(builder, node, "binary", source.dtype, quant.axis)
        chain = grown(builder, node, front, decoding(quant.scales, quant.zero_points))
        assert isinstance(chain, Chain)  # binary takes both from both 8-bit types, into f32
        one_source_step(builder, node, source, chain)
    for reader in graph.consumers(node.output):
        if builder.reads(reader, node.output):
            apart = why or f"{how}{builder.why_apart(reader, node)}"
            builder.decoded(node, fate, apart, reader, step)
    if graph.is_output(node.output):
        returned = why or "the model returns the decoded values"
        builder.decoded(node, fate, returned, f"output {node.output}", step)
