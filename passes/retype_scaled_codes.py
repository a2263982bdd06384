"""Codes that are only scaled channel by channel become u8, where they are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.spec import Trait
from ..ir.types import DType, Quantization
from .base import Contract, fired, refused
from .retyping import moves_codes, retype

__all__ = ["RetypeScaledCodes"]

_AVERAGES = frozenset({"AveragePool", "GlobalAveragePool"})


@dataclass(frozen=True)
class RetypeScaledCodes:
    """Writes s8 codes that are scaled along an axis as u8 codes with 128 more.

    Before -> after::

        Dequantize(Concat(Quantize(x){s, z}: s8, ...)){p along an axis}
        ->  Dequantize(Concat(Quantize(x){s, z+128}: u8, ...)){p, zero points + 128}

    because a scale for each channel is a depthwise product, whose kernels take u8 codes twice as fast as s8 ones: the hardware multiplies
    unsigned by signed bytes. A normalization in front of a convolution (DenseNet) is such a scale. The codes that an average pool
    reads are rewritten with those that it makes, for a pool keeps its element type.

    Legal because: round(x/s + z) + 128 = round(x/s + z + 128), 128 being even; both ranges have 256 codes.
    Refuses when: the codes, or others that meet them in a concatenation, come from outside, are returned, or are read by an operation
    that wants them without a zero point, such as a convolution, or an add of two tensors.
    """

    name: ClassVar[str] = "retype_scaled_codes"
    contract: ClassVar[Contract] = Contract("identity", "ties")

    def run(self, graph: Graph) -> None:
        """Looks at every Dequantize along an axis."""
        refusals: dict[str, _Obstacle] = {}
        for node in graph.each("Dequantize"):
            codes = node.inputs[0]
            if node.attr("quant", Quantization).per_tensor or not _signed(graph, codes):
                continue
            region = _Region(graph)
            obstacle = refusals.get(codes) or region.grow(codes)
            if obstacle is None:
                retype(graph, region.in_order(), 128, DType.U8)
                fired(graph, self.name, node, f"{codes} is u8 now, with all that it is made of")
                continue
            refusals.update(dict.fromkeys(region.values, obstacle))
            refused(graph, self.name, node, "the codes keep their type", expected=obstacle.expected, found=obstacle.found)


@dataclass(frozen=True)
class _Obstacle:
    """Why codes cannot be retyped."""

    expected: str
    found: str


@dataclass
class _Region:
    """All s8 codes that have to be retyped together, and the nodes that make them."""

    graph: Graph
    values: dict[str, None] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)

    def grow(self, codes: str) -> _Obstacle | None:
        """Collects all that hangs together with `codes`; returns what forbids to retype it, or None."""
        pending = [codes]
        while pending:
            value = pending.pop()
            if value in self.values:
                continue
            self.values[value] = None
            found = self._around(value)
            if isinstance(found, _Obstacle):
                return found
            pending.extend(found)
        return None

    def in_order(self) -> list[Node]:
        """The nodes, makers before readers."""
        return [node for node in self.graph.nodes() if node.name in self.nodes]

    def _around(self, value: str) -> list[str] | _Obstacle:
        """The codes that must be of the type of `value`."""
        graph = self.graph
        if graph.is_output(value):
            return _Obstacle("codes that the graph does not return", value)
        made = self._maker(value)
        if isinstance(made, _Obstacle):
            return made
        found = made
        for reader in graph.consumers(value):
            if reader.op == "Dequantize":
                behind = self._behind(reader)
            elif (moves_codes(reader) and value not in reader.inputs[1:]) or reader.op == "Concat":
                behind = [reader.output]
            else:
                behind = _Obstacle("codes that only Dequantize and data movement read", f"{reader.op} reads {value}")
            if isinstance(behind, _Obstacle):
                return behind
            found += behind
        return found

    def _maker(self, value: str) -> list[str] | _Obstacle:
        """Records the node that makes `value`; the codes that it makes it of."""
        node = self.graph.producer(value)
        if node is not None and node.op == "Quantize":
            self.nodes[node.name] = node
            return self._averaged(node)
        if node is not None and moves_codes(node):
            self.nodes[node.name] = node
            return list(node.inputs) if node.op == "Concat" else [node.inputs[0]]
        return _Obstacle("codes that a Quantize of this graph makes", f"{value} comes from {node.op if node else 'outside'}")

    def _averaged(self, quantize: Node) -> list[str]:
        """The s8 codes whose average a Quantize stores."""
        pool = self.graph.producer(quantize.inputs[0])
        if pool is None or pool.op not in _AVERAGES:
            return []
        decode = self.graph.producer(pool.inputs[0])
        codes = decode.inputs[0] if decode is not None and decode.op == "Dequantize" else ""
        return [codes] if codes and _signed(self.graph, codes) else []

    def _behind(self, decode: Node) -> list[str] | _Obstacle:
        """The s8 codes that average pools make of the decoded values."""
        made: list[str] = []
        for reader in self.graph.consumers(decode.output):
            if reader.op in _AVERAGES:
                stores = [store for store in self.graph.consumers(reader.output) if store.op == "Quantize"]
                made += [store.output for store in stores if _signed(self.graph, store.output)]
            elif reader.op != "Quantize" and not _of_one_tensor(self.graph, reader):
                return _Obstacle(
                    "values that only average pools and elementwise operations of one tensor read", f"{reader.op} reads {decode.output}"
                )
        return made


def _of_one_tensor(graph: Graph, node: Node) -> bool:
    """True for an elementwise operation whose other operands are constants."""
    return node.has(Trait.ELEMENTWISE) and sum(graph.constant(value) is None for value in node.inputs if value) == 1


def _signed(graph: Graph, codes: str) -> bool:
    return graph.type(codes).dtype is DType.S8 and graph.constant(codes) is None
