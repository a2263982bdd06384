"""Paths through the graph that passes and the composer both follow."""

from __future__ import annotations

from .graph import Graph
from .node import Node
from .ops import dims
from .ops.spec import Trait

__all__ = ["RESHAPES", "chain_anchor", "keeps_shape", "reaches", "same_bytes"]

RESHAPES = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
"""Operations that give the same elements in the same order another shape."""

_ANCHORS = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm"})


def chain_anchor(graph: Graph, value: str) -> Node | None:
    """The convolution or matrix product that `value` comes from over elementwise steps that nothing else reads, or None."""
    while not graph.is_output(value) and len(graph.uses(value)) == 1:
        node = graph.producer(value)
        if node is None:
            return None
        if node.op in _ANCHORS:
            return node
        if node.op not in ("Quantize", "Dequantize") and not node.has(Trait.ELEMENTWISE):
            return None
        computed = [v for v in node.inputs if v and graph.constant(v) is None]
        if len(computed) != 1 and node.op != "Add":
            return None
        value = computed[0]
    return None


def keeps_shape(graph: Graph, node: Node, value: str) -> bool:
    """True when an elementwise operation surely gives `value`, an operand of it, in its own shape: no other operand makes it larger."""
    shape = graph.type(value).shape
    return all(dims.fits(graph.type(other).shape, shape) for other in node.inputs if other and other != value)


def reaches(graph: Graph, first: str, last: str) -> bool:
    """True when the node `last` depends on the node `first`, or is it.

    Goes backwards from `last`, and only between the two in topological order, which for residual blocks is a short way.
    """
    place = graph.places()
    seen, stack = {last}, [last]
    while stack:
        name = stack.pop()
        if name == first:
            return True
        for value in graph.node(name).inputs:
            before = graph.producer(value) if value else None
            if before is not None and before.name not in seen and place[before.name] >= place[first]:
                seen.add(before.name)
                stack.append(before.name)
    return False


def same_bytes(graph: Graph, value: str) -> tuple[str, ...]:
    """The value and all that are the same elements under another shape: at run time they may share one buffer."""
    while (producer := graph.producer(value)) is not None and producer.op in RESHAPES:
        value = producer.inputs[0]
    found = [value]
    for each in found:
        found += [reader.output for reader in graph.consumers(each) if reader.op in RESHAPES and reader.inputs[0] == each]
    return tuple(found)
