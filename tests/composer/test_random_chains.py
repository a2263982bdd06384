"""Any single chain that 32 post-ops hold is one primitive; chains and graphs with branches compute what the imported graph says.

The bound is the interval that the graph gives when every f32 rounding is widened outward: no further least significant bit is granted.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from laws.chains import chains
from laws.contracts import GRANTED
from laws.intervals import run_boxes
from laws.registry import feeds_for
from laws.strategies import graphs

from fqfuse.composer.compose import plan_from_graph
from fqfuse.composer.plan import Plan
from fqfuse.composer.text import print_plan
from fqfuse.composer.verify import verify_plan
from fqfuse.ir.decision import Outcome
from fqfuse.ir.graph import Graph
from fqfuse.ir.text import print_graph
from fqfuse.passes import optimize
from fqfuse.runtime.session import InferenceSession


def shown(graph: Graph, plan: Plan) -> str:
    return print_graph(graph, data="digest", explain=False) + "\n->\n" + print_plan(plan, data="digest", explain=False)


@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2", "unified"])
@given(graph=chains())
def test_a_chain_is_one_primitive_inside_its_interval(target: str, graph: Graph) -> None:
    plan = plan_from_graph(optimize(graph.copy()), target)
    assert verify_plan(plan) == []
    if target == "onednn-v2":  # its table refuses some operations; then a decision says so
        refused = [d for d in plan.decisions if d.outcome is Outcome.REFUSED and d.rule.startswith("fuse into")]
        assert len(plan.steps) == 1 or refused, shown(graph, plan)
    else:
        assert len(plan.steps) == 1, shown(graph, plan)
    check_numbers(graph, plan)


@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2"])
@given(graph=graphs())
def test_a_graph_with_branches_stays_inside_its_intervals(target: str, graph: Graph) -> None:
    plan = plan_from_graph(optimize(graph.copy()), target)
    assert verify_plan(plan) == []
    check_numbers(graph, plan)


def check_numbers(graph: Graph, plan: Plan) -> None:
    feeds = feeds_for(graph)
    boxes = run_boxes(graph, feeds, GRANTED)
    for name, found in zip(plan.outputs, InferenceSession(plan, "numpy", 1).run(None, feeds), strict=True):
        slack = 0 if found.dtype.kind in "iu" else 1e-6 + 1e-6 * np.abs(found).max(initial=0)  # polynomials of the primitives
        assert boxes[name].outside(found) <= slack, shown(graph, plan)
