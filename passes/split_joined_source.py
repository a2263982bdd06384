"""A product of joined codes with different scales becomes a sum of products, one for each scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..ir.cleanup import erase_unread
from ..ir.graph import Graph
from ..ir.node import Node, origin_of
from ..ir.ops.product_axes import channels_axis, inputs_axis, outputs_axis
from ..ir.rule import Refusal
from ..ir.types import DType, Quantization
from .base import Contract, NodePass, Verdict, swap
from .retyping import is_padded, maker_of


@dataclass(frozen=True)
class _Part:
    """Codes that were joined, and how many channels they became."""

    codes: str
    quant: Quantization
    size: int
    decode: Node


def split_joined_source(graph: Graph, node: Node, most: int = 8) -> Verdict:
    """Multiplies what was joined by scale: the sum of the products is the product of what was
    joined.

    Before -> after::

        Conv(Concat(Dequantize(a){s}, Dequantize(b){t}), w)
        ->  Add(Conv(Dequantize(b){t}, w of b's channels), Conv(Dequantize(a){s}, w of a's channels))
        Conv(Dequantize(Concat(a, b)){s for a's channels, t for b's}, w)       likewise
        ConvTranspose, MatMul                                                  likewise

    because no int8 product takes several scales in one source: decoded, it is an f32 product, which
    takes 1.5 to 4 times as long as two in int8, and the addition is a post-op. Parts with equal
    scales stay joined. Up to 8 products were measured to pay on oneDNN 3.2.

    Legal because: a sum over channels is the sum over the parts; padding is the real 0 in each. In
    f32 the partial sums are rounded.
    Refuses when: there are more than `most` different scales, a zero point is no integer where
    padding is read, the product is not one of 8-bit codes, or a size beside the joined ones is
    known of some pieces only.
    """
    shape, weights = graph.type(node.input).shape, _weights(graph, node)
    if shape is None or weights is None or node.attrs.get("group", 1) != 1:
        return None
    axis = channels_axis(node.op, len(shape))
    groups = _by_scale(graph, node, axis)
    if len(groups) < 2:
        return None
    if len(groups) > most:
        expected, found = f"at most {most} scales", f"{len(groups)} of them"
        return Refusal(
            "too many scales in one source",
            expected,
            found,
            "give all inputs of the concatenation one scale and zero point",
        )
    # A fraction of a zero point is not the same shift for all results where some of them read
    # padding, or not all weights.
    reads_zeros = node.op == "ConvTranspose" or is_padded(node)
    if not all(quant.integral for quant, _ in groups) and reads_zeros:
        what = "a zero point of the source is no integer"
        return Refusal(
            what,
            "integer zero points, or no padding",
            "a fraction",
            "choose ranges in which 0 is exactly one of the codes, so that zero points are whole numbers",
        )
    before = [graph.producer(value) for value in node.inputs[:2]]
    swap(graph, node, _sum_of_products(graph, node, weights, [*groups.values()], axis))
    _erase_upwards(graph, before)
    return f"{len(groups)} products, one for each scale in its source"


SPLIT_JOINED_SOURCE = NodePass(
    "split_joined_source",
    Contract("identity", "ties"),
    split_joined_source,
    ("Conv", "ConvTranspose", "MatMul"),
)


def _sum_of_products(
    graph: Graph,
    node: Node,
    weights: Node,
    groups: Sequence[Sequence[tuple[_Part, range]]],
    axis: int,
) -> str:
    """A product for each group of parts, the bias in the last one, and their sum."""
    total = ""
    for number, group in enumerate(groups, 1):
        source = _joined(graph, node, [part for part, _ in group], axis)
        chosen = [channel for _, channels in group for channel in channels]
        inputs = [source, _share(graph, node, weights, chosen)]
        inputs += node.inputs[2:] if number == len(groups) else ()
        product = graph.again(node, inputs).output
        total = graph.part(node, "Add", [product, total], "sum") if total else product
    return total


def _by_scale(
    graph: Graph, node: Node, axis: int
) -> dict[tuple[Quantization, DType], list[tuple[_Part, range]]]:
    """The parts of the source that decode alike, each with the channels that it became; none where
    they cannot be told.
    """
    groups: dict[tuple[Quantization, DType], list[tuple[_Part, range]]] = {}
    start = 0
    for part in _parts(graph, node.input, axis) or []:
        if _beside(graph, part.codes, axis) != _beside(graph, node.input, axis):
            # a size is known of some pieces only: a sum of products would have a wider type
            # than the one product
            return {}
        kind, channels = graph.type(part.codes).dtype, range(start, start + part.size)
        groups.setdefault((part.quant, kind), []).append((part, channels))
        start = channels.stop
    return groups


def _beside(graph: Graph, value: str, axis: int) -> list[int | str]:
    """The sizes of a value but for the one along `axis`."""
    return [size for number, size in enumerate(graph.type(value).shape or ()) if number != axis]


def _parts(graph: Graph, value: str, axis: int) -> list[_Part] | None:
    """What was joined along `axis` into the decoded `value`, each with one scale; None when
    anything else makes it.
    """
    found: list[_Part] = []
    for piece in _pieces(graph, value, axis):
        decode = graph.producer(piece, "Dequantize")
        inner = None if decode is None else _decoded(graph, decode, axis)
        if inner is None:
            return None
        found += inner
    return found


def _pieces(graph: Graph, value: str, axis: int) -> list[str]:
    """The values that were joined along `axis`, over any number of concatenations."""
    node = graph.producer(value, "Concat")
    if node is None or node.attr("axis", int) % graph.type(value).rank != axis:
        return [value]
    return [piece for joined in node.inputs for piece in _pieces(graph, joined, axis)]


def _decoded(graph: Graph, decode: Node, axis: int) -> list[_Part] | None:
    """The parts of decoded codes: a scale for each channel where each part has one."""
    quant, start = decode.quant, 0
    found: list[_Part] = []
    joined = [decode.input] if quant.per_tensor else _pieces(graph, decode.input, axis)
    for codes in joined:
        kind, own = graph.type(codes), quant
        size = kind.shape[axis] if kind.shape is not None else 0
        if not isinstance(size, int):
            return None
        if not quant.per_tensor:
            end = start + size
            entries = set(zip(quant.scale[start:end], quant.zero_point[start:end], strict=True))
            if quant.axis != axis or len(entries) != 1:
                return None
            ((scale, zero),) = entries
            own, start = Quantization((scale,), (zero,)), end
        if not kind.dtype.is_code or graph.constant(codes) is not None or not size:
            return None
        found.append(_Part(codes, own, size, decode))
    return found


def _weights(graph: Graph, node: Node) -> Node | None:
    """The Dequantize of constant 8-bit weights, one scale for each output channel at most, that an
    int8 product takes; else None.
    """
    decode = graph.producer(node.inputs[1], "Dequantize")
    if decode is None or graph.constant(decode.input) is None:
        return None
    quant, kind = decode.quant, graph.type(decode.input)
    zeros = set(quant.zero_point)
    plain = zeros == {kind.dtype.beyond_s8} or (
        node.op == "MatMul" and len(zeros) == 1 and quant.integral
    )
    flat = node.op != "MatMul" or kind.rank == 2
    along = quant.axis in (None, outputs_axis(node.op, kind.rank))
    small = kind.dtype.is_code or kind.dtype in (DType.U4, DType.S4)
    return decode if plain and flat and along and small else None


def _joined(graph: Graph, node: Node, parts: Sequence[_Part], axis: int) -> str:
    """The decoded codes of one scale."""
    codes = [part.codes for part in parts]
    if len(parts) > 1:
        codes = [graph.part(node, "Concat", codes, "joined", {"axis": axis})]
    return graph.add(
        "Dequantize",
        codes,
        {"quant": parts[0].quant},
        name=parts[0].decode.name,
        origin=origin_of(*(part.decode for part in parts)),
        quantizer=[name for part in parts for name in _quantizers(graph, part)],
    ).output


def _quantizers(graph: Graph, part: _Part) -> tuple[str, ...]:
    """The quantizers that made the codes: those of what decodes them, unless that decodes others as
    well.
    """
    maker = maker_of(graph, part.codes)
    made = () if maker is None else maker.quantizer
    return made if made and set(made) <= set(part.decode.quantizer) else part.decode.quantizer


def _share(graph: Graph, node: Node, weights: Node, chosen: Sequence[int]) -> str:
    """The decoded weights of the chosen channels."""
    codes = weights.input
    data = graph.constant(codes)
    assert data is not None
    taken = np.ascontiguousarray(np.take(data, chosen, inputs_axis(node.op, data.ndim)))
    constant = graph.add_constant(f"{codes}/part", taken, graph.type(codes).dtype)
    return graph.again(weights, [constant]).output


def _erase_upwards(graph: Graph, nodes: Sequence[Node | None]) -> None:
    """Erases the nodes that nothing reads any more, and then those that they alone read."""
    for node in nodes:
        if node is not None and node.op in ("Dequantize", "Concat"):
            makers = [graph.producer(value) for value in node.inputs]
            erase_unread(graph, [node])
            if node.name not in graph:
                _erase_upwards(graph, makers)
