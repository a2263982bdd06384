"""Runs a graph node by node, without fusing anything, and lets go of what nobody reads any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from ..compiler import compile as compile_model
from ..errors import UnsupportedOp
from ..frontend import bodies_of
from ..ir.graph import Graph
from ..ir.interpret import check_feeds, run_node
from ..ir.node import Node
from ..ir.ops.spec import Array
from ..plan.types import Bodies, Step
from ..runtime.bodies import BodyRunner
from ..runtime.fallback import Foreigners
from ..runtime.numpy_runtime import NumpyExecutor
from ..runtime.processors import run_budget


class Unfused(Foreigners):
    """Runs the foreign nodes of a graph as ONNX defines them; the bodies of an If, Loop or Scan that hold operators
    which ONNX does not define as plans, on NumPy.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self._graph = graph
        self._plans: dict[str, tuple[BodyRunner, list[int]]] = {}

    def __call__(self, node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
        """The node's outputs."""
        if node.name not in self._plans:
            try:
                return super().__call__(node, arrays)
            except UnsupportedOp:
                bodies = bodies_of(self._graph, node)
                if bodies is None:
                    raise
            plans = Bodies(tuple(map(compile_model, bodies.models)), bodies.states, bodies.scanned)
            operator = f"onnx.{node.attr('op_type', str)}"
            step = Step(
                node.name, operator, node.op, (), node.outputs, node.attrs, origin=node.origin
            )
            runner = BodyRunner(step, plans, NumpyExecutor, run_budget())
            self._plans[node.name] = runner, [*range(bodies.own), *bodies.fed]
        run, read = self._plans[node.name]
        return run([arrays[place] for place in read])


class Live:
    """The values of a run of a graph: constants, and what was computed and has readers left.

    Args:
        graph: the graph, as imported.
        arrays: what is known in front.
        foreign: runs foreign nodes.
        others: values that somebody reads besides the nodes, once for each time.
    """

    def __init__(
        self,
        graph: Graph,
        arrays: Mapping[str, Array],
        foreign: Foreigners,
        others: Iterable[str] = (),
    ) -> None:
        self._graph, self._foreign, self._arrays = graph, foreign, dict(arrays)
        self._left = Counter(value for node in graph.nodes() for value in node.inputs)
        self._left.update(others)

    def __getitem__(self, name: str) -> Array:
        constant = self._graph.constant(name)
        return self._arrays[name] if constant is None else constant

    def __setitem__(self, name: str, array: Array) -> None:
        self._arrays[name] = array

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def given(self, node: Node) -> list[Array | None]:
        """What a node reads."""
        return [self[value] if value else None for value in node.inputs]

    def computed(self, node: Node, arrays: Sequence[Array | None]) -> dict[str, Array]:
        """What a node makes of arrays, by the names of its outputs."""
        found = zip(node.outputs, run_node(node, arrays, self._foreign), strict=False)
        return {value: array for value, array in found if value}

    def run(self, node: Node) -> None:
        """Computes what a node writes."""
        self._arrays |= self.computed(node, self.given(node))

    def done(self, node: Node, others: Iterable[str] = ()) -> None:
        """A node has run: what nobody reads any more goes. `others` were read with its inputs."""
        used = (*node.inputs, *others)
        self._left.subtract(used)
        for value in (*used, *node.outputs):
            self.forget(value)

    def forget(self, value: str) -> None:
        """A value goes if no reader is left."""
        if self._left[value] <= 0:
            self._arrays.pop(value, None)


class Walk(Live):
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
        super().__init__(graph, check_feeds(graph, feeds), foreign)
        self._kept = set(kept)
        self._nodes = iter(graph.nodes())

    def __getitem__(self, name: str) -> Array:
        """A value that is kept, or an input or constant of the graph."""
        while name not in self and self._graph.constant(name) is None:
            node = next(self._nodes)
            self.run(node)
            self.done(node)
        return super().__getitem__(name)

    def release(self, name: str) -> None:
        """Nobody asks for a kept value any more."""
        self._kept.discard(name)
        self.forget(name)

    def forget(self, value: str) -> None:
        """A value goes if no reader is left and it is not kept."""
        if value not in self._kept:
            super().forget(value)
