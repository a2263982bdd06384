"""Passes that feed each other, run as one until none of them changes anything."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import InternalError
from ..ir.graph import Graph
from ..ir.node import Node
from .base import Contract, Pass


@dataclass(frozen=True)
class Rewrite:
    """What a pass did around a node.

    Attributes:
        again: names of the nodes to look at next.
        anew: nodes that were made anew: the name of the old one -> that of the new one.
    """

    again: Sequence[str] = ()
    anew: Mapping[str, str] = field(default_factory=dict)


class Visitor:
    """A pass at work on one graph."""

    def visit(self, node: Node) -> Rewrite | None:
        """Rewrites the graph around a node; None where it leaves everything as it is."""
        raise NotImplementedError

    def follow(self, anew: Mapping[str, str]) -> None:
        """Another pass has made nodes anew: for who remembers something of a node."""

    def done(self) -> None:
        """Nothing is left to do: for who has put something off."""


class Local(Pass):
    """A pass whose rewrites each begin at one node, so that it can take turns with others."""

    def visitor(self, graph: Graph) -> Visitor:
        """Starts work on a graph."""
        raise NotImplementedError

    def run(self, graph: Graph) -> None:
        """One walk in topological order; what has become of a node is met again."""
        Group((self,)).run(graph)


_LOOSEST = ("bitwise", "ties", "ulp")


@dataclass(frozen=True)
class Group(Pass):
    """Passes that are run as one, because what one of them does lets another do more.

    They share one walk in topological order: each looks at a node in turn, and where one has
    rewritten something, the nodes that it names are looked at next. So the work grows with the
    graph and with the rewrites, and not with how often one pass waits for another; a place is
    looked at again, and explained again, only where something has changed.

    It ends because each pass rewrites a node once at most, and brings no node back to what another
    pass of the group starts from: each docstring says why. A group that rewrites more often than
    that is stopped.

    Attributes:
        passes: who takes turns, in this order at each node.
    """

    passes: tuple[Local, ...]

    @property
    def name(self) -> str:
        """The names of the passes."""
        return " + ".join(step.name for step in self.passes)

    @property
    def contract(self) -> Contract:
        """The loosest of the contracts."""
        return max(
            (step.contract for step in self.passes),
            key=lambda contract: (_LOOSEST.index(contract.float), contract.ulps),
        )

    def run(self, graph: Graph) -> None:
        """Walks over the graph until no pass finds anything.

        Raises:
            InternalError: two passes undo each other's work.
        """
        visitors = [step.visitor(graph) for step in self.passes]
        pending = deque(node.name for node in graph.nodes())
        rewrites, most = 0, len(self.passes) * len(graph)
        while pending:
            name = pending.popleft()
            found = _visit(graph, name, visitors) if name in graph else None
            if found is None:
                continue
            pending.extendleft(reversed(found.again))
            for visitor in visitors if found.anew else ():
                visitor.follow(found.anew)
            rewrites += 1
            if rewrites > most:
                raise InternalError(f"{self.name} find no end: {most} nodes were rewritten")
        for visitor in visitors:
            visitor.done()


def _visit(graph: Graph, name: str, visitors: Iterable[Visitor]) -> Rewrite | None:
    """Shows a node to one pass after the other, until one rewrites something."""
    node = graph.node(name)
    return next((found for visitor in visitors if (found := visitor.visit(node)) is not None), None)


def passes_of(steps: Iterable[Pass]) -> list[Pass]:
    """The passes of a pipeline one by one, those of groups, too."""
    return [
        each for step in steps for each in (step.passes if isinstance(step, Group) else (step,))
    ]
