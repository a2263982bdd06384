"""Paths through the graph that passes and the composer both follow."""

from __future__ import annotations

from .graph import Graph
from .node import Node
from .ops import OPS, dims
from .ops.spec import Trait

RESHAPES = frozenset(name for name, row in OPS.items() if Trait.RESHAPES in row.traits)
"""Operations that give the same elements in the same order another shape."""

_REACH = 256  # operations that are looked at: no primitive takes as many post-ops


def chain_anchor(graph: Graph, value: str) -> Node | None:
    """The convolution or matrix product that `value` comes from over 256 elementwise steps at most,
    which nothing else reads, or None.
    """
    known = graph.anchors()
    passed: list[str] = []
    found, far = "", 0
    while value not in known and len(passed) <= _REACH:
        passed.append(value)
        front = _in_front(graph, value)
        if not isinstance(front, str):
            found = "" if front is None else front.name
            break
        value = front
    else:
        if value not in known:
            return None
        found, far = known[value]
    far += len(passed)
    known.update({value: (found, far - place) for place, value in enumerate(passed)})
    return graph.node(found) if found and far <= _REACH else None


def _in_front(graph: Graph, value: str) -> Node | str | None:
    """The anchor that makes a value which nothing else reads; or the value that the elementwise
    step which makes it starts from.
    """
    node = graph.producer(value)
    if node is None or graph.is_output(value) or graph.read_count(value) != 1:
        return None
    if node.has(Trait.PRODUCT):
        return node
    if not node.has(Trait.ELEMENTWISE):
        return None
    computed = [v for v in node.inputs if v and graph.constant(v) is None]
    return None if not computed or (len(computed) != 1 and node.op != "Add") else computed[0]


def keeps_shape(graph: Graph, node: Node, value: str) -> bool:
    """True when an elementwise operation surely gives `value`, an operand of it, in its own shape:
    no other operand makes it larger.
    """
    shape = graph.type(value).shape
    return all(
        dims.fits(graph.type(other).shape, shape)
        for other in node.inputs
        if other and other != value
    )


def reaches(graph: Graph, first: str, last: str) -> bool:
    """True when the node `last` depends on the node `first`, or is it.

    Goes backwards from `last`, and only between the two in topological order, which for residual
    blocks is a short way.
    """
    place = graph.places()
    seen, stack = {last}, [last]
    while stack:
        name = stack.pop()
        if name == first:
            return True
        for value in graph.node(name).inputs:
            before = graph.producer(value) if value else None
            if (
                before is not None
                and before.name not in seen
                and place[before.name] >= place[first]
            ):
                seen.add(before.name)
                stack.append(before.name)
    return False


def same_bytes(graph: Graph, value: str) -> tuple[str, ...]:
    """The value and all that are the same elements under another shape: at run time they may share
    one buffer; the first one in front.
    """
    found = [first_view(graph, value)]
    for each in found:
        found += [
            reader.output
            for reader in graph.consumers(each)
            if reader.has(Trait.RESHAPES) and reader.input == each
        ]
    return tuple(found)


def first_view(graph: Graph, value: str) -> str:
    """The value that was computed, of which the value is a view under another shape."""
    while (producer := graph.producer(value)) is not None and producer.has(Trait.RESHAPES):
        value = producer.input
    return value
