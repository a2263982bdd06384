"""Passes that feed each other, run as one until none of them changes anything."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import InternalError
from ..ir.graph import Graph
from ..ir.node import Node
from .base import Pass


@dataclass(frozen=True)
class Rewrite:
    """What a pass did around a node.

    Attributes:
        again: names of the nodes to look at next.
        anew: nodes that were made anew: the name of the old one -> that of the new one.
    """

    again: Sequence[str] = ()
    anew: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Visitor:
    """A pass at work on one graph.

    Attributes:
        visit: rewrites the graph around a node; None where it leaves everything as it is.
        follow: another pass has made nodes anew: for who remembers something of a node.
        done: nothing is left to do: for who has put something off.
    """

    visit: Callable[[Node], Rewrite | None]
    follow: Callable[[Mapping[str, str]], None] = lambda _: None
    done: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Local(Pass):
    """A pass whose rewrites each begin at one node, so that it can take turns with others.

    Attributes:
        rewrite: starts work on a graph.
    """

    rewrite: Callable[[Graph], Visitor]

    def run(self, graph: Graph) -> None:
        """One walk in topological order; what has become of a node is met again."""
        take_turns(graph, (self,))


_LOOSEST = ("bitwise", "ties", "ulp")


@dataclass(frozen=True)
class Group(Pass):
    """Passes that are run as one, because what one of them does lets another do more.

    They share one walk in topological order: each looks at a node in turn, and where one has
    rewritten something, the nodes that it names are looked at next. So the work grows with the
    graph and with the rewrites, and not with how often one pass waits for another; a place is
    looked at again, and explained again, only where something has changed.

    It ends because each pass rewrites a node once at most, and brings no node back to what another
    pass of the group starts from: each says why. A group that rewrites more often than that is
    stopped.

    Attributes:
        passes: who takes turns, in this order at each node.
    """

    passes: tuple[Local, ...]

    def run(self, graph: Graph) -> None:
        """Lets the passes take turns."""
        take_turns(graph, self.passes)


def group(*passes: Local) -> Group:
    """Makes a group, which has the names of its passes and the loosest of their contracts."""
    contract = max(
        (step.contract for step in passes),
        key=lambda contract: (_LOOSEST.index(contract.float), contract.ulps),
    )
    return Group(_together(passes), contract, take_turns, passes)


def take_turns(graph: Graph, passes: Sequence[Local]) -> None:
    """Walks over the graph until no pass finds anything.

    Raises:
        InternalError: two passes undo each other's work.
    """
    visitors = [step.rewrite(graph) for step in passes]
    pending = deque(node.name for node in graph.nodes())
    rewrites, most = 0, len(passes) * len(graph)
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
            raise InternalError(f"{_together(passes)} find no end: {most} nodes were rewritten")
    for visitor in visitors:
        visitor.done()


def _together(passes: Iterable[Pass]) -> str:
    return " + ".join(step.name for step in passes)


def _visit(graph: Graph, name: str, visitors: Iterable[Visitor]) -> Rewrite | None:
    """Shows a node to one pass after the other, until one rewrites something."""
    node = graph.node(name)
    return next((found for visitor in visitors if (found := visitor.visit(node)) is not None), None)


def passes_of(steps: Iterable[Pass]) -> list[Pass]:
    """The passes of a pipeline one by one, those of groups, too."""
    return [
        each for step in steps for each in (step.passes if isinstance(step, Group) else (step,))
    ]
