"""Weights whose codes lie in blocks: where a product reads them."""

from __future__ import annotations

from .graph import Graph
from .node import Node
from .ops.spec import Trait
from .types import is_static

_TURNED = (1, 0)


def block_weights(graph: Graph, value: str) -> list[Node] | None:
    """The nodes that make a matrix the transpose of constant codes in blocks, decoded: the
    DequantizeBlocks, and what turns and reshapes its result; None where it is none.
    """
    found = _decoding(graph, value)
    return found[0] if found is not None and found[1] else None


def _decoding(graph: Graph, value: str) -> tuple[list[Node], bool] | None:
    """The nodes between constant codes in blocks and a matrix, and whether they transpose it."""
    shape = graph.type(value).shape
    if not is_static(shape) or len(shape or ()) != 2:
        return None
    found: list[Node] = []
    turned = False
    while (node := graph.producer(value)) is not None:
        found.insert(0, node)
        if node.op == "DequantizeBlocks":
            fits = graph.type(node.output).shape == shape
            return (found, turned) if fits and not graph.computed(node.inputs) else None
        if _is_turn(node):
            if graph.type(node.output).shape != shape:
                return None
            shape, turned = graph.type(node.input).shape, not turned
        elif not node.has(Trait.RESHAPES):
            return None
        value = node.input
    return None


def _is_turn(node: Node) -> bool:
    """True of what transposes a matrix."""
    return node.op == "Transpose" and tuple(node.attr("perm", tuple)) in (_TURNED, ())


def keeps_blocks(graph: Graph, node: Node) -> bool:
    """True where codes in blocks shall stay codes: the blocks lie along what a matrix product sums,
    or slices of what they decode to are picked at run time.
    """
    pending = [node.output]
    while pending:
        value = pending.pop()
        for use in graph.uses(value):
            reader = use.node
            if reader.op in ("MatMul", "Gemm") and use.index == 1:
                found = _decoding(graph, value)
                if found is not None and found[1] != bool(reader.attrs.get("transB")):
                    return True
            if reader.op == "Gather" and use.index == 0 and graph.computed(reader.inputs[1:]):
                return True
            if reader.has(Trait.RESHAPES) or _is_turn(reader):
                pending.append(reader.output)
    return False


def decodes_blocks(graph: Graph, node: Node) -> bool:
    """True of what decodes constant codes in blocks, and of what turns and reshapes the result."""
    found: Node | None = node
    while found is not None and found.op != "DequantizeBlocks":
        if not (found.has(Trait.RESHAPES) or _is_turn(found)):
            return False
        found = graph.producer(found.input)
    return found is not None and not graph.computed(found.inputs)
