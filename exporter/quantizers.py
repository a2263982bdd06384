"""Quantize and Dequantize in ONNX: as QuantizeLinear and DequantizeLinear where those say the same,
else spelled out.
"""

from __future__ import annotations

import numpy as np

from ..ir.element_types import ELEMENT_TYPES
from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.spec import Array
from ..ir.types import DType, Quantization
from .liberties import is_spelled, kept_apart
from .names import Writer
from .rows import shaped

_CODES = frozenset({DType.U8, DType.S8, DType.U16, DType.S16})
_SUMS = frozenset({DType.S32})

FRACTION = "its zero point is no integer, and ONNX has only those"
TYPE = "ONNX has no codes of its type"


def is_linear(quant: Quantization, dtype: DType) -> bool:
    """True where DequantizeLinear decodes such codes: integer zero points, of their type."""
    if dtype in _SUMS:
        return not quant.zero_points.any()
    if dtype not in _CODES or not quant.integral:
        return False
    low, high = dtype.range
    return bool((quant.zero_points >= low).all() and (quant.zero_points <= high).all())


def parameters(writer: Writer, base: str, quant: Quantization, dtype: DType) -> tuple[str, str]:
    """Files scales and zero points, and returns their names; they are numbers where the
    quantization is per tensor. Codes of 32 bits have no zero point.
    """
    shape = () if quant.axis is None else (-1,)
    scale = writer.constant(f"{base}/scale", quant.scales.reshape(shape))
    if dtype in _SUMS:
        return scale, ""
    zero = quant.zero_points.astype(dtype.numpy).reshape(shape)
    return scale, writer.constant(f"{base}/zero_point", zero)


def write_dequantize(writer: Writer, graph: Graph, node: Node) -> None:
    """DequantizeLinear; with a zero point that ONNX has not, or of weights that nothing multiplies
    as codes, Cast, Sub and Mul, which round as the op table does.
    """
    quant, dtype = node.quant, graph.type(node.input).dtype
    spelled = dtype in _CODES and (node.output in writer.spelled or is_spelled(graph, node))
    if is_linear(quant, dtype) and not spelled:
        scale, zero = parameters(writer, node.output, quant, dtype)
        inputs = [node.input, scale, zero]
        writer.node("DequantizeLinear", inputs, [node.output], node.name, axis=quant.axis)
        return
    if not spelled:
        writer.note(node.name, FRACTION if dtype in _CODES else TYPE)
    scales, zeros = shaped(graph, node)
    real = writer.one("Cast", [node.input], node.name, to=1)
    moved = writer.one(
        "Sub", [real, writer.constant(f"{node.output}/zero", _f32(zeros))], node.name
    )
    scale = writer.constant(f"{node.output}/scale", _f32(scales))
    writer.node("Mul", [moved, scale], [node.output], node.name)


def write_quantize(writer: Writer, graph: Graph, node: Node) -> None:
    """QuantizeLinear, and a Clip of the codes where they have not the whole range of their type.

    A zero point z that is no code is one, k, with s*(z - k) added in front: round(x/s + z) =
    round((x + s*(z - k))/s) + k. Codes of other types are spelled out, operation by operation.
    """
    quant, dtype = node.quant, node.attr("dtype", DType)
    source = node.input
    if graph.type(source).dtype is not DType.F32:
        source = writer.one("Cast", [source], node.name, to=1)
    else:
        source = kept_apart(writer, graph, node, source)
    if dtype not in _CODES:
        _write_rounding(writer, graph, node, source)
        return
    low, high = dtype.range
    near = np.clip(np.rint(quant.zero_points), low, high)
    if (near != quant.zero_points).any():
        writer.note(node.name, FRACTION)
        scales, zeros = shaped(graph, node)
        shift = scales * (zeros - near.reshape(zeros.shape))
        moved = writer.constant(f"{node.output}/shift", _f32(shift))
        source = writer.one("Add", [source, moved], node.name)
        quant = Quantization(quant.scale, tuple(near.tolist()), quant.axis)
    scale, zero = parameters(writer, node.output, quant, dtype)
    codes = codes_of(writer, node)
    writer.node("QuantizeLinear", [source, scale, zero], [codes], node.name, axis=quant.axis)
    write_clip(writer, node, codes)


def codes_of(writer: Writer, node: Node) -> str:
    """The value that the operator behind which `write_clip` follows has to write."""
    bounds = node.attr("lo", int), node.attr("hi", int)
    whole = bounds == node.attr("dtype", DType).range
    return node.output if whole else writer.fresh(f"{node.output}/unclipped")


def write_clip(writer: Writer, node: Node, codes: str) -> None:
    """A Clip of codes, where a Quantize has not the whole range of its type."""
    if codes != node.output:
        dtype = node.attr("dtype", DType)
        bounds = node.attr("lo", int), node.attr("hi", int)
        wide = dtype.is_wide_code  # which ONNX Runtime clips as integers of 32 bits alone
        limits = [_bound(writer, node, bound, DType.S32 if wide else dtype) for bound in bounds]
        if not wide:
            writer.node("Clip", [codes, *limits], [node.output], f"{node.name}/Clip")
            return
        whole = writer.one("Cast", [codes], node.name, to=ELEMENT_TYPES[DType.S32])
        held = writer.one("Clip", [whole, *limits], node.name)
        writer.node("Cast", [held], [node.output], node.name, to=ELEMENT_TYPES[dtype])


def _write_rounding(writer: Writer, graph: Graph, node: Node, source: str) -> None:
    """The op table's definition: divide, round, add the zero point, clip, cast."""
    dtype, name = node.attr("dtype", DType), node.name
    writer.note(name, TYPE)
    scales, zeros = shaped(graph, node)
    value = writer.one("Div", [source, writer.constant(f"{node.output}/scale", _f32(scales))], name)
    zero = writer.constant(f"{node.output}/zero", _f32(zeros))
    order = ("Round", "Add") if node.attrs["order"] == "round_first" else ("Add", "Round")
    for op in order:
        value = writer.one(op, [value, zero] if op == "Add" else [value], name)
    bounds = (node.attr("lo", int), node.attr("hi", int))
    limits = [_bound(writer, node, bound, DType.F32) for bound in bounds]
    value = writer.one("Clip", [value, *limits], name)
    writer.node("Cast", [value], [node.output], name, to=ELEMENT_TYPES[dtype])


def _bound(writer: Writer, node: Node, bound: int, dtype: DType) -> str:
    return writer.constant(f"{node.output}/bound", np.asarray(bound, dtype.numpy))


def _f32(values: Array) -> Array:
    return np.ascontiguousarray(values, np.float32)
