"""Which of two anchors that meet in an add absorbs it: the one that makes the other branch's result
cheap to write and to read.
"""

from __future__ import annotations

from ...ir.graph import Graph
from ...ir.node import Node, subject
from ...ir.ops import dims
from ...ir.ops.spec import Trait
from ...ir.paths import chain_anchor, keeps_shape
from ...ir.rule import Refusal
from ...ir.types import DType, TensorType
from .cost import WRITE_ALLOCATE, Home, cheapest, operand_cost

# nodes behind the add that are asked for its destination's type: as many as a primitive takes
# post-ops
_REACH = 32


def branch_refusal(graph: Graph, node: Node, value: str) -> Refusal | None:
    """Why the chain at `value` leaves the add to the other branch; None when it may take it."""
    found = absorbing(graph, node)
    best = cheapest(home for _, home in found)
    mine = next((home for read, home in found if read == value), None)
    if best is None or mine is None or mine is best:
        return None
    needed = f"less than the {best.cost:.4g} passes for which {best.name} absorbs it"
    return Refusal(
        "the other branch absorbs this add",
        needed,
        mine.why_not or f"{mine.cost:.4g} passes",
        "nothing to change: one of the two branches absorbs the addition",
    )


def absorbing(graph: Graph, node: Node) -> list[tuple[str, Home]]:
    """(value, home) for each operand of an add that an anchor's chain ends in, in the order of the
    operands; at most two.

    Where both have anchors, either may absorb: nothing else reads the two branches, so neither
    depends on the other. The other branch's result is written once and read once; a result of the
    destination's size is summed in place, any other is a binary operand.
    """
    anchors = {value: chain_anchor(graph, value) for value in dict.fromkeys(node.inputs)}
    if len(anchors) != 2 or all(anchor is None for anchor in anchors.values()):
        return []
    kind = graph.type(node.output)
    dst = TensorType(_stored(graph, node), kind.shape)
    first, second = anchors
    found = []
    for value, other in ((first, second), (second, first)):
        anchor = anchors[value]
        if anchor is not None:
            found.append((value, _home(graph, node, subject(anchor), value, other, dst)))
    return found


def _home(graph: Graph, node: Node, name: str, value: str, other: str, dst: TensorType) -> Home:
    if not keeps_shape(graph, node, value):
        return Home(name, 0.0, f"its result is broadcast: {graph.type(value)} to {dst.shape}")
    producer = graph.producer(other)
    stored = graph.type(
        producer.input if producer is not None and producer.op == "Dequantize" else other
    )
    moved = 2.0 * operand_cost(stored, dst)  # written by the other branch, read by this one
    fills = (
        dims.same_shape(stored.shape, dst.shape)
        and stored.dtype.numpy.itemsize == dst.dtype.numpy.itemsize
    )
    return Home(name, moved + (0.0 if fills else WRITE_ALLOCATE))


def _stored(graph: Graph, node: Node) -> DType:
    """The type in which a chain through the add is stored: that of the next Quantize over
    operations that nothing else reads.
    """
    value = node.output
    for _ in range(_REACH):
        readers = graph.consumers(value)
        if (
            len(readers) != 1
            or graph.is_output(value)
            or not (readers[0].op == "Quantize" or readers[0].has(Trait.ELEMENTWISE))
        ):
            break
        if readers[0].op == "Quantize":
            dtype = readers[0].attr("dtype", DType)
            return dtype if dtype.is_code else DType.F32
        value = readers[0].output
    return DType.F32
