"""fqfuse's own ops, and those that peers have no kernels for, in standard operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..errors import UnsupportedOp
from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.blocks import middle, packed, unpacked
from ..ir.types import DType
from .names import MICROSOFT, Writer
from .rows import refused
from .run_time import number


def _lookup(writer: Writer, graph: Graph, node: Node) -> None:
    """table[code]: a Gather, whose table begins with the smallest code."""
    codes, table = node.inputs
    index = writer.one("Cast", [codes], node.name, to=6)
    data = graph.constant(table)
    if graph.type(codes).dtype is DType.S8:
        if data is None:
            raise refused(node, "its table is computed")
        table = writer.constant(f"{node.output}/table", np.roll(data, 128))
        index = writer.one(
            "Add",
            [index, writer.constant(f"{node.output}/first", np.asarray(128, np.int32))],
            node.name,
        )
    writer.node("Gather", [table, index], [node.output], node.name, axis=0)


def _shuffle(writer: Writer, graph: Graph, node: Node) -> None:
    """[..., groups, size, ...] transposed: Reshape, Transpose, Reshape."""
    axis, size = node.attr("axis", int), node.attr("group_size", int)
    shape = graph.type(node.input).shape or ()
    rank, count = len(shape), shape[axis] if shape else None
    if not isinstance(count, int) or sum(not isinstance(dim, int) for dim in shape or ()) > 1:
        raise refused(node, "more than one dimension has no size")
    dims = [dim if isinstance(dim, int) else -1 for dim in shape or ()]
    apart = [*dims[:axis], count // size, size, *dims[axis + 1 :]]
    perm = [*range(axis), axis + 1, axis, *range(axis + 2, rank + 1)]
    apart_name = writer.constant(f"{node.output}/apart", np.asarray(apart, np.int64))
    together = writer.constant(f"{node.output}/together", np.asarray(dims, np.int64))
    value = writer.one("Reshape", [node.input, apart_name], node.name)
    value = writer.one("Transpose", [value], node.name, perm=perm)
    writer.node("Reshape", [value, together], [node.output], node.name)


def _slice_like(writer: Writer, _graph: Graph, node: Node) -> None:
    """Shape, Gather and Slice."""
    axis, size_axis, zero = (
        writer.constant(f"{node.output}/{what}", np.asarray([number], np.int64))
        for what, number in (
            ("axis", node.attrs["axis"]),
            ("size_axis", node.attrs["size_axis"]),
            ("first", 0),
        )
    )
    size = writer.one(
        "Gather", [writer.one("Shape", [node.operand(1)], node.name), size_axis], node.name
    )
    writer.node("Slice", [node.input, zero, size, axis], [node.output], node.name)


def _swish(writer: Writer, _graph: Graph, node: Node) -> None:
    """x * sigmoid(alpha * x): runtimes know it so, and the operator not yet."""
    alpha = float(str(node.attrs["alpha"]))
    inner = node.input
    if alpha != 1:
        factor = writer.constant(f"{node.output}/alpha", np.asarray(alpha, np.float32))
        inner = writer.one("Mul", [inner, factor], node.name)
    gate = writer.one("Sigmoid", [inner], node.name)
    writer.node("Mul", [node.input, gate], [node.output], node.name)


def _run_time_dequantize(writer: Writer, graph: Graph, node: Node) -> None:
    """DequantizeLinear of parameters that are computed; of 32-bit sums as the op table computes."""
    codes, scale, zero = (*node.inputs, "")[:3]
    axis = node.attrs["axis"]
    if graph.type(codes).dtype not in (DType.U8, DType.S8):
        _decoded_apart(writer, graph, node)
        return
    if axis is None:
        scale, zero = (number(writer, graph, node, value) for value in (scale, zero))
    writer.node("DequantizeLinear", [codes, scale, zero], [node.output], node.name, axis=axis)


def _decoded_apart(writer: Writer, graph: Graph, node: Node) -> None:
    codes, scale, zero = (*node.inputs, "")[:3]
    axis = node.attrs["axis"]
    value = writer.one("Cast", [codes], node.name, to=1)
    if axis is not None:
        assert isinstance(axis, int)
        known = graph.type(codes).shape
        if known is None:
            raise refused(node, "the rank of what it reads is unknown")
        shape = [1] * len(known)
        shape[axis] = -1
        along = writer.constant(f"{node.output}/along", np.asarray(shape, np.int64))
        scale = writer.one("Reshape", [scale, along], node.name)
        zero = zero and writer.one("Reshape", [zero, along], node.name)
    if zero:
        value = writer.one("Sub", [value, writer.one("Cast", [zero], node.name, to=1)], node.name)
    writer.node("Mul", [value, scale], [node.output], node.name)


def _fake_quantize_grid(_writer: Writer, _graph: Graph, node: Node) -> None:
    """No operator of ONNX has a FakeQuantize by computed ranges, inverted ones among them."""
    raise UnsupportedOp(
        "FakeQuantize by ranges that are computed cannot be written in standard ONNX",
        where=", ".join(node.origin) or node.name,
        hint="make the ranges initializers, or run the model with fqfuse",
    )


def _dynamic_range(writer: Writer, _graph: Graph, node: Node) -> None:
    """Scale and zero point of a DynamicQuantizeLinear."""
    codes = writer.fresh(f"{node.name}/codes")
    writer.node("DynamicQuantizeLinear", [node.input], [codes, *node.outputs], node.name)


def _matmul_blocks(writer: Writer, graph: Graph, node: Node) -> None:
    """ONNX Runtime's MatMulNBits, with products of f32; `packed.py` makes such nodes."""
    source, codes, scales, zeros = (*node.inputs, "")[:4]
    data, factors, points = (
        graph.constant(name) if name else None for name in (codes, scales, zeros)
    )
    assert data is not None  # `packed.py` looked
    assert factors is not None
    bits, block, size = (node.attr(name, int) for name in ("bits", "block", "size"))
    rows, blocks = factors.shape
    inputs = [
        source,
        writer.constant(f"{node.output}/codes", data.reshape(rows, blocks, block * bits // 8)),
        writer.constant(f"{node.output}/scales", factors.astype(np.float32)),
    ]
    if points is not None and (points != np.rint(points)).any():  # which it takes as floats
        inputs.append(writer.constant(f"{node.output}/zero_points", points.astype(np.float32)))
    elif points is not None:
        whole = -(-blocks * bits // 8) * 8 // bits  # rows of zero points begin at a byte
        filled = np.zeros((rows, whole), np.uint8)
        filled[:, :blocks] = points
        inputs.append(writer.constant(f"{node.output}/zero_points", packed(filled, bits)))
    attributes = {"K": size, "N": rows, "bits": bits, "block_size": block, "accuracy_level": 1}
    writer.node("MatMulNBits", inputs, [node.output], node.name, MICROSOFT, **attributes)


def _dequantize_blocks(writer: Writer, graph: Graph, node: Node) -> None:
    """DequantizeLinear along the last axis, in blocks; of zero points that are no codes, or computed, Sub and Mul of
    blocks.
    """
    scales, zeros = (*node.inputs[1:], "")[:2]
    bits, block = (node.attr(name, int) for name in ("bits", "block"))
    given = graph.constant(zeros) if zeros else np.full(1, middle(bits), np.float32)
    points = np.asarray(np.nan if given is None else given, np.float32)
    if not ((points == np.rint(points)) & (points >= 0) & (points < 1 << bits)).all():
        _blocks_apart(writer, graph, node)
        return
    # runtimes pick whole bytes
    dtype = DType.U4 if bits == 4 and graph.constant(node.inputs[0]) is not None else DType.U8
    known = graph.constant(scales)
    if known is not None:
        zero = np.broadcast_to(points, known.shape).astype(np.uint8)
        parameters = [writer.constant(f"{node.output}/zero_points", zero, dtype)]
    elif not zeros:  # their shape is computed: codes around 0 need none
        dtype, parameters = (DType.S4 if dtype is DType.U4 else DType.S8), []
    else:
        _blocks_apart(writer, graph, node)
        return
    first = 0 if parameters else middle(bits)
    name = _plain(writer, graph, node, dtype, first, node.attr("size", int))
    writer.node(
        "DequantizeLinear",
        [name, scales, *parameters],
        [node.output],
        node.name,
        axis=-1,
        block_size=block,
    )


def _plain(
    writer: Writer, graph: Graph, node: Node, dtype: DType, first: int, size: int | None = None
) -> str:
    """The codes of a DequantizeBlocks one by one, less `first`: a constant, or rows that are picked of one."""
    codes, bits = node.inputs[0], node.attr("bits", int)
    pick = graph.producer(codes, "Gather")
    data = graph.constant(codes if pick is None else pick.inputs[0])
    axis = -1 if pick is None or data is None else pick.attr("axis", int) % data.ndim
    if data is None or axis == data.ndim - 1:
        raise refused(node, "its packed codes are computed")
    plain = (
        unpacked(data, bits)[..., :size].astype(np.int16) - first
    )  # the last block may be filled up
    carried = np.ascontiguousarray(plain).astype(dtype.numpy)
    name = writer.constant(f"{node.output}/codes", carried, dtype)
    return (
        name if pick is None else writer.one("Gather", [name, pick.inputs[1]], node.name, axis=axis)
    )


def _blocks_apart(writer: Writer, graph: Graph, node: Node) -> None:
    """(code - zero point) * scale, each block a row of a further axis."""
    scales, zeros = (*node.inputs[1:], "")[:2]
    block, size, bits = (node.attr(name, int) for name in ("block", "size", "bits"))
    shape = graph.type(node.inputs[0]).shape
    if shape is None:
        raise refused(node, "the rank of what it reads is unknown")
    rank, blocks = len(shape), -(-size // block)
    kept = [0] * (rank - 1)  # as they are

    def shaped(value: str, *last: int) -> str:
        shape = writer.constant(f"{node.output}/shape", np.asarray([*kept, *last], np.int64))
        return writer.one("Reshape", [value, shape], node.name)

    value = writer.one("Cast", [_plain(writer, graph, node, DType.U8, 0)], node.name, to=1)
    value = shaped(value, blocks, block)
    if zeros:
        zero = shaped(writer.one("Cast", [zeros], node.name, to=1), blocks, 1)
    else:
        zero = writer.constant(f"{node.output}/zero", np.asarray(middle(bits), np.float32))
    value = writer.one("Sub", [value, zero], node.name)
    value = writer.one("Mul", [value, shaped(scales, blocks, 1)], node.name)
    value = shaped(value, blocks * block)
    ends = [
        writer.constant(f"{node.output}/end", np.asarray([end], np.int64))
        for end in (0, size, rank - 1)
    ]
    writer.node("Slice", [value, *ends], [node.output], node.name)


def _dynamic_lstm(writer: Writer, graph: Graph, node: Node) -> None:
    """ONNX Runtime's own operator, as it was."""
    shape = graph.type(node.operand(2)).shape
    size = shape[1] if shape and len(shape) > 1 else None
    attributes: dict[str, Any] = {k: v for k, v in node.attrs.items() if v not in (None, (), 0)}
    x, w, r, ws, wz, rs, rz, b, lens, h, c, p = (*node.inputs, *[""] * 12)[:12]
    inputs = [x, w, r, b, lens, h, c, p, ws, wz, rs, rz]
    attributes["hidden_size"] = node.attrs["hidden_size"] or size
    writer.node(
        "DynamicQuantizeLSTM", inputs, list(node.outputs), node.name, MICROSOFT, **attributes
    )


SPELLED: Mapping[str, Callable[[Writer, Graph, Node], None]] = {
    "DequantizeBlocks": _dequantize_blocks,
    "DynamicQuantizeLSTM": _dynamic_lstm,
    "DynamicRange": _dynamic_range,
    "FakeQuantizeGrid": _fake_quantize_grid,
    "Lookup": _lookup,
    "MatMulBlocks": _matmul_blocks,
    "RunTimeDequantize": _run_time_dequantize,
    "Shuffle": _shuffle,
    "SliceLike": _slice_like,
    "Swish": _swish,
}
"""Op -> what writes it."""
