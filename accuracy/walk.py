"""Runs a graph node by node, without fusing anything, and lets go of what nobody reads any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from ..ir.graph import Graph, Node
from ..ir.interpret import check_feeds, run_node
from ..ir.ops.spec import Array
from ..runtime.fallback import ForeignOp, foreign_op

__all__ = ["Foreigners", "Walk"]


class Foreigners:
    """Runs the nodes that the op table has no row for, each made ready once."""

    def __init__(self) -> None:
        self._ready: dict[str, ForeignOp] = {}

    def __call__(self, node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
        """The node's outputs."""
        if node.name not in self._ready:
            self._ready[node.name] = foreign_op(node.attrs, ", ".join(node.origin) or node.name)
        return self._ready[node.name](arrays)


class Walk:
    """One run of a graph, driven from outside: values are computed when they are asked for.

    Nodes run in the graph's order, no further than needed; a value goes after its last reader, one of `kept` when it is released.

    Args:
        graph: the graph, as imported.
        feeds: an array for each input.
        kept: values that stay until `release`.
        foreign: runs foreign nodes.

    Raises:
        InvalidInput: a feed is missing, unknown or of another type or shape.
    """

    def __init__(
        self, graph: Graph, feeds: Mapping[str, Array], kept: Collection[str], foreign: Foreigners
    ) -> None:
        self._graph, self._foreign, self._kept = graph, foreign, set(kept)
        self._live: dict[str, Array] = dict(check_feeds(graph, feeds))
        self._nodes = iter(graph.nodes())
        self._left = Counter(value for node in graph.nodes() for value in node.inputs if value)

    def value(self, name: str) -> Array:
        """A value that is kept, or an input or constant of the graph."""
        constant = self._graph.constant(name)
        if constant is not None:
            return constant
        while name not in self._live:
            self._step(next(self._nodes))
        return self._live[name]

    def release(self, name: str) -> None:
        """Nobody asks for a kept value any more."""
        self._kept.discard(name)
        self._forget(name)

    def _step(self, node: Node) -> None:
        arrays = [self.value(value) if value else None for value in node.inputs]
        for value, array in zip(node.outputs, run_node(node, arrays, self._foreign), strict=False):
            if value:
                self._live[value] = array
        for value in node.inputs:
            self._left[value] -= 1
        for value in (*node.inputs, *node.outputs):
            self._forget(value)

    def _forget(self, value: str) -> None:
        if self._left[value] <= 0 and value not in self._kept:
            self._live.pop(value, None)
