"""A concatenation that begins like an earlier one takes that one's result."""

from __future__ import annotations

from ..ir.graph import Graph
from ..ir.node import subject
from .base import Contract, Pass, decide, swap


def nest_concat(graph: Graph) -> None:
    """Lets a concatenation start from the longest earlier one that joins the same first values
    along the same axis.

    Before -> after::

        y = Concat(a, b), z = Concat(a, b, c)   ->   y = Concat(a, b), z = Concat(y, c)
        Concat(a)                               ->   a

    A dense block joins all that its layers made, once for each layer. Two sources are copied in
    long runs, many sources in short ones: oneDNN takes half to three quarters of the time.

    Legal because: joining along one axis is associative, and no number changes.
    Refuses when: never; an earlier concatenation along another axis, or with other values in front,
    is none.
    """
    # Walks the concatenations in execution order; a tree of prefixes finds the longest one in
    # one step for each input.
    prefixes: dict[
        tuple[int, str], int
    ] = {}  # (prefix, next value) -> longer prefix; negative: the empty prefix of an axis
    whole: dict[int, str] = {}  # prefix -> the node that joins just that
    for node in graph.each("Concat"):
        if len(node.inputs) == 1 and graph.type(node.input) == graph.type(node.output):
            decide(graph, NEST_CONCAT.name, node, "it has one input")
            swap(graph, node, node.input)
            continue
        rank = graph.type(node.output).shape
        axis = node.attr("axis", int)
        prefix = -1 - (axis if axis >= 0 or rank is None else axis + len(rank))
        found: tuple[int, str] | None = None
        for count, value in enumerate(node.inputs, 1):
            prefix = prefixes.setdefault((prefix, value), len(prefixes) + 1)
            if 1 < count < len(node.inputs) and prefix in whole:
                found = count, whole[prefix]
        whole.setdefault(prefix, node.name)
        if found is not None:
            count, earlier = found
            value = graph.node(earlier).output
            graph.set_inputs(node, [value, *node.inputs[count:]])
            verdict = (
                f"its first {count} inputs are joined by {subject(graph.node(earlier))} already"
            )
            decide(graph, NEST_CONCAT.name, node, verdict)


NEST_CONCAT = Pass("nest_concat", Contract("identity", "bitwise"), nest_concat)
