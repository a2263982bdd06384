"""Signed codes that products, scales and averages read become u8, where they are made, and so do
those of averages of u8 codes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.spec import Trait
from ..ir.rule import Refusal
from ..ir.types import DType
from .base import Contract, Pass, decide
from .retyping import is_padded, moves_codes, retype, shifted

_LAYERS = ("LSTM", "GRU")
_PRODUCTS = ("Conv", "MatMul", *_LAYERS)


def retype_signed_codes(graph: Graph) -> None:
    """Writes s8 codes as u8 codes with 128 more for products, for scales along an axis, and for
    averages between codes of two types; also for LSTM and GRU, whose data in int8 are u8.

    Where the quantizers store no code below -64, 64 more are enough, and behind a ReLU none: codes
    of 7 bits stay such, with which no pair of products saturates.

    Before -> after::

        Conv(Dequantize(Quantize(x){s, z}: s8){s, z}, w)
        ->  Conv(Dequantize(Quantize(x){s, z+128}: u8){s, z+128}, w)
        MatMul(Dequantize(Quantize(x){s, z}: s8){s, z}, w)
        ->  MatMul(Dequantize(Quantize(x){s, z+128}: u8){s, z+128}, w)
        Dequantize(Concat(Quantize(x){s, z}: s8, ...)){p along an axis}
        ->  Dequantize(Concat(Quantize(x){s, z+128}: u8, ...)){p, zero points + 128}
        Quantize(AveragePool(Dequantize(q: u8))){s, z}: s8
        ->  Quantize(AveragePool(Dequantize(q: u8))){s, z+128}: u8                              and s8 codes that are averaged to u8

    because the hardware multiplies unsigned by signed bytes. A kernel turns an s8 source into u8
    each time it loads it, while a zero point
    is made up for once, with the weights: on oneDNN 3.2 products take 0.84 to 0.93 of the time. A
    scale for each channel (a normalization in front of a convolution, as in DenseNet) is a
    depthwise product, which takes u8 codes twice as fast. The codes that an average pool reads are
    rewritten with those that it makes, for a pool keeps its element type; also where one of the two
    is u8 already, so that the pool works on codes.

    Legal because: round(x/s + z) + 128 = round(x/s + z + 128), 128 being even; both ranges have 256
    codes.
    Refuses when: the codes, or others that meet them in a concatenation, come from outside, are
    returned, are the second operand of a
    product, or are read by an operation that wants them without a zero point: a depthwise
    convolution, or an average whose padding counts, for padding is code 0 there, which stands for 0
    in s8 codes only. The products stay on s8, which costs no more than the average in f32.
    """
    refusals: dict[str, Refusal] = {}
    order = {node.name: place for place, node in enumerate(graph.nodes())}
    for node in graph.each("Dequantize"):
        codes = node.input
        if not _signed(graph, codes) or not _gains(graph, node):
            continue
        region = _Region(graph)
        refusal = refusals.get(codes) or region.grow(codes)
        if refusal is None:
            makers = sorted(region.nodes.values(), key=lambda maker: order[maker.name])
            retype(graph, makers, _offset(makers), DType.U8)
            verdict = f"{codes} is u8 now, with all that it is made of"
            decide(graph, RETYPE_SIGNED_CODES.name, node, verdict)
        else:
            refusals.update(dict.fromkeys(region.values, refusal))
            decide(graph, RETYPE_SIGNED_CODES.name, node, refusal)


def _offset(makers: list[Node]) -> int:
    """The least even number that leaves no code below 0."""
    lowest = min(maker.attr("lo", int) for maker in makers if maker.op == "Quantize")
    return max(0, -(lowest // 2 * 2))


RETYPE_SIGNED_CODES = Pass("retype_signed_codes", Contract("identity", "ties"), retype_signed_codes)


class _ObstacleError(Exception):
    """Why codes cannot be retyped: what is expected, and what is found."""


@dataclass
class _Region:
    """All s8 codes that have to be retyped together, and the nodes that make them."""

    graph: Graph
    values: dict[str, None] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)

    def grow(self, codes: str) -> Refusal | None:
        """Collects all that hangs together with `codes`; returns what forbids to retype it, or
        None.
        """
        pending = [codes]
        try:
            while pending:
                value = pending.pop()
                if value not in self.values:
                    self.values[value] = None
                    pending += self._around(value)
        except _ObstacleError as obstacle:
            expected, found = obstacle.args
            hint = "quantize these activations to unsigned codes (QUInt8)"
            return Refusal("the codes keep their type", expected, found, hint)
        return None

    def _around(self, value: str) -> list[str]:
        """The codes that must be of the type of `value`."""
        graph = self.graph
        if graph.is_output(value):
            raise _ObstacleError("codes that the graph does not return", value)
        found = self._makers(value)
        for reader in graph.consumers(value):
            if reader.op == "Dequantize":
                found += self._behind(reader)
            elif moves_codes(reader):
                found.append(reader.output)
            else:
                expected = "codes that only Dequantize and data movement read"
                raise _ObstacleError(expected, f"{reader.op} reads {value}")
        return found

    def _makers(self, value: str) -> list[str]:
        """Records the node that makes `value`; the codes that it makes it of."""
        node = self.graph.producer(value)
        if node is None or not (node.op == "Quantize" or moves_codes(node)):
            found = f"{value} comes from {node.op if node else 'outside'}"
            raise _ObstacleError("codes that a Quantize of this graph makes", found)
        self.nodes[node.name] = node
        if node.op != "Quantize":
            return list(node.inputs) if node.has(Trait.JOINS) else [node.input]
        codes = _averaged_by(self.graph, node)
        return [codes] if codes is not None and _signed(self.graph, codes) else []

    def _behind(self, decode: Node) -> list[str]:
        """The s8 codes that average pools make of the decoded values."""
        graph = self.graph
        made: list[str] = []
        for reader in graph.consumers(decode.output):
            found = f"{reader.op} reads {decode.output}"
            if reader.has(Trait.AVERAGES):
                values = [store.output for store in _stores(graph, reader)]
                stored = [value for value in values if _signed(graph, value)]
                if stored and _counts_padding(reader) and decode.quant.symmetric:
                    expected = "averages whose padding does not count: it is code 0"
                    raise _ObstacleError(expected, found)
                made += stored
            elif not _takes_a_zero_point(graph, reader, decode.output):
                raise _ObstacleError("readers that a zero point costs nothing", found)
        return made


def _gains(graph: Graph, decode: Node) -> bool:
    """True for codes that are scaled along an axis, that an int8 product reads as its source, or
    that an average parts from u8 codes.

    Also for those with a zero point of -128 in front of an average whose padding counts: as u8
    codes they have none, and are averaged so.
    """
    quant, readers = decode.quant, graph.consumers(decode.output)
    if not quant.per_tensor or _averages_unsigned(graph, decode.input):
        return True
    if shifted(quant, 128).symmetric and any(map(_counts_padding, readers)):
        return True
    return any(
        _is_source(graph, reader, decode.output) or _stored_unsigned(graph, reader)
        for reader in readers
    )


def _counts_padding(node: Node) -> bool:
    """True for an average over padding, which is code 0 to a pool of codes: the real 0 for a zero
    point of 0 only.
    """
    return bool(node.attrs.get("count_include_pad")) and is_padded(node)


def _averages_unsigned(graph: Graph, codes: str) -> bool:
    """True for codes that a Quantize makes of an average of u8 codes."""
    encode = graph.producer(codes, "Quantize")
    averaged = None if encode is None else _averaged_by(graph, encode)
    return averaged is not None and graph.type(averaged).dtype is DType.U8


def _stored_unsigned(graph: Graph, reader: Node) -> bool:
    """True for an average that is stored as u8 codes."""
    return reader.has(Trait.AVERAGES) and any(
        store.attrs["dtype"] is DType.U8 for store in _stores(graph, reader)
    )


def _averaged_by(graph: Graph, quantize: Node) -> str | None:
    """The codes whose average a Quantize stores, as it is or behind operations of one input; None
    when it stores something else.
    """
    node = graph.producer(quantize.input)
    while node is not None and _unary(graph, node):
        node = graph.producer(node.input)
    averages = node is not None and node.has(Trait.AVERAGES)
    decode = graph.producer(node.input, "Dequantize") if node and averages else None
    return None if decode is None else decode.input


def _stores(graph: Graph, pool: Node) -> list[Node]:
    """The Quantize that store an average: those for which `_averaged_by` finds it."""
    found: list[Node] = []
    pending = [pool]
    while pending:
        for reader in graph.consumers(pending.pop().output):
            if reader.op == "Quantize":
                found.append(reader)
            elif _unary(graph, reader):
                pending.append(reader)
    return found


def _unary(graph: Graph, node: Node) -> bool:
    """True for an elementwise operation whose first input is computed, and no other."""
    return node.has(Trait.ELEMENTWISE) and graph.computed(node.inputs) == [node.input]


def _takes_a_zero_point(graph: Graph, reader: Node, value: str) -> bool:
    """True for a reader that runs as fast with a zero point: products, quantizers, elementwise
    operations that turn it into a shift.
    """
    if reader.op in _PRODUCTS:
        return _is_source(graph, reader, value)
    return reader.op == "Quantize" or (
        reader.has(Trait.ELEMENTWISE)
        and (len(graph.computed(reader.inputs)) == 1 or reader.op in ("Add", "Sub"))
    )


def _is_source(graph: Graph, reader: Node, value: str) -> bool:
    """True for the source of a product with quantized weights, not of a depthwise one, whose
    kernels with a zero point are slower; and for the input of a recurrent layer.
    """
    if reader.op not in _PRODUCTS or value in reader.inputs[1:]:
        return False
    if reader.op in _LAYERS:
        return True
    weights = graph.producer(reader.inputs[1], "Dequantize")
    if weights is None:
        return False
    shape = graph.type(weights.output).shape
    return (
        reader.op == "MatMul" or reader.attrs.get("group", 1) == 1 or shape is None or shape[1] != 1
    )


def _signed(graph: Graph, codes: str) -> bool:
    return graph.type(codes).dtype is DType.S8 and graph.constant(codes) is None
