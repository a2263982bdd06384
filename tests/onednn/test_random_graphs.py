"""Plans of random graphs with branches on the real library: the results lie inside the intervals of
the imported graph.
"""

from __future__ import annotations

import pytest
from laws.branches import BLOCKS
from laws.many import boxes_of, drawn, inside
from laws.registry import feeds_for

from fqfuse.composer.compose import plan_from_graph
from fqfuse.ir.graph import Graph
from fqfuse.passes import optimize

EACH = 20


@pytest.mark.hypothesis
@pytest.mark.parametrize("block", BLOCKS)
def test_plans_of_random_graphs(block: str) -> None:
    def hold(graph: Graph) -> None:
        feeds = feeds_for(graph)
        inside(
            graph, plan_from_graph(optimize(graph.copy())), "onednn", feeds, boxes_of(graph, feeds)
        )

    drawn(block, EACH, hold)
