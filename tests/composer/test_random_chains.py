"""Any single chain that 32 post-ops hold is one primitive; chains and graphs with branches compute
what the imported graph says.

The bound is the interval that the graph gives when every f32 rounding is widened outward: no
further least significant bit is granted. tests/onednn holds chains for `onednn-v3` against both
runtimes.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from laws.budget import ENOUGH, examples
from laws.chain_laws import chain_plan, interval_of, shown, within
from laws.chains import DrawnChain, chains
from laws.contracts import GRANTED
from laws.intervals import run_boxes
from laws.registry import feeds_for
from laws.strategies import graphs

from fqfuse.composer.compose import plan_from_graph
from fqfuse.ir.graph import Graph
from fqfuse.passes import optimize
from fqfuse.plan.types import Plan
from fqfuse.plan.verify import verify_plan
from fqfuse.runtime.session import InferenceSession


@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2", "unified"])
@given(chain=chains())
@examples(100)
def test_a_chain_is_one_primitive_inside_its_interval(target: str, chain: DrawnChain) -> None:
    plan, feeds = chain_plan(chain, target), chain.feeds()
    box = interval_of(chain, feeds)
    (found,) = InferenceSession(plan, "numpy", 1).run(None, feeds)
    assert box is None or within(box, found), shown(chain.graph, plan)


def test_the_intervals_of_chains_say_something() -> None:
    certain: list[float] = []

    @given(chain=chains())
    @examples(100)
    def measure(chain: DrawnChain) -> None:
        box = interval_of(chain, chain.feeds())
        if box is not None and chain.graph.type(chain.graph.outputs[0]).dtype.is_integer:
            certain.append(float(np.mean(box.low == box.high)))

    measure()
    assert len(certain) > (30 if ENOUGH else 0)
    assert np.mean(certain) > 0.9, "the code is certain in most places"


@given(graph=graphs())
def test_a_graph_with_branches_stays_inside_its_intervals_on_v2(graph: Graph) -> None:
    """tests/laws/test_random_graphs.py does so for onednn-v3, on both runtimes."""
    plan = plan_from_graph(optimize(graph.copy()), "onednn-v2")
    assert verify_plan(plan) == []
    check_numbers(graph, plan)


def check_numbers(graph: Graph, plan: Plan) -> None:
    feeds = feeds_for(graph)
    boxes = run_boxes(graph, feeds, GRANTED)
    for name, found in zip(
        plan.outputs, InferenceSession(plan, "numpy", 1).run(None, feeds), strict=True
    ):
        assert within(boxes[name], found), shown(graph, plan)
