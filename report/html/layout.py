"""Where the nodes of a plan's graph stand: in ranks from top to bottom, each edge from one rank to
the next, with as few crossings as the library finds.

The library (fast-sugiyama) takes an edge over many ranks as a chain of places that stay free for it,
which costs time and room. Such an edge is left out here and drawn over the others, as a person
would draw the mask that every layer reads. So 5,000 steps of a network take 0.2 s, and 5,000 nodes
with 20,000 random edges 3 s.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

_FAR = 12  # ranks
_PLACES = 6  # that edges may keep free, for each node
_APART = 1.0  # between neighbours of a rank, in widths of a node
_BEND = 0.15  # the width of a place that is kept free

Point = tuple[float, int]
"""x in widths of a node, and the rank counted from the top."""

Edge = tuple[int, int]


@dataclass(frozen=True)
class Route:
    """An edge.

    Attributes:
        source, target: nodes.
        bends: where it passes through the ranks between; empty for a far one.
        far: it has no places of its own, and is drawn over the others.
    """

    source: int
    target: int
    bends: tuple[Point, ...] = ()
    far: bool = False


@dataclass(frozen=True)
class Layout:
    """The places of all nodes, and the ways of all edges, each once."""

    places: tuple[Point, ...]
    routes: tuple[Route, ...]


def laid_out(count: int, edges: Iterable[Edge]) -> Layout:
    """The layout of an acyclic graph.

    Args:
        count: of nodes, which are called 0, 1, ... in an order in which every edge leads to a later
            one.
        edges: from node to node.
    """
    once = [(source, target) for source, target in dict.fromkeys(edges) if source < target]
    ranks = _ranks(count, once)
    near = _near(ranks, once)
    parts = [_solved(edges) for edges in _joined(count, near)]
    alone = sorted(set(range(count)) - {node for part in parts for node in part.places})
    parts += [_Part({node: (0.0, 0)}, {}) for node in alone]
    parts.sort(key=lambda part: min(part.places))
    places: dict[int, Point] = {}
    bends: dict[Edge, tuple[Point, ...]] = {}
    right = 0.0
    for part in parts:
        left = min(x for x, _ in part.points())
        # what is joined by far edges only stands beside the place where it would have been
        first = min(part.places)
        down = max(ranks[first] - part.places[first][1], 0)

        def moved(point: Point, by: float = right - left, down: int = down) -> Point:
            return round(point[0] + by, 3), point[1] + down

        places |= {node: moved(point) for node, point in part.places.items()}
        bends |= {edge: tuple(map(moved, points)) for edge, points in part.bends.items()}
        right += max(x for x, _ in part.points()) - left + _APART
    routes = (Route(*edge, bends.get(edge, ()), edge not in near) for edge in once)
    return Layout(tuple(places[node] for node in range(count)), tuple(routes))


def _ranks(count: int, edges: Iterable[Edge]) -> list[int]:
    """How many edges lead to each node at most, one behind the other."""
    ranks = [0] * count
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        ranks[target] = max(ranks[target], ranks[source] + 1)
    return ranks


def _near(ranks: Sequence[int], edges: Sequence[Edge]) -> set[Edge]:
    """The edges that the library gets: of each node the shortest, then all short ones, until the
    places are used up.
    """
    spans = {edge: ranks[edge[1]] - ranks[edge[0]] for edge in edges}
    shortest: dict[int, Edge] = {}
    for edge in edges:
        for node in edge:
            known = shortest.setdefault(node, edge)
            if spans[edge] < spans[known]:
                shortest[node] = edge
    needed = set(shortest.values())
    short = {edge for edge in edges if spans[edge] <= _FAR} | needed
    left = _PLACES * len(ranks)
    kept: set[Edge] = set()
    for edge in sorted(short, key=lambda edge: (edge not in needed, spans[edge], edge)):
        left -= spans[edge] - 1
        if left < 0:
            break
        kept.add(edge)
    return kept


@dataclass(frozen=True)
class _Part:
    """What hangs together: nodes' places, and the bends of edges."""

    places: dict[int, Point]
    bends: dict[Edge, tuple[Point, ...]]

    def points(self) -> Iterable[Point]:
        yield from self.places.values()
        for points in self.bends.values():
            yield from points


def _joined(count: int, edges: Iterable[Edge]) -> list[list[Edge]]:
    """The edges of each part that hangs together."""
    part = list(range(count))

    def first(node: int) -> int:
        while part[node] != node:
            part[node] = part[part[node]]
            node = part[node]
        return node

    ordered = sorted(edges)
    for source, target in ordered:
        part[first(target)] = first(source)
    found: dict[int, list[Edge]] = defaultdict(list)
    for edge in ordered:
        found[first(edge[0])].append(edge)
    return list(found.values())


def _solved(edges: Sequence[Edge]) -> _Part:
    """The library's layout of a part. (Of several at once it mixes up nodes and places that are kept
    free: those of the second part get numbers of nodes.)
    """
    from fast_sugiyama import from_edges

    # places that are kept free have the numbers behind those of the nodes, which have to be 0, 1, ...
    names = sorted({node for edge in edges for node in edge})
    numbers = {node: number for number, node in enumerate(names)}
    ((points, _, _, ways),) = from_edges(
        [(numbers[source], numbers[target]) for source, target in edges],
        vertex_spacing=_APART,
        dummy_vertices=True,
        dummy_size=_BEND,
        minimum_length=1,
        # with these each node stands right below what it reads, as in `_ranks`: others may stretch edges
        # beyond the places that were counted; transposing takes minutes for hostile graphs
        ranking_type="up",
        transpose=False,
    )
    top = max(y for _, (_, y) in points)
    at = {int(number): (x, round((top - y) / _APART)) for number, (x, y) in points}
    onwards: dict[int, list[int]] = defaultdict(list)
    for source, target in ways or ():
        onwards[int(source)].append(int(target))
    bends: dict[Edge, tuple[Point, ...]] = {}
    for source in range(len(names)):
        for following in onwards[source]:
            way = [source, following]
            while way[-1] >= len(names):
                way.append(onwards[way[-1]][0])
            assert all(at[above][1] < at[below][1] for above, below in pairwise(way))
            bends[names[source], names[way[-1]]] = tuple(at[number] for number in way[1:-1])
    places = {names[number]: point for number, point in at.items() if number < len(names)}
    return _Part(places, bends)
