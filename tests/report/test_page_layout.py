"""The law of the layout: every edge leads down, no two nodes overlap, the work stays bounded."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fqfuse.report.html.layout import laid_out

_EPSILON = 2e-3  # places are rounded to thousandths of a width


@st.composite
def graphs(draw) -> tuple[int, list[tuple[int, int]]]:
    """A number of nodes, and edges from earlier to later ones, some of them twice."""
    count = draw(st.integers(1, 40))
    pair = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    edges = draw(st.lists(pair, max_size=100))
    return count, [(min(edge), max(edge)) for edge in edges if edge[0] != edge[1]]


@given(graphs())
def test_edges_lead_down_and_nodes_stand_apart(graph) -> None:
    count, edges = graph
    layout = laid_out(count, edges)
    assert len(layout.places) == count
    assert {(route.source, route.target) for route in layout.routes} == set(edges)
    ranks = defaultdict(list)
    for x, rank in layout.places:
        assert rank >= 0
        ranks[rank].append(x)
    for row in ranks.values():
        row.sort()
        assert all(after - before >= 1 - _EPSILON for before, after in pairwise(row))
    for route in layout.routes:
        way = [
            layout.places[route.source][1],
            *(rank for _, rank in route.bends),
            layout.places[route.target][1],
        ]
        if route.far:
            assert way[0] < way[-1] or not route.bends
        else:
            assert way == list(range(way[0], way[-1] + 1)), "a near edge passes every rank between"


@given(graphs())
def test_places_do_not_depend_on_the_order_of_the_edges(graph) -> None:
    count, edges = graph
    assert laid_out(count, edges).places == laid_out(count, sorted(edges, reverse=True)).places


def test_what_every_layer_reads_is_drawn_over_the_others() -> None:
    chain = [(index, index + 1) for index in range(1, 400)]
    mask = [(0, index) for index in range(10, 400, 5)]
    layout = laid_out(401, [*chain, *mask])
    far = [route for route in layout.routes if route.far]
    assert len(far) > len(mask) - 5
    assert all(route.source == 0 for route in far)
    assert max(x for x, _ in layout.places) < 3


def test_hostile_graphs_keep_a_bounded_number_of_places() -> None:
    count = 300
    every = [(source, target) for source in range(count) for target in range(source + 1, count)]
    layout = laid_out(count, every)
    assert sum(len(route.bends) for route in layout.routes) <= 6 * count
