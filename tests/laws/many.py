"""Many random graphs, around each block as many; and holding the plan of one against its
intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from zlib import crc32

import numpy as np
from hypothesis import HealthCheck, given, seed, settings
from laws.branches import BLOCKS
from laws.contracts import GRANTED
from laws.intervals import Box, run_boxes
from laws.strategies import graphs

from fqfuse.ir.graph import Graph
from fqfuse.ir.text_print import print_graph
from fqfuse.plan.text import print_plan
from fqfuse.plan.types import Plan
from fqfuse.runtime.session import InferenceSession


def drawn(block: str, count: int, hold: Callable[[Graph], None]) -> None:
    """Calls `hold` with `count` graphs around a block.

    `make test-all` draws the same ones every time, `make fuzz` new ones, and more by as much as its
    profile has more examples than the default.
    """
    share = settings(
        max_examples=max(1, count * settings.default.max_examples // 100),
        suppress_health_check=[HealthCheck.too_slow],
    )
    run = share(given(graphs((BLOCKS[block],)))(hold))
    (seed(crc32(block.encode()))(run) if settings.default.derandomize else run)()


def boxes_of(graph: Graph, feeds: Mapping[str, np.ndarray]) -> dict[str, Box]:
    """The intervals that rewrites and plans of a random graph are held to: any code may be an
    intermediate.
    """
    return run_boxes(graph, feeds, GRANTED, largest_code=256.0)


def inside(
    graph: Graph,
    plan: Plan,
    backend: str,
    feeds: Mapping[str, np.ndarray],
    boxes: Mapping[str, Box],
) -> None:
    """The plan's results on a runtime lie in the intervals of the graph that it was made of."""
    results = InferenceSession(plan, backend, 1).run(None, dict(feeds))
    within(graph, plan, backend, dict(zip(plan.outputs, results, strict=True)), boxes)


def within(
    graph: Graph,
    plan: Plan,
    backend: str,
    results: Mapping[str, np.ndarray],
    boxes: Mapping[str, Box],
) -> None:
    """Results of the plan lie in the intervals of the graph."""
    for name, found in results.items():
        # polynomials of the primitives
        largest = np.abs(found[np.isfinite(found)]).max(initial=0)
        slack = 0 if found.dtype.kind in "iu" else 1e-6 + 1e-6 * largest
        far = boxes[name].outside(found)
        shown = f"{backend}: {name} is {far} outside\n" + print_graph(
            graph, data="digest", explain=False
        )
        assert far <= slack, shown + "\n->\n" + print_plan(plan, data="digest", explain=False)
